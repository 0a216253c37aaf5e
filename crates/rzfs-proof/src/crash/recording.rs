//! A run of a workload, with every write that it made.

use super::workload::Workload;
use crate::view::record;
use crate::{OpenPool, ProofError};
use rzfs_blockdev::simulated::{CompletionOrder, Fault, FaultKind, History, Moment};
use rzfs_blockdev::{BlockDevice, SimulatedDevice, Simulation};
use rzfs_format::Txg;
use rzfs_hostile::Random;
use rzfs_testkit::FileSystemManifest;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What users saw at the end of a transaction group.
#[derive(Clone, Debug)]
pub(super) struct GroupEnd {
    pub(super) txg: Txg,
    /// When it was on disk.
    pub(super) durable: Moment,
    pub(super) files: FileSystemManifest,
}

/// A run of a workload, with every write that it made.
#[derive(Debug)]
pub struct Recording {
    /// What was done.
    pub workload: Workload,
    /// The seed that it followed from.
    pub seed: u64,
    pub(super) histories: Vec<(String, u64, History)>,
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

    /// Runs a workload on devices that ignore flushes: crashes of it have to be found out.
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
        let size = usize::try_from(shape.device_size).unwrap_or(0);
        let devices: BTreeMap<_, Arc<SimulatedDevice>> = shape
            .devices()
            .map(|letter| (letter, Arc::new(simulation.device(letter, vec![0; size]))))
            .collect();
        for device in devices.values() {
            device.set_order(CompletionOrder::Shuffled);
            prepare(device);
        }
        let as_blocks = devices
            .iter()
            .map(|(letter, device)| (*letter, Arc::clone(device) as Arc<dyn BlockDevice>));
        let open = OpenPool::create(&shape, &as_blocks.collect(), &settings)?;
        let ends = play(&open, workload, &simulation, seed)?;
        open.export()?;
        let histories: Vec<_> = devices
            .into_iter()
            .map(|(letter, device)| (letter.to_owned(), shape.device_size, device.history()))
            .collect();
        let first = ends.first().map_or(Moment(0), |end| end.durable);
        let mut moments: Vec<Moment> = histories
            .iter()
            .flat_map(|(_, _, history)| history.moments())
            .filter(|moment| *moment >= first)
            .collect();
        moments.sort_unstable();
        moments.dedup();
        Ok(Self { workload, seed, histories, ends, moments })
    }

    /// At how many moments crashes can differ.
    #[must_use]
    pub fn moments(&self) -> usize {
        self.moments.len()
    }

    /// How many transaction groups it has.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.ends.len()
    }

    /// What has to be found when this txg is the last one on disk.
    pub(super) fn end_of(&self, txg: Txg) -> Option<&GroupEnd> {
        self.ends.iter().rev().find(|end| end.txg <= txg)
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
) -> Result<Vec<GroupEnd>, ProofError> {
    let (_, fs) = open.root()?;
    let engine = open.pool.engine();
    let suspended = || ProofError::Suspended(open.pool.failure());
    let first =
        GroupEnd { txg: open.pool.synced_txg(), durable: simulation.now(), files: record(&**fs)? };
    let mut ends = vec![first];
    for step in 0..workload.steps() {
        let txg = engine.open_txg();
        let mut random = Random::of_place(seed, &[step]);
        // What changes from here on is in the open group; the one before is written meanwhile.
        let (files, durable) = std::thread::scope(|scope| {
            let before = scope.spawn(move || match txg.0.checked_sub(1) {
                Some(before) => engine.wait_synced(Txg(before)).map(|()| simulation.now()),
                None => Ok(simulation.now()),
            });
            workload.step(fs, step, &mut random)?;
            let files = record(&**fs)?;
            let durable = before.join().ok().and_then(Result::ok).ok_or_else(suspended)?;
            Ok::<_, ProofError>((files, durable))
        })?;
        if let Some(last) = ends.last_mut().filter(|last| last.durable == Moment(u64::MAX)) {
            last.durable = durable;
        }
        assert_eq!(engine.open_txg(), txg, "a step is in one transaction group");
        ends.push(GroupEnd { txg, durable: Moment(u64::MAX), files });
        close_group(open, txg);
    }
    open.pool.sync().map_err(|_| suspended())?;
    if let Some(last) = ends.last_mut() {
        last.durable = simulation.now();
    }
    Ok(ends)
}

/// Has a group written without waiting for that: only for the next one to be open.
fn close_group(open: &OpenPool, txg: Txg) {
    let engine = Arc::clone(open.pool.engine());
    let waiting = Arc::clone(&engine);
    // The thread ends when the group is on disk, or the pool suspended.
    std::thread::spawn(move || waiting.wait_synced(txg));
    while engine.open_txg() == txg && open.pool.failure().is_none() {
        std::thread::yield_now();
    }
}
