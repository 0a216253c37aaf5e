//! The mounts of a pool.

use super::dataset_mount::{DatasetMount, Graft};
use super::left_behind::LeftBehind;
use super::plan::PlannedMount;
use super::still_mounted::{is_stuck, left, refusal};
use crate::protocol::{MountReport, Refusal};
use rzfs_fuse::{
    InUse, MadeDirectory, Mount, MountError, MountOptions, MountPlace, Removals, SystemMounts,
};
use rzfs_zpl::Files;
use rzfs_zpl::live::LiveFileSystem;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long to wait until a mount is unreachable, and for its last replies if it was detached.
const DETACHED_PATIENCE: Duration = Duration::from_millis(500);

/// How long to wait until changes made through a mount are written.
const PATIENCE: Duration = Duration::from_secs(600);

/// How long the removal of directories made for mounts may take; they may be in a mount of a pool
/// that waits for its devices.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(30);
/// The same where waiting must be short.
const FORCED_REMOVAL_PATIENCE: Duration = Duration::from_secs(5);

/// The outcome of ending mounts.
#[derive(Debug, Default)]
pub(super) struct Unmounted {
    /// The former mounts.
    pub(super) ended: Vec<PlannedMount>,
    /// The places of mounts still in use: in a bind mount, or another namespace.
    pub(super) elsewhere: Vec<PathBuf>,
    /// Mounts that cannot be ended, and stay without a server; reasons and advice, line by line.
    pub(super) stuck: Vec<String>,
    /// Why not all have ended.
    pub(super) refused: Option<Refusal>,
}

impl Unmounted {
    fn add(&mut self, End { plans, elsewhere }: End) {
        self.ended.extend(plans);
        self.elsewhere.extend(elsewhere);
    }
}

/// How a mount has ended.
#[derive(Default)]
struct End {
    plans: Vec<PlannedMount>,
    /// Its place, if it is still in use.
    elsewhere: Option<PathBuf>,
}

/// Mounts that are gone.
#[derive(Debug)]
pub(super) struct Forgotten {
    /// The file systems whose mounts were ended from outside.
    pub(super) names: BTreeSet<String>,
    /// The file systems of mounts that are no longer in use, and not mounted again.
    pub(super) files: Vec<Arc<LiveFileSystem>>,
}

/// All mounts of a pool, in the order of mounting.
#[derive(Debug, Default)]
pub(super) struct MountTable {
    mounts: Vec<DatasetMount>,
    left_behind: Vec<LeftBehind>,
    removals: Removals,
    door: Admission,
}

/// Timeouts for a mount that has ended.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// Until it is unreachable.
    until_unreachable: Duration,
    /// Until the directory made for it is removed.
    removal: Duration,
    /// For its last replies.
    answers: Duration,
}

/// Whether new mounts are admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Admission {
    #[default]
    Open,
    /// All mounts have ended, as the pool is about to be closed.
    Closed,
}

impl MountTable {
    pub(super) fn add(&mut self, mut mount: DatasetMount) {
        let directory = mount.directory();
        for earlier in self.left_behind.iter_mut().filter(|one| one.directory == directory) {
            mount.made = mount.made.take().or(earlier.made.take());
        }
        self.mounts.push(mount);
    }

    /// Admits no more mounts.
    pub(super) fn close(&mut self) {
        self.door = Admission::Closed;
    }

    /// Admits mounts again.
    pub(super) fn reopen(&mut self) {
        self.door = Admission::Open;
    }

    /// Whether the pool is about to be closed.
    pub(super) fn is_closed(&self) -> bool {
        self.door == Admission::Closed
    }

    pub(super) fn is_empty(&self) -> bool {
        self.alive().next().is_none()
    }

    fn alive(&self) -> impl Iterator<Item = &DatasetMount> {
        self.mounts.iter().filter(|one| !one.mount.is_finished())
    }

    /// The mounts, without those unmounted from outside.
    pub(super) fn reports(&self) -> Vec<MountReport> {
        let mut reports = Vec::new();
        let mounts = system_mounts();
        for one in self.alive().filter(|one| !one.was_unmounted(mounts.as_ref())) {
            let report = |dataset: &str, directory: &Path, temporary| MountReport {
                dataset: dataset.to_owned(),
                mountpoint: directory.to_string_lossy().into_owned(),
                temporary,
            };
            let directory = one.mount.directory();
            reports.push(report(&one.dataset, directory, one.temporary));
            let grafted = one.grafted.iter().map(|Graft { dataset, path, temporary, .. }| {
                report(dataset, &directory.join(path), *temporary)
            });
            reports.extend(grafted);
        }
        reports
    }

    /// The mount of a file system.
    pub(super) fn of_dataset(&self, name: &str) -> Option<&DatasetMount> {
        self.alive().find(|one| one.datasets().any(|dataset| dataset == name))
    }

    /// The mounts of these file systems, mutable.
    pub(super) fn of_datasets_mut(
        &mut self,
        names: &BTreeSet<String>,
    ) -> impl Iterator<Item = &mut DatasetMount> {
        let alive = self.mounts.iter_mut().filter(|one| !one.mount.is_finished());
        alive.filter(|one| one.datasets().any(|name| names.contains(name)))
    }

    /// The innermost mount around a planned place.
    pub(super) fn around(&self, planned: &Path) -> Option<&DatasetMount> {
        let around = self.alive().filter(|one| planned.starts_with(&one.mountpoint));
        around.max_by_key(|one| one.mountpoint.components().count())
    }

    /// The same, mutable.
    pub(super) fn around_mut(&mut self, planned: &Path) -> Option<&mut DatasetMount> {
        let alive = self.mounts.iter_mut().filter(|one| !one.mount.is_finished());
        let around = alive.filter(|one| planned.starts_with(&one.mountpoint));
        around.max_by_key(|one| one.mountpoint.components().count())
    }

    /// The file systems mounted below a planned place.
    pub(super) fn below(&self, planned: &Path) -> impl Iterator<Item = String> {
        let is_below = move |plan: &PlannedMount| {
            plan.mountpoint != planned && plan.mountpoint.starts_with(planned)
        };
        let plans = self.alive().flat_map(DatasetMount::plans);
        plans.filter(is_below).map(|plan| plan.dataset)
    }

    /// Ends the mounts of these file systems and those below, the deepest first, until one is in
    /// use: whole mounts, or grafts.
    pub(super) fn unmount(&mut self, names: &BTreeSet<String>, in_use: InUse) -> Unmounted {
        let places: Vec<PathBuf> = self
            .alive()
            .flat_map(DatasetMount::places)
            .filter(|(name, _)| names.contains(*name))
            .map(|(_, place)| place)
            .collect();
        let is_affected = |directory: &Path| places.iter().any(|one| directory.starts_with(one));
        let mut unmounted = Unmounted::default();
        // The last one is the deepest.
        for position in (0..self.mounts.len()).rev() {
            let refused = match self.mounts.get_mut(position) {
                Some(one) if is_affected(&one.directory()) => {
                    let ended = self.end(position, in_use);
                    ended.map(|end| unmounted.add(end)).map_err(|error| refusal(&error))
                }
                Some(one) => one.ungraft_those(is_affected, in_use, &mut unmounted.ended),
                None => Ok(()),
            };
            if let Err(refusal) = refused {
                unmounted.refused = Some(refusal);
                break;
            }
        }
        unmounted
    }

    /// Ends all mounts, the deepest first, until one is in use. When detaching, mounts that this
    /// process cannot unmount are left behind too.
    pub(super) fn unmount_all(&mut self, in_use: InUse) -> Unmounted {
        let mut unmounted = Unmounted::default();
        let mut stuck: Vec<MountError> = Vec::new();
        for position in (0..self.mounts.len()).rev() {
            match self.end(position, in_use) {
                Ok(end) => unmounted.add(end),
                Err(error) if in_use == InUse::Detach && is_stuck(&error, &stuck) => {
                    stuck.push(error);
                }
                Err(error) => {
                    unmounted.refused = Some(refusal(&error));
                    return unmounted;
                }
            }
        }
        unmounted.stuck = stuck.iter().map(|error| left(error, &stuck)).collect();
        // There are no others any more.
        for one in std::mem::take(&mut self.mounts) {
            self.leave(one);
        }
        unmounted
    }

    /// Ends all mounts that are not in use, the deepest first; returns the ended ones, and errors
    /// for the others.
    pub(super) fn unmount_each(&mut self, in_use: InUse) -> (Vec<PlannedMount>, Vec<String>) {
        let (mut ended, mut refused) = (Vec::new(), Vec::new());
        for position in (0..self.mounts.len()).rev() {
            match self.end(position, in_use) {
                Ok(End { plans, .. }) => ended.extend(plans),
                Err(error) => {
                    refused.push(refusal(&error).message);
                    let Some(one) = self.mounts.get_mut(position) else { continue };
                    if in_use == InUse::Detach {
                        let taken = one.ungraft_those(|_| true, in_use, &mut ended);
                        refused.extend(taken.err().map(|refusal| refusal.message));
                        continue;
                    }
                    for graft in (0..one.grafted.len()).rev() {
                        match one.ungraft(graft) {
                            Ok(plan) => ended.extend(plan),
                            Err(refusal) => refused.push(refusal.message),
                        }
                    }
                }
            }
        }
        (ended, refused)
    }

    /// Leaves a mount that cannot be unmounted; all changes made through it are written.
    fn leave(&mut self, one: DatasetMount) {
        one.mount.write_back();
        let directory = one.directory();
        let files = one.mount.live_file_systems().iter().map(Arc::downgrade).collect();
        let mount = Some(one.mount);
        self.left_behind.push(LeftBehind { mount, directory, made: None, files });
    }

    fn end(&mut self, position: usize, in_use: InUse) -> Result<End, MountError> {
        let Some(one) = self.mounts.get(position) else { return Ok(End::default()) };
        one.mount.request_unmount(in_use)?;
        let one = self.mounts.remove(position);
        let plans = one.plans();
        let patience = match in_use {
            InUse::Refuse => Patience {
                until_unreachable: DETACHED_PATIENCE,
                removal: REMOVAL_PATIENCE,
                answers: PATIENCE,
            },
            InUse::Detach => Patience {
                until_unreachable: DETACHED_PATIENCE,
                removal: FORCED_REMOVAL_PATIENCE,
                answers: DETACHED_PATIENCE,
            },
        };
        let elsewhere = self.finish(one, patience);
        Ok(End { plans, elsewhere })
    }

    /// Renames file systems.
    pub(super) fn rename(&mut self, renamed: impl Fn(&str) -> Option<String>) {
        for one in &mut self.mounts {
            let grafted = one.grafted.iter_mut().map(|graft| &mut graft.dataset);
            for name in std::iter::once(&mut one.dataset).chain(grafted) {
                if let Some(new) = renamed(name) {
                    *name = new;
                }
            }
        }
    }

    /// Forgets mounts that were ended from outside; returns their file systems.
    pub(super) fn forget_finished(&mut self) -> Forgotten {
        let mounts = system_mounts();
        let (ended, alive) = std::mem::take(&mut self.mounts)
            .into_iter()
            .partition::<Vec<_>, _>(|one| one.was_unmounted(mounts.as_ref()));
        self.mounts = alive;
        let names: BTreeSet<_> =
            ended.iter().flat_map(|one| one.datasets().map(str::to_owned)).collect();
        clear_aborted(&ended);
        // One wait for all of them.
        waited(DETACHED_PATIENCE, || ended.iter().all(|one| !one.mount.is_reachable()));
        let patience = Patience {
            until_unreachable: Duration::ZERO,
            removal: FORCED_REMOVAL_PATIENCE,
            answers: Duration::ZERO,
        };
        for one in ended {
            self.finish(one, patience);
        }
        let (gone, left) = std::mem::take(&mut self.left_behind)
            .into_iter()
            .partition::<Vec<_>, _>(|one| !one.is_reachable() && one.is_finished());
        self.left_behind = left;
        self.remove_all(gone.iter().filter_map(|one| one.made.clone()).collect());
        let files = gone.iter().flat_map(|one| &one.files).filter_map(Weak::upgrade);
        let files =
            files.filter(|files| !self.is_mounted(files) && !self.is_still_used_with(files));
        Forgotten { names, files: files.collect() }
    }

    /// Attaches an ended mount of this file system that is still in use to a place: its users, old
    /// and new, then change the same files through one kernel cache. `None` if that is impossible.
    pub(super) fn attach_again(
        &mut self,
        file_system: &Files,
        place: &MountPlace,
        options: &MountOptions,
    ) -> Option<Mount> {
        let attach = |one: &mut LeftBehind| {
            let mount = one.mount.as_mut()?;
            if !mount.is_reachable() || !mount.serves(file_system, options) {
                return None;
            }
            let attached = mount.attach_again(place, options);
            let tell = |error: &_| tracing::debug!(%error, "there will be two of it");
            attached.inspect_err(tell).ok()?;
            // That may have changed while it was not mounted.
            mount.show_snapshot_directories();
            // Elsewhere it may still be in its former place.
            one.made = one.made.take().filter(|made| made.path() == place.path());
            one.mount.take()
        };
        self.left_behind.iter_mut().find_map(attach)
    }

    fn is_mounted(&self, files: &Arc<LiveFileSystem>) -> bool {
        let mut all = self.alive().flat_map(|one| one.mount.live_file_systems());
        all.any(|one| Arc::ptr_eq(&one, files))
    }

    /// Whether an ended mount of this file system is still in use.
    pub(super) fn is_still_used_with(&self, files: &Arc<LiveFileSystem>) -> bool {
        self.left_behind.iter().any(|one| one.is_still_used_with(files))
    }

    /// The ended mounts of a file system that are still in use.
    fn left_with(&self, files: &Arc<LiveFileSystem>) -> impl Iterator<Item = &Mount> {
        let all = self.left_behind.iter().filter(|one| one.is_still_used_with(files));
        all.filter_map(|one| one.mount.as_ref())
    }

    /// Aborts the ended mounts of a file system that are still in use, as far as the system allows.
    pub(super) fn cut_off(&self, files: &Arc<LiveFileSystem>) {
        self.left_with(files).for_each(cut_off);
    }

    /// The same for those with options other than the current ones: the kernel would keep applying
    /// old permissions there. Their changes are written.
    pub(super) fn cut_off_others(&self, file_system: &Files, options: &MountOptions) {
        let Some(live) = file_system.live() else { return };
        for mount in self.left_with(live).filter(|mount| !mount.serves(file_system, options)) {
            mount.write_back();
            cut_off(mount);
        }
    }

    /// Aborts ended mounts whose requests get no answers: this process would wait for them, as the
    /// kernel holds back its memory until their pages are written.
    pub(super) fn cut_off_stuck(&self) {
        let mounts = self.left_behind.iter().filter_map(|one| one.mount.as_ref());
        let reachable = mounts.filter(|mount| mount.is_reachable());
        Mount::stuck_among(reachable).into_iter().for_each(cut_off);
    }

    /// Whether an ended mount is still in use.
    pub(super) fn is_in_use_elsewhere(&self) -> bool {
        self.left_behind.iter().any(LeftBehind::is_reachable)
    }

    /// Waits until ended mounts of these file systems that are no longer in use are done; stops
    /// when a condition no longer holds.
    pub(super) fn wait_for_last_users(
        &self,
        files: &[Arc<LiveFileSystem>],
        while_so: impl Fn() -> bool,
    ) {
        let all = self.left_behind.iter().filter(|one| files.iter().any(|files| one.had(files)));
        let all: Vec<_> = all.collect();
        let is_done = |one: &&LeftBehind| one.is_finished() || one.is_reachable();
        waited(PATIENCE, || all.iter().all(is_done) || !while_so());
    }

    /// Removes the directories made for ended mounts, even those in use in other namespaces:
    /// nothing will respond there any more.
    pub(super) fn remove_directories(&mut self) {
        let made = self.left_behind.iter_mut().filter_map(|one| one.made.take());
        for made in deepest_first(made.collect()) {
            self.removals.remove(made, FORCED_REMOVAL_PATIENCE);
        }
    }

    /// Waits until an ended mount is unreachable, then for its last replies, and removes the
    /// directory if it was made for it. Returns its place if it is still in use.
    fn finish(&mut self, one: DatasetMount, patience: Patience) -> Option<PathBuf> {
        let directory = one.directory();
        let DatasetMount { mount, mut made, .. } = one;
        let is_unreachable = waited(patience.until_unreachable, || !mount.is_reachable());
        if is_unreachable && let Some(made) = made.take() {
            self.remove(made, patience.removal);
        }
        let place = (!is_unreachable).then(|| directory.clone());
        match is_unreachable && waited(patience.answers, || mount.is_finished()) {
            true => mount.abandon(),
            false => {
                let files = mount.live_file_systems().iter().map(Arc::downgrade).collect();
                let mount = Some(mount);
                self.left_behind.push(LeftBehind { mount, directory, made, files });
            }
        }
        place
    }

    /// Removes a directory that was made for a mount, unless an earlier mount there is still in
    /// use.
    fn remove(&mut self, made: MadeDirectory, patience: Duration) {
        let mut earlier = self.left_behind.iter_mut();
        match earlier.find(|one| one.directory == made.path() && one.is_reachable()) {
            Some(earlier) => earlier.made = Some(made),
            None => self.removals.remove(made, patience),
        }
    }

    /// The same for several, without an explicit request.
    fn remove_all(&mut self, made: Vec<MadeDirectory>) {
        for made in deepest_first(made) {
            self.remove(made, FORCED_REMOVAL_PATIENCE);
        }
    }

    /// Pending removals of directories of earlier mounts.
    pub(super) const fn removals(&mut self) -> &mut Removals {
        &mut self.removals
    }
}

/// Sorts directories so that each is empty when those before it are gone.
fn deepest_first(mut made: Vec<MadeDirectory>) -> Vec<MadeDirectory> {
    made.sort_by_key(|made| std::cmp::Reverse(made.path().components().count()));
    made
}

/// Detaches mounts whose connection was aborted from outside.
fn clear_aborted(ended: &[DatasetMount]) {
    if let Err(error) = rzfs_fuse::clear_aborted_mounts(ended.iter().map(|one| &one.mount)) {
        tracing::warn!(%error, "dead mounts stay");
    }
}

fn cut_off(mount: &Mount) {
    if let Err(error) = mount.cut_off() {
        tracing::warn!("{error}");
    }
}

/// The current mounts, if they can be read.
fn system_mounts() -> Option<SystemMounts> {
    let tell = |error: &_| tracing::warn!(%error, "nobody knows what is mounted");
    SystemMounts::now().inspect_err(tell).ok()
}

/// Whether a condition holds before a timeout.
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
