//! The mounts of a pool.

use rzfs::protocol::{MountReport, Refusal};
use rzfs_fuse::{InUse, Mount, MountPlace};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long to wait for the last answers of a mount that was detached.
const DETACHED_PATIENCE: Duration = Duration::from_millis(500);

/// How long to wait until what was changed through a mount is written.
const PATIENCE: Duration = Duration::from_secs(600);

/// A mounted file system.
#[derive(Debug)]
pub(super) struct DatasetMount {
    pub(super) dataset: String,
    /// Where it was planned to be; where it is, without links, the mount knows.
    pub(super) mountpoint: PathBuf,
    pub(super) mount: Mount,
    /// The datasets that share the mount, and where in it they are.
    pub(super) grafted: Vec<(String, PathBuf)>,
    /// The directory was made for the mount.
    pub(super) is_made: bool,
}

/// All mounts of a pool, in the order of mounting.
#[derive(Debug, Default)]
pub(super) struct MountTable(Vec<DatasetMount>);

impl MountTable {
    pub(super) fn add(&mut self, mount: DatasetMount) {
        self.0.push(mount);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.alive().next().is_none()
    }

    fn alive(&self) -> impl Iterator<Item = &DatasetMount> {
        self.0.iter().filter(|one| !one.mount.is_finished())
    }

    pub(super) fn reports(&self) -> Vec<MountReport> {
        let report = |dataset: &str, directory: &Path| MountReport {
            dataset: dataset.to_owned(),
            mountpoint: directory.to_string_lossy().into_owned(),
        };
        let mut reports = Vec::new();
        for one in self.alive() {
            let directory = one.mount.directory();
            reports.push(report(&one.dataset, directory));
            let grafted = one.grafted.iter();
            reports.extend(grafted.map(|(name, path)| report(name, &directory.join(path))));
        }
        reports
    }

    /// The mount that has a file system.
    pub(super) fn of_dataset(&self, name: &str) -> Option<&DatasetMount> {
        self.alive().find(|one| one.datasets().any(|dataset| dataset == name))
    }

    /// The nearest mount around the place of a planned one.
    pub(super) fn around(&self, planned: &Path) -> Option<&DatasetMount> {
        let around = self.alive().filter(|one| planned.starts_with(&one.mountpoint));
        around.max_by_key(|one| one.mountpoint.components().count())
    }

    /// Ends the mounts of these file systems, and those below them; tells which file systems that
    /// were. Those that are gone when one is in use stay so.
    pub(super) fn unmount(
        &mut self,
        names: &BTreeSet<String>,
        in_use: InUse,
    ) -> Result<BTreeSet<String>, Refusal> {
        let named = |one: &DatasetMount| one.datasets().any(|name| names.contains(name));
        let places: Vec<PathBuf> =
            self.alive().filter(|one| named(one)).map(|one| one.directory()).collect();
        let is_affected =
            |one: &DatasetMount| places.iter().any(|place| one.directory().starts_with(place));
        let mut ended = BTreeSet::new();
        // The last one mounted is the deepest.
        for position in (0..self.0.len()).rev() {
            if self.0.get(position).is_some_and(is_affected) {
                ended.extend(self.end(position, in_use)?);
            }
        }
        Ok(ended)
    }

    /// Ends all mounts, the deepest first.
    pub(super) fn unmount_all(&mut self, in_use: InUse) -> Result<(), Refusal> {
        while let Some(last) = self.0.len().checked_sub(1) {
            self.end(last, in_use)?;
        }
        Ok(())
    }

    fn end(&mut self, position: usize, in_use: InUse) -> Result<Vec<String>, Refusal> {
        let Some(one) = self.0.get(position) else { return Ok(Vec::new()) };
        one.mount.request_unmount(in_use).map_err(|error| Refusal {
            message: match error.is_in_use() {
                true => format!(
                    "cannot unmount '{}': pool or dataset is busy",
                    error.directory().display()
                ),
                false => error.to_string(),
            },
        })?;
        let one = self.0.remove(position);
        let names = one.datasets().map(str::to_owned).collect();
        one.finish(match in_use {
            InUse::Refuse => PATIENCE,
            InUse::Detach => DETACHED_PATIENCE,
        });
        Ok(names)
    }

    /// Gives file systems other names.
    pub(super) fn rename(&mut self, renamed: impl Fn(&str) -> Option<String>) {
        for one in &mut self.0 {
            let grafted = one.grafted.iter_mut().map(|(name, _)| name);
            for name in std::iter::once(&mut one.dataset).chain(grafted) {
                if let Some(new) = renamed(name) {
                    *name = new;
                }
            }
        }
    }

    /// Forgets mounts that somebody else has ended; tells which file systems they had.
    pub(super) fn forget_finished(&mut self) -> BTreeSet<String> {
        let (finished, alive) = std::mem::take(&mut self.0)
            .into_iter()
            .partition::<Vec<_>, _>(|one| one.mount.is_finished());
        self.0 = alive;
        let names = finished.iter().flat_map(|one| one.datasets().map(str::to_owned)).collect();
        finished.into_iter().for_each(|one| one.finish(Duration::ZERO));
        names
    }
}

impl DatasetMount {
    /// The file systems that it has.
    pub(super) fn datasets(&self) -> impl Iterator<Item = &str> {
        let grafted = self.grafted.iter().map(|(name, _)| name.as_str());
        std::iter::once(self.dataset.as_str()).chain(grafted)
    }

    fn directory(&self) -> PathBuf {
        self.mount.directory().to_owned()
    }

    /// Waits for the last answers, and removes the directory if it was made for the mount.
    fn finish(self, patience: Duration) {
        let directory = self.directory();
        let start = Instant::now();
        while !self.mount.is_finished() && start.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.mount.abandon();
        if self.is_made {
            // Somebody may have put something there.
            let _ = MountPlace::remove(&directory);
        }
    }
}
