//! A run of a workload, with every write.

use super::devices::{SimulatedDevices, moments_since};
use super::workload::Workload;
use crate::{OpenPool, ProofError};
use rzfs_blockdev::simulated::{Fault, FaultKind, History, Moment};
use rzfs_blockdev::{BlockDevice, SimulatedDevice, Simulation};
use rzfs_format::Txg;
use rzfs_hostile::Random;
use rzfs_testkit::FileSystemManifest;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The visible contents of each file system.
pub(super) type Seen = BTreeMap<String, FileSystemManifest>;

/// Devices by their letters.
type Devices = BTreeMap<&'static str, Arc<dyn BlockDevice>>;

/// The visible contents at the end of a transaction group.
#[derive(Clone, Debug)]
pub(super) struct GroupEnd {
    /// The first group that may have ended like this.
    first: Txg,
    /// The first group that ended like this.
    txg: Txg,
    /// When it was on disk.
    durable: Moment,
    between: Between,
    pub(super) seen: Seen,
    /// The number of top-level vdevs.
    pub(super) vdevs: usize,
}

/// What may be found at the end of a group that is neither before a change nor after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Between {
    /// The state before or after: the change is atomic.
    Either,
    /// Part of many changes: the engine started a group among them, for background frees.
    Some,
}

/// A run of a workload, with every write.
#[derive(Debug)]
pub struct Recording {
    /// The workload.
    pub workload: Workload,
    /// Its seed.
    pub seed: u64,
    pub(super) histories: Vec<(String, History)>,
    pub(super) ends: Vec<GroupEnd>,
    pub(super) moments: Vec<Moment>,
}

impl Recording {
    /// Runs a workload.
    ///
    /// # Errors
    /// It cannot be carried out.
    pub fn make(workload: Workload, seed: u64) -> Result<Self, ProofError> {
        Self::on(workload, seed, |_| {})
    }

    /// Runs a workload on devices that ignore flushes: its crashes must be detected.
    ///
    /// # Errors
    /// It cannot be carried out.
    pub fn without_flushes(workload: Workload, seed: u64) -> Result<Self, ProofError> {
        Self::on(workload, seed, |device| {
            device.inject(Fault::new(FaultKind::LoseFlush));
        })
    }

    fn on(
        workload: Workload,
        seed: u64,
        prepare: impl Fn(&SimulatedDevice),
    ) -> Result<Self, ProofError> {
        let (shape, settings) = (workload.shape(), workload.settings(seed));
        let simulation = Simulation::new(seed);
        let devices = SimulatedDevices::new(&shape, workload.more_devices(), &simulation);
        devices.iter().for_each(prepare);
        let as_blocks = devices.as_blocks();
        let mut open = OpenPool::create(&shape, &as_blocks, &settings)?;
        let first = GroupEnd {
            first: open.pool.uberblock().txg,
            txg: open.pool.uberblock().txg,
            durable: simulation.now(),
            between: Between::Either,
            seen: open.record_all()?,
            vdevs: vdevs(&open),
        };
        let mut ends = vec![first];
        match workload {
            Workload::Datasets | Workload::Snapshots | Workload::Receive | Workload::Add => {
                administer(&mut open, (workload, seed), &simulation, &as_blocks, &mut ends)?;
            }
            _ => play(&open, workload, &simulation, seed, &mut ends)?,
        }
        open.export()?;
        let histories = devices.histories();
        let first = ends.first().map_or(Moment(0), |end| end.durable);
        let moments = moments_since(first, &histories);
        Ok(Self { workload, seed, histories, ends, moments })
    }

    /// The number of moments at which crashes can differ.
    #[must_use]
    pub fn moments(&self) -> usize {
        self.moments.len()
    }

    /// The number of transaction groups.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.ends.len()
    }

    /// The possible states if this txg is the last one on disk.
    pub(super) fn ends_of(&self, txg: Txg) -> Vec<&GroupEnd> {
        let last = self.ends.iter().rev().find(|end| end.txg <= txg);
        let maybe = self.ends.iter().filter(|end| end.first <= txg && txg < end.txg);
        last.into_iter().chain(maybe).collect()
    }

    /// Whether this txg is the last one with only part of a step's changes.
    pub(super) fn cuts_a_step(&self, txg: Txg) -> bool {
        let mut ends = self.ends.iter();
        ends.any(|end| end.between == Between::Some && end.first <= txg && txg < end.txg)
    }

    /// The last txg that was on disk at a moment.
    pub(super) fn durable_at(&self, moment: Moment) -> Txg {
        let durable = self.ends.iter().filter(|end| end.durable <= moment);
        durable.map(|end| end.txg).max().unwrap_or(Txg(0))
    }
}

/// Changes files in one group while the group before is written.
fn play(
    open: &OpenPool,
    workload: Workload,
    simulation: &Simulation,
    seed: u64,
    ends: &mut Vec<GroupEnd>,
) -> Result<(), ProofError> {
    let (_, fs) = open.root()?;
    let engine = open.pool.engine();
    let suspended = || ProofError::Suspended(open.pool.failure());
    for step in 0..workload.steps() {
        let txg = engine.open_txg();
        let mut random = Random::of_place(seed, &[step]);
        // Changes from here on are in the open group; the previous one is written meanwhile.
        let (seen, durable) = std::thread::scope(|scope| {
            let before = scope.spawn(move || {
                let before = Txg(txg.0.saturating_sub(1));
                engine.wait_synced(before).map(|()| simulation.now())
            });
            workload.step(fs, step, &mut random)?;
            let seen = open.record_all()?;
            let durable = before.join().ok().and_then(Result::ok).ok_or_else(suspended)?;
            Ok::<_, ProofError>((seen, durable))
        })?;
        if let Some(last) = ends.last_mut().filter(|last| last.durable == Moment(u64::MAX)) {
            last.durable = durable;
        }
        assert_eq!(engine.open_txg(), txg, "a step is in one transaction group");
        let (durable, between) = (Moment(u64::MAX), Between::Either);
        let vdevs = vdevs(open);
        ends.push(GroupEnd { first: txg, txg, durable, between, seen, vdevs });
        close_group(open, txg);
    }
    open.sync()?;
    if let Some(last) = ends.last_mut() {
        last.durable = simulation.now();
    }
    Ok(())
}

/// Requests a group to be written without waiting for it: only for the next one to open.
fn close_group(open: &OpenPool, txg: Txg) {
    let engine = Arc::clone(open.pool.engine());
    let waiting = Arc::clone(&engine);
    // The thread ends when the group is on disk, or the pool suspended.
    std::thread::spawn(move || waiting.wait_synced(txg));
    while engine.open_txg() == txg && open.pool.failure().is_none() {
        std::thread::yield_now();
    }
}

fn vdevs(open: &OpenPool) -> usize {
    open.pool.vdevs().top_levels().count()
}

/// Changes files, interleaved with changes of the pool or its file systems.
fn administer(
    open: &mut OpenPool,
    (workload, seed): (Workload, u64),
    simulation: &Simulation,
    devices: &Devices,
    ends: &mut Vec<GroupEnd>,
) -> Result<(), ProofError> {
    for step in 0..workload.steps() {
        let mut random = Random::of_place(seed, &[step]);
        let first = open.pool.engine().open_txg();
        for fs in open.file_systems.values() {
            workload.step(fs, step, &mut random)?;
        }
        let seen = open.record_all()?;
        open.sync()?;
        // The engine may have written all of it in an earlier group; then the last one is empty,
        // and has no uberblock.
        let txg = open.pool.uberblock().txg;
        let (durable, between) = (simulation.now(), Between::Some);
        ends.push(GroupEnd { first, txg, durable, between, seen, vdevs: vdevs(open) });
        let first = open.pool.engine().open_txg();
        workload.administer(open, step, &mut random, devices)?;
        let txg = open.pool.uberblock().txg;
        let (durable, between) = (simulation.now(), Between::Either);
        let (seen, vdevs) = (open.record_all()?, vdevs(open));
        ends.push(GroupEnd { first, txg, durable, between, seen, vdevs });
    }
    Ok(())
}
