//! The state left by a crash, and whether it is correct.

use super::power_cut::PowerCut;
use super::recording::{GroupEnd, Recording, Seen};
use crate::opened::record_snapshots;
use crate::view::{differences, record};
use crate::{
    Files, OpenPool, ProofError, open_for_reading, read_dataset, walk, wrong_accounts, wrong_chains,
};
use bytes::Bytes;
use rzfs_blockdev::{Access, BlockDevice, MemoryDevice};
use rzfs_dsl::Pool;
use rzfs_dsl::import::DeviceSource;
use rzfs_hostile::Random;
use rzfs_zpl::FileSystem;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Maximum number of differences reported.
const TOLD: usize = 5;

/// The depth of the checks after a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Depth {
    /// It imports, its files are those at a group's end, its blocks are accounted for.
    Import,
    /// In addition, it can be changed and exported, and all of that holds again.
    GoOn,
}

/// A crash of a recorded run.
#[derive(Clone, Copy, Debug)]
pub struct CrashCase<'a> {
    /// The run.
    pub recording: &'a Recording,
    /// The number of the crash: determines the moment and the lost writes.
    pub number: u64,
}

/// The state left on the devices by a crash.
#[derive(Debug)]
pub struct CrashImages {
    sizes: Vec<u64>,
    names: Vec<String>,
    writes: Vec<Vec<(u64, Bytes)>>,
}

impl CrashImages {
    fn devices(&self) -> Vec<Arc<dyn BlockDevice>> {
        let device = |(index, writes): (usize, &Vec<(u64, Bytes)>)| {
            let size = self.sizes.get(index).copied().unwrap_or(0);
            let mut content = vec![0; usize::try_from(size).unwrap_or(0)];
            for (offset, bytes) in writes {
                let start = usize::try_from(*offset).unwrap_or(usize::MAX);
                if let Some(target) = content.get_mut(start..start.saturating_add(bytes.len())) {
                    target.copy_from_slice(bytes);
                }
            }
            let name = self.names.get(index).cloned().unwrap_or_default();
            Arc::new(MemoryDevice::new(name, content, Access::ReadWrite)) as Arc<dyn BlockDevice>
        };
        self.writes.iter().enumerate().map(device).collect()
    }

    /// Writes the devices into sparse files of a directory.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn save(&self, directory: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(directory)?;
        for ((name, size), writes) in self.names.iter().zip(&self.sizes).zip(&self.writes) {
            let file = File::create(directory.join(name))?;
            file.set_len(*size)?;
            for (offset, bytes) in writes {
                file.write_all_at(bytes, *offset)?;
            }
        }
        Ok(())
    }
}

impl CrashCase<'_> {
    fn random(&self) -> Random {
        Random::of_place(self.recording.seed, &[0x000c_4a54, self.number])
    }

    fn power_cut(&self) -> PowerCut {
        let Recording { moments, histories, .. } = self.recording;
        PowerCut::choose(self.random(), moments, histories)
    }

    /// The state left by the crash.
    #[must_use]
    pub fn images(&self) -> CrashImages {
        let (cut, histories) = (self.power_cut(), &self.recording.histories);
        let lost = cut.of(histories);
        CrashImages {
            writes: lost.map(|(_, history, loss)| history.crash_writes(cut.moment, loss)).collect(),
            sizes: vec![self.recording.workload.shape().device_size; histories.len()],
            names: histories.iter().map(|(name, _)| name.clone()).collect(),
        }
    }

    /// Returns the error in the state left by the crash.
    #[must_use]
    pub fn finding(&self, depth: Depth) -> Option<String> {
        match self.examine(depth) {
            Ok(finding) => finding,
            Err(error) => Some(error.to_string()),
        }
    }

    fn examine(&self, depth: Depth) -> Result<Option<String>, ProofError> {
        let devices = self.images().devices();
        let sources: Vec<_> = devices.into_iter().map(DeviceSource::Device).collect();
        let recording = self.recording;
        let settings = recording.workload.settings(recording.seed ^ self.number);
        let name = recording.workload.shape().name;
        let pool = open_for_reading(&sources, name, &settings)?;
        let (txg, durable) = (pool.uberblock().txg, recording.durable_at(self.power_cut().moment));
        if txg < durable {
            return Ok(Some(format!("txg {txg} was imported, but txg {durable} was on disk")));
        }
        let found = see(&pool)?;
        let ends = recording.ends_of(txg);
        let vdevs = pool.vdevs().top_levels().count();
        let finding = |end: &GroupEnd| match end.vdevs == vdevs {
            true => compare(&format!("txg {txg}"), &end.seen, &found),
            false => Some(format!("txg {txg}: {vdevs} vdevs instead of {}", end.vdevs)),
        };
        let findings: Vec<_> = ends.iter().map(|end| finding(end)).collect();
        if !recording.cuts_a_step(txg) && !findings.iter().any(Option::is_none) {
            let finding = findings.into_iter().flatten().next();
            return Ok(finding.or_else(|| Some(format!("txg {txg} was never written"))));
        }
        if let Some(finding) = wrong_inside(&pool)? {
            return Ok(Some(format!("txg {txg}: {finding}")));
        }
        drop(pool);
        match depth {
            Depth::Import => Ok(None),
            Depth::GoOn => self.go_on(&sources),
        }
    }

    /// Changes the pool left by the crash.
    fn go_on(&self, sources: &[DeviceSource]) -> Result<Option<String>, ProofError> {
        let workload = self.recording.workload;
        let name = workload.shape().name;
        let settings = workload.settings(self.recording.seed ^ self.number);
        let mut open = OpenPool::open(sources, name, &settings)?;
        let mut random = self.random();
        for step in 0..3 {
            for fs in open.file_systems.values() {
                workload.step(fs, 100 + step, &mut random)?;
                Files(fs).mkdir(&format!("after the crash {step}"))?;
            }
            open.sync()?;
        }
        workload.go_on(&mut open)?;
        let expected = open.record_all()?;
        open.export()?;
        let pool = open_for_reading(sources, name, &settings)?;
        if let Some(finding) = compare("after going on", &expected, &see(&pool)?) {
            return Ok(Some(finding));
        }
        Ok(wrong_inside(&pool)?.map(|finding| format!("after going on: {finding}")))
    }
}

/// All file systems of a pool, except for partial receives.
fn file_systems(pool: &Pool) -> Result<Vec<(String, FileSystem)>, ProofError> {
    let root = pool.datasets().root()?;
    let datasets = std::iter::once(root.clone()).chain(root.descendants()?);
    let whole = datasets.filter(|dataset| !dataset.is_inconsistent());
    let names = whole.map(|dataset| dataset.name().to_owned());
    names.map(|name| Ok((name.clone(), read_dataset(pool, &name)?))).collect()
}

/// The visible contents of all file systems of a pool.
fn see(pool: &Pool) -> Result<Seen, ProofError> {
    let recorded = |(name, fs): (String, FileSystem)| Ok((name, record(&fs)?));
    let seen = file_systems(pool)?.into_iter().map(recorded).collect::<Result<Seen, ProofError>>();
    let mut seen = seen?;
    record_snapshots(pool.datasets(), &mut seen)?;
    Ok(seen)
}

/// The errors in a pool's blocks, or in the accounts of users, groups and projects.
///
/// # Errors
/// The pool cannot be read.
pub(super) fn wrong_inside(pool: &Pool) -> Result<Option<String>, ProofError> {
    if let Some(finding) = walk(pool)? {
        return Ok(Some(finding));
    }
    if let Some(wrong) = wrong_chains(pool)?.first() {
        return Ok(Some(wrong.clone()));
    }
    for (name, fs) in file_systems(pool)? {
        if let Some(wrong) = wrong_accounts(&fs)?.first() {
            return Ok(Some(format!("{name}: {wrong}")));
        }
    }
    Ok(None)
}

fn compare(when: &str, expected: &Seen, found: &Seen) -> Option<String> {
    if !expected.keys().eq(found.keys()) {
        let names = |seen: &Seen| seen.keys().cloned().collect::<Vec<_>>().join(" ");
        return Some(format!("{when}: {} instead of {}", names(found), names(expected)));
    }
    expected.iter().zip(found.values()).find_map(|((name, expected), found)| {
        let differences = differences(expected, found);
        if differences.is_empty() {
            return None;
        }
        let told = differences.iter().take(TOLD).cloned().collect::<Vec<_>>().join("; ");
        Some(format!("{when}: {name}: {} differences: {told}", differences.len()))
    })
}
