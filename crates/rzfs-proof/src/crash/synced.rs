//! Crashes of programs that wait for their changes: after any crash, everything that was waited for
//! is there once the intent log is replayed.
//!
//! ```text
//! change, change, commit ─ acknowledged: all of it      change ─ maybe, maybe not
//! ──────────────────────────────────────────────┬───────────────┬─────> moments
//!                                    the last one before the crash
//! ```
//! After a crash each file is as last acknowledged, except for those changed since.

use super::devices::{SimulatedDevices, moments_since};
use super::point::wrong_inside;
use super::power_cut::PowerCut;
use super::trouble::{NextStep, Trouble};
use super::workload::Workload;
use crate::fill::noise;
use crate::view::{differences, record};
use crate::{Files, OpenPool, ProofError, open_for_reading, read_dataset};
use rzfs_blockdev::simulated::{History, Moment};
use rzfs_blockdev::{Access, BlockDevice, MemoryDevice, Simulation};
use rzfs_dsl::import::DeviceSource;
use rzfs_hostile::Random;
use rzfs_testkit::FileSystemManifest;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Changes of one run.
const CHANGES: u64 = 90;
/// Number of changes after which a transaction group is closed, without waiting for it.
const GROUP_EVERY: u64 = 17;
/// Directories that files are in.
const DIRECTORIES: u64 = 3;
/// Files of a directory.
const FILES: u64 = 6;
/// More than any file has.
const LONGEST: u64 = 1 << 30;
/// Maximum number of differences reported.
const TOLD: usize = 5;

/// An acknowledged state.
#[derive(Debug)]
struct Acknowledged {
    /// When the wait was over.
    at: Moment,
    /// Number of changes before.
    changes: usize,
    /// The visible contents at that time.
    seen: FileSystemManifest,
}

/// A change, as far as it matters for crashes.
#[derive(Debug)]
struct Change {
    /// It had not begun before.
    begun: Moment,
    paths: BTreeSet<Vec<u8>>,
}

/// A run of changes, some of which are waited for, with every write.
#[derive(Debug)]
pub struct SyncedRecording {
    workload: Workload,
    seed: u64,
    histories: Vec<(String, History)>,
    moments: Vec<Moment>,
    changes: Vec<Change>,
    acknowledged: Vec<Acknowledged>,
}

/// The visible contents, except for change times.
fn see(open: &OpenPool) -> Result<FileSystemManifest, ProofError> {
    Ok(record(&**open.root()?.1)?.timeless())
}

impl SyncedRecording {
    /// Makes changes to a new pool of the workload's shape.
    ///
    /// # Errors
    /// They cannot be carried out.
    pub fn make(workload: Workload, seed: u64) -> Result<Self, ProofError> {
        Self::with_trouble(workload, seed, &Trouble::none())
    }

    /// The same on devices that fail meanwhile.
    pub(super) fn with_trouble(
        workload: Workload,
        seed: u64,
        trouble: &Trouble,
    ) -> Result<Self, ProofError> {
        let (shape, settings) = (workload.shape(), workload.settings(seed));
        let simulation = Simulation::new(seed);
        let devices = SimulatedDevices::new(&shape, [], &simulation);
        let open = OpenPool::create(&shape, &devices.as_blocks(), &settings)?;
        let files = Files(open.root()?.1);
        for directory in 0..DIRECTORIES {
            files.mkdir(&format!("d{directory}"))?;
        }
        open.sync()?;
        let begun = simulation.now();
        let seen = see(&open)?;
        let mut run = Self {
            workload,
            seed,
            histories: Vec::new(),
            moments: Vec::new(),
            changes: Vec::new(),
            acknowledged: vec![Acknowledged { at: begun, changes: 0, seen }],
        };
        trouble.run_with_repairs(&open, &devices, || {
            run.play(&open, &simulation, &devices, trouble)
        })?;
        open.pool.give_up_waiting();
        drop(open);
        run.histories = devices.histories();
        run.moments = moments_since(begun, &run.histories);
        Ok(run)
    }

    /// The number of moments at which crashes can differ.
    #[must_use]
    pub fn moments(&self) -> usize {
        self.moments.len()
    }

    /// The number of waits.
    #[must_use]
    pub fn waits(&self) -> usize {
        self.acknowledged.len()
    }

    fn play(
        &mut self,
        open: &OpenPool,
        simulation: &Simulation,
        devices: &SimulatedDevices,
        trouble: &Trouble,
    ) -> Result<(), ProofError> {
        let (_, fs) = open.root()?;
        for number in 0..CHANGES {
            let mut random = Random::of_place(self.seed, &[number]);
            let begun = simulation.now();
            let paths = change(&Files(fs), number, &mut random)?;
            let is_awaited = random.below(3) > 0;
            let next = if is_awaited { NextStep::Commit } else { NextStep::Change };
            trouble.strike(number, next, devices);
            self.changes.push(Change { begun, paths });
            if number % GROUP_EVERY == GROUP_EVERY - 1 {
                let _ = fs.request_sync();
            }
            if is_awaited {
                fs.commit_all().map_err(|source| ProofError::at("", source))?;
                trouble.end(open, devices);
                let (at, changes) = (simulation.now(), self.changes.len());
                self.acknowledged.push(Acknowledged { at, changes, seen: see(open)? });
            }
        }
        Ok(())
    }

    /// Returns the error in the state left by crash `number`.
    #[must_use]
    pub fn finding(&self, number: u64) -> Option<String> {
        match self.examine(number) {
            Ok(finding) => finding,
            Err(error) => Some(error.to_string()),
        }
    }

    /// The moment of a crash, and the state left on the devices.
    fn crash(&self, number: u64) -> (Moment, Vec<DeviceSource>) {
        let random = Random::of_place(self.seed, &[0x0005_1ced, number]);
        let cut = PowerCut::choose(random, &self.moments, &self.histories);
        let devices = cut.of(&self.histories).map(|(name, history, loss)| {
            let content = history.crash_image(cut.moment, loss);
            let device = MemoryDevice::new(name, content, Access::ReadWrite);
            DeviceSource::Device(Arc::new(device) as Arc<dyn BlockDevice>)
        });
        (cut.moment, devices.collect())
    }

    /// Whether something that was waited for is only in the intent log after crash `number`.
    ///
    /// # Errors
    /// The state left by the crash cannot be read.
    pub fn needs_its_log(&self, number: u64) -> Result<bool, ProofError> {
        let (moment, sources) = self.crash(number);
        let settings = self.workload.settings(self.seed ^ number);
        let name = self.workload.shape().name;
        let pool = open_for_reading(&sources, name, &settings)?;
        let seen = record(&read_dataset(&pool, name)?)?.timeless();
        Ok(self.compare(moment, &seen).is_some())
    }

    fn examine(&self, number: u64) -> Result<Option<String>, ProofError> {
        let (moment, sources) = self.crash(number);
        let settings = self.workload.settings(self.seed ^ number);
        let name = self.workload.shape().name;
        let open = OpenPool::open(&sources, name, &settings)?;
        let finding = self.compare(moment, &see(&open)?);
        if finding.is_some() {
            return Ok(finding);
        }
        Files(open.root()?.1).mkdir("after the crash")?;
        open.export()?;
        let pool = open_for_reading(&sources, name, &settings)?;
        Ok(wrong_inside(&pool)?.map(|finding| format!("{moment:?}: {finding}")))
    }

    /// The differences from the last state acknowledged before `moment`.
    fn compare(&self, moment: Moment, found: &FileSystemManifest) -> Option<String> {
        let last = self.acknowledged.iter().rev().find(|known| known.at <= moment)?;
        let since = self.changes.get(last.changes..).unwrap_or_default();
        let uncertain: BTreeSet<&Vec<u8>> = since
            .iter()
            .take_while(|change| change.begun <= moment)
            .flat_map(|change| &change.paths)
            .collect();
        let certain = |seen: &FileSystemManifest| {
            let mut seen = seen.clone();
            seen.entries.retain(|path, _| !uncertain.contains(path));
            seen
        };
        let differences = differences(&certain(&last.seen), &certain(found));
        let told = differences.iter().take(TOLD).cloned().collect::<Vec<_>>().join("; ");
        let count = differences.len();
        (count > 0).then(|| format!("{moment:?}: {count} of {} differ: {told}", last.changes))
    }
}

/// Makes one change; returns the paths.
fn change(
    files: &Files<'_>,
    number: u64,
    random: &mut Random,
) -> Result<BTreeSet<Vec<u8>>, ProofError> {
    let mut path = || {
        let (directory, file) = (random.below(DIRECTORIES), random.below(FILES));
        (format!("d{directory}"), format!("d{directory}/f{file}"))
    };
    let ((parent, file), (other_parent, other)) = (path(), path());
    let mut touched: BTreeSet<Vec<u8>> = [file.clone(), parent].map(String::into_bytes).into();
    if files.find(&file).is_err() {
        let size = random.below(if number.is_multiple_of(7) { 200_000 } else { 5000 }) as usize;
        files.put(&file, &noise(random.draw(), size + 1))?;
        return Ok(touched);
    }
    match random.below(12) {
        0 | 1 => files.write(&file, random.below(20_000), &noise(random.draw(), 3000))?,
        2 => files.truncate(&file, random.below(9000))?,
        3 => files.chmod(&file, 0o600 + random.below(0o177) as u32)?,
        4 => files.set_xattr(&file, "user.number", number.to_string().as_bytes())?,
        5 => files.punch(&file, random.below(4000), 2000)?,
        6 if file != other => {
            files.rename(&file, &other)?;
            touched.extend([other, other_parent].map(String::into_bytes));
        }
        // Long enough that its blocks are written in place.
        7 | 8 => {
            let size = 32 << 10 | random.below(300_000) as usize;
            files.write(&file, random.below(200_000), &noise(random.draw(), size))?;
        }
        // Its blocks on disk are shared.
        9 if files.find(&other).is_err() => {
            files.copy(&file, &other, LONGEST)?;
            touched.extend([other, other_parent].map(String::into_bytes));
        }
        // Long enough to be stored as a file.
        10 => {
            let size = 33_000 + random.below(20_000) as usize;
            files.set_xattr(&file, "user.long", &noise(random.draw(), size))?;
        }
        _ => files.unlink(&file)?,
    }
    Ok(touched)
}
