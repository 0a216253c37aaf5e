//! The mounts of a pool.

use super::plan::PlannedMount;
use rzfs::protocol::{MountReport, Refusal};
use rzfs_fuse::{InUse, Mount, MountError, MountPlace, Nested, Restrictions, Underneath};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long to wait until nobody can get at a mount any more, and for its last answers if it was
/// detached.
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
    /// What it does not let happen.
    pub(super) restrictions: Restrictions,
    /// The datasets that share the mount, and where in it they are; those above come before those
    /// below.
    pub(super) grafted: Vec<(String, PathBuf)>,
    /// The directory was made for the mount.
    pub(super) is_made: bool,
}

/// What came of ending mounts.
#[derive(Debug, Default)]
pub(super) struct Unmounted {
    /// What was mounted, and where.
    pub(super) ended: Vec<PlannedMount>,
    /// Where mounts were that somebody still has: in a bind mount, or another namespace.
    pub(super) elsewhere: Vec<PathBuf>,
    /// Why not all of them have ended.
    pub(super) refused: Option<Refusal>,
}

/// How a mount has ended.
#[derive(Default)]
struct End {
    plans: Vec<PlannedMount>,
    /// Where it was, if somebody still has it.
    elsewhere: Option<PathBuf>,
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

    /// The mounts that have some of these file systems, to be changed.
    pub(super) fn of_datasets_mut(
        &mut self,
        names: &BTreeSet<String>,
    ) -> impl Iterator<Item = &mut DatasetMount> {
        let alive = self.0.iter_mut().filter(|one| !one.mount.is_finished());
        alive.filter(|one| one.datasets().any(|name| names.contains(name)))
    }

    /// The nearest mount around the place of a planned one.
    pub(super) fn around(&self, planned: &Path) -> Option<&DatasetMount> {
        let around = self.alive().filter(|one| planned.starts_with(&one.mountpoint));
        around.max_by_key(|one| one.mountpoint.components().count())
    }

    /// The same, to be changed.
    pub(super) fn around_mut(&mut self, planned: &Path) -> Option<&mut DatasetMount> {
        let alive = self.0.iter_mut().filter(|one| !one.mount.is_finished());
        let around = alive.filter(|one| planned.starts_with(&one.mountpoint));
        around.max_by_key(|one| one.mountpoint.components().count())
    }

    /// The file systems that are mounted below the place of a planned one.
    pub(super) fn below(&self, planned: &Path) -> impl Iterator<Item = String> {
        let is_below = move |plan: &PlannedMount| {
            plan.mountpoint != planned && plan.mountpoint.starts_with(planned)
        };
        let plans = self.alive().flat_map(DatasetMount::plans);
        plans.filter(is_below).map(|plan| plan.dataset)
    }

    /// Ends the mounts of these file systems, and those below them, the deepest first, until one is
    /// in use.
    pub(super) fn unmount(&mut self, names: &BTreeSet<String>, in_use: InUse) -> Unmounted {
        let places: Vec<PathBuf> = self
            .alive()
            .flat_map(DatasetMount::places)
            .filter(|(name, _)| names.contains(*name))
            .map(|(_, place)| place)
            .collect();
        let is_affected = |directory: &Path| places.iter().any(|one| directory.starts_with(one));
        self.end_those(is_affected, in_use)
    }

    /// Ends all mounts, the deepest first, until one is in use.
    pub(super) fn unmount_all(&mut self, in_use: InUse) -> Unmounted {
        self.end_those(|_| true, in_use)
    }

    /// Ends all mounts that are not in use, the deepest first; tells what has ended, and why the
    /// others have not.
    pub(super) fn unmount_each(&mut self, in_use: InUse) -> (Vec<PlannedMount>, Vec<String>) {
        let (mut ended, mut refused) = (Vec::new(), Vec::new());
        for position in (0..self.0.len()).rev() {
            match self.end(position, in_use) {
                Ok(End { plans, .. }) => ended.extend(plans),
                Err(refusal) => {
                    refused.push(refusal.message);
                    let Some(one) = self.0.get_mut(position) else { continue };
                    for graft in (0..one.grafted.len()).rev() {
                        match one.ungraft(graft, in_use) {
                            Ok(plan) => ended.extend(plan),
                            Err(refusal) => refused.push(refusal.message),
                        }
                    }
                }
            }
        }
        (ended, refused)
    }

    /// Ends what is in directories of which something is so: whole mounts, or what shares them.
    fn end_those(&mut self, which: impl Fn(&Path) -> bool, in_use: InUse) -> Unmounted {
        let mut unmounted = Unmounted::default();
        // The last one mounted is the deepest.
        for position in (0..self.0.len()).rev() {
            let refused = match self.0.get_mut(position) {
                Some(one) if which(&one.directory()) => match self.end(position, in_use) {
                    Ok(End { plans, elsewhere }) => {
                        unmounted.ended.extend(plans);
                        unmounted.elsewhere.extend(elsewhere);
                        Ok(())
                    }
                    Err(refusal) => Err(refusal),
                },
                Some(one) => one.ungraft_those(&which, in_use, &mut unmounted.ended),
                None => Ok(()),
            };
            if let Err(refusal) = refused {
                unmounted.refused = Some(refusal);
                break;
            }
        }
        unmounted
    }

    fn end(&mut self, position: usize, in_use: InUse) -> Result<End, Refusal> {
        let Some(one) = self.0.get(position) else { return Ok(End::default()) };
        one.mount.request_unmount(in_use).map_err(|error| refusal(&error))?;
        let one = self.0.remove(position);
        let plans = one.plans();
        let elsewhere = one.finish(match in_use {
            InUse::Refuse => PATIENCE,
            InUse::Detach => DETACHED_PATIENCE,
        });
        Ok(End { plans, elsewhere })
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
        for one in finished {
            one.finish(Duration::ZERO);
        }
        names
    }
}

impl DatasetMount {
    /// The file systems that it has.
    pub(super) fn datasets(&self) -> impl Iterator<Item = &str> {
        let grafted = self.grafted.iter().map(|(name, _)| name.as_str());
        std::iter::once(self.dataset.as_str()).chain(grafted)
    }

    /// What was planned for them. They hide already what they would hide.
    fn plans(&self) -> Vec<PlannedMount> {
        let plan = |dataset: &str, mountpoint| PlannedMount {
            dataset: dataset.to_owned(),
            mountpoint,
            underneath: Underneath::Hidden,
        };
        let grafted = self.grafted.iter();
        let grafted = grafted.map(|(name, path)| plan(name, self.mountpoint.join(path)));
        std::iter::once(plan(&self.dataset, self.mountpoint.clone())).chain(grafted).collect()
    }

    fn directory(&self) -> PathBuf {
        self.mount.directory().to_owned()
    }

    /// Its file systems, and where they are.
    fn places(&self) -> impl Iterator<Item = (&str, PathBuf)> {
        let grafted = self.grafted.iter();
        let grafted = grafted.map(|(name, path)| (name.as_str(), self.directory().join(path)));
        std::iter::once((self.dataset.as_str(), self.directory())).chain(grafted)
    }

    /// Has it let other things happen than so far, also while it is in use.
    pub(super) fn restrict(&mut self, restrictions: Restrictions) -> Result<(), MountError> {
        match self.mount.restrict(restrictions) {
            // The system refuses it to ordinary users even if nothing changes.
            Err(_) if self.restrictions == restrictions => {}
            restricted => restricted?,
        }
        self.restrictions = restrictions;
        Ok(())
    }

    /// Adds a file system to those that share it, which goes on being used.
    pub(super) fn graft(&mut self, dataset: &str, nested: Nested) -> Result<(), MountError> {
        let path = nested.path.clone();
        self.mount.graft(nested)?;
        self.grafted.push((dataset.to_owned(), path));
        self.grafted.sort_by_key(|(_, path)| path.components().count());
        Ok(())
    }

    /// Takes away what shares it in directories of which something is so, the deepest first, until
    /// one is in use.
    fn ungraft_those(
        &mut self,
        which: impl Fn(&Path) -> bool,
        in_use: InUse,
        ended: &mut Vec<PlannedMount>,
    ) -> Result<(), Refusal> {
        for graft in (0..self.grafted.len()).rev() {
            let path = self.grafted.get(graft).map(|(_, path)| self.directory().join(path));
            if path.is_some_and(|path| which(&path)) {
                ended.extend(self.ungraft(graft, in_use)?);
            }
        }
        Ok(())
    }

    /// Takes one of those away that share it; answers where it was planned to be.
    fn ungraft(&mut self, graft: usize, in_use: InUse) -> Result<Option<PlannedMount>, Refusal> {
        let Some((_, path)) = self.grafted.get(graft) else { return Ok(None) };
        self.mount.ungraft(path, in_use).map_err(|error| refusal(&error))?;
        let (dataset, path) = self.grafted.remove(graft);
        let mountpoint = self.mountpoint.join(path);
        Ok(Some(PlannedMount { dataset, mountpoint, underneath: Underneath::Hidden }))
    }

    /// Waits for the last answers, unless somebody can still ask, and removes the directory if it
    /// was made for the mount. Tells where it was if somebody still has it.
    fn finish(self, patience: Duration) -> Option<PathBuf> {
        let directory = self.directory();
        let is_nobodys = waited(DETACHED_PATIENCE, || !self.mount.is_reachable());
        if is_nobodys {
            waited(patience, || self.mount.is_finished());
        }
        self.mount.abandon();
        if self.is_made {
            // Somebody may have put something there.
            let _ = MountPlace::remove(&directory);
        }
        (!is_nobodys).then_some(directory)
    }
}

fn refusal(error: &MountError) -> Refusal {
    match error.is_in_use() {
        true => busy(error.directory()),
        false => Refusal { message: error.to_string() },
    }
}

/// Why a mount that is in use is not ended.
pub(super) fn busy(directory: &Path) -> Refusal {
    let message = format!("cannot unmount '{}': pool or dataset is busy", directory.display());
    Refusal { message }
}

/// Whether something is so before patience ends.
fn waited(patience: Duration, is_so: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if is_so() {
            return true;
        }
        if start.elapsed() >= patience {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
