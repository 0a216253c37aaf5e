//! Makes the mounts of a pool.

mod restrictions;

use super::contents::Lifetime;
use super::dataset_mount::{DatasetMount, Graft};
use super::fixed::ReadOnlyFileSystems;
use super::plan::{Placement, PlannedMount, Site};
use super::refusal::SUSPENDED;
use super::snapshots::LiveSnapshots;
use super::table::MountTable;
use crate::daemon::Completeness;
use crate::error::NotMounted;
use crate::protocol::Temporary;
use crate::request::MountOptions;
use rzfs::WritablePool;
use rzfs_dsl::dataset::property::{DatasetProperty, PropertyValue};
use rzfs_dsl::dataset::{Dataset, DatasetError};
use rzfs_fuse::{
    Access, Connections, CoveredContents, LATENCY_DEVICE, LeftOut, Mount, MountPlace, Nested,
    Opens, PlaceError, Wakefulness,
};
use rzfs_zpl::{
    CONTROL_NAME, ControlTree, DatasetSnapshots, FileCaches, FileSystem, FileSystemOptions, Files,
    ReadAhead, SnapshotSource, ZplError,
};
use std::any::Any;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The environment variable that overrides [`LATENCY_DEVICE`], the device that keeps processors
/// awake under load; if empty they may sleep.
const LATENCY_VARIABLE: &str = "RZFS_LATENCY_DEVICE";

/// The property that enables checks on open, with the value `checked`: the kernel asks before every
/// open, or before none.
pub(super) const OPEN_PROPERTY: &str = "rzfs:open";

/// How long to wait for the removal of a directory that will be mounted on again.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(5);

/// A file system with its plan.
pub(super) type Planned = (Dataset, PlannedMount);

/// The mounts to be made.
pub(super) struct Plans {
    pub(super) mounts: Vec<Planned>,
    /// Whether these are all that were requested.
    pub(super) completeness: Completeness,
}

/// How file systems are nested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Nesting {
    /// Each has its own mount.
    Mounts,
    /// They share the outermost one's mount.
    Grafts,
}

impl Nesting {
    /// Only root can mount on any mount. `fusermount3` acts for its user as root, whom the kernel
    /// keeps out of a mount closed to all but its owner; and it only mounts where this user may
    /// write, so neither in a read-only file system nor on directories of others.
    fn possible() -> Self {
        match rustix::process::geteuid().is_root() {
            true => Self::Mounts,
            false => Self::Grafts,
        }
    }
}

/// The common state of all mounts of a pool.
#[derive(Debug)]
pub(super) struct Mounter {
    pool_version: u64,
    /// The pool, if it is open for writing.
    writable: Option<Weak<WritablePool>>,
    read_ahead: Option<Arc<ReadAhead>>,
    caches: FileCaches,
    threads: usize,
    wakefulness: Option<Arc<Wakefulness>>,
    options: MountOptions,
    placement: Placement,
    lifetime: Lifetime,
    nesting: Nesting,
    /// The connections of all mounts that it has made.
    connections: Connections,
    /// The file systems of a read-only pool.
    fixed: ReadOnlyFileSystems,
    while_mounted: Weak<dyn Any + Send + Sync>,
}

impl Mounter {
    /// Mounts hold `while_mounted` as long as they last.
    pub(super) fn new(
        pool_version: u64,
        writable: Option<&Arc<WritablePool>>,
        (options, placement, lifetime): (&MountOptions, &Placement, Lifetime),
        while_mounted: &Arc<dyn Any + Send + Sync>,
    ) -> Result<Self, Box<ZplError>> {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        let read_ahead = match writable {
            Some(pool) => pool.read_ahead().cloned(),
            None => Some(ReadAhead::start(threads).map_err(Box::new)?),
        };
        Ok(Self {
            pool_version,
            writable: writable.map(Arc::downgrade),
            read_ahead,
            caches: FileCaches::default(),
            threads,
            wakefulness: wakefulness(),
            options: options.clone(),
            placement: placement.clone(),
            lifetime,
            nesting: Nesting::possible(),
            connections: Connections::default(),
            fixed: ReadOnlyFileSystems::default(),
            while_mounted: Arc::downgrade(while_mounted),
        })
    }

    /// The file systems of a read-only pool.
    pub(super) const fn fixed(&self) -> &ReadOnlyFileSystems {
        &self.fixed
    }

    pub(super) const fn placement(&self) -> &Placement {
        &self.placement
    }

    /// The default temporary options of its mounts.
    pub(super) const fn temporary(&self) -> Temporary {
        self.options.temporary
    }

    /// Whether the pool waits for its devices.
    fn is_suspended(&self) -> bool {
        let pool = self.writable.as_ref().and_then(Weak::upgrade);
        pool.is_some_and(|pool| pool.live().is_suspended())
    }

    /// A token that keeps the process alive while mounts come and go: the last one may be ended to
    /// be remade with others in it.
    pub(super) fn keep(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.while_mounted.upgrade()
    }

    /// The connections of all mounts that it has made.
    pub(super) const fn connections(&self) -> &Connections {
        &self.connections
    }

    pub(super) const fn nesting(&self) -> Nesting {
        self.nesting
    }

    /// Makes planned mounts in order, besides the existing ones. Returns the failures.
    pub(super) fn mount_all(&self, planned: &[Planned], table: &mut MountTable) -> Vec<NotMounted> {
        let (planned, among_snapshots): (Vec<_>, Vec<_>) =
            planned.iter().partition(|(_, plan)| !self.is_among_snapshots(plan));
        let refused = |(_, plan): &Planned| {
            NotMounted::as_of(&plan.dataset)(
                "its mount point is in a directory for snapshots (.zfs)",
            )
        };
        let mut failures: Vec<_> = among_snapshots.into_iter().map(refused).collect();
        let mut new: Vec<&PlannedMount> = Vec::new();
        for &one in &planned {
            if self.nesting == Nesting::Grafts {
                // It was mounted with its parent, or not at all.
                if new.iter().any(|outer| outer.surrounds(&one.1)) {
                    continue;
                }
                if let Some(outer) = table.around_mut(&one.1.mountpoint) {
                    failures.extend(self.add(one, outer).err());
                    continue;
                }
            }
            new.push(&one.1);
            let inside =
                planned.iter().copied().filter(|other| one.1.surrounds(&other.1)).collect();
            match self.mount(one, inside, table, &mut failures) {
                Ok(mount) => table.add(mount),
                Err(failure) => failures.push(failure),
            }
        }
        failures
    }

    /// Whether the pool has chosen a place in a directory `.zfs`, where file systems show their
    /// snapshots: nothing takes the place of these.
    fn is_among_snapshots(&self, plan: &PlannedMount) -> bool {
        let named = match &self.placement {
            _ if plan.site == Site::Named => return false,
            Placement::Directory(directory) => Some(directory),
            Placement::Properties { root } => root.as_ref(),
        };
        let chosen = named.and_then(|named| plan.mountpoint.strip_prefix(named).ok());
        let chosen = chosen.unwrap_or(&plan.mountpoint);
        chosen
            .components()
            .any(|component| component.as_os_str().as_encoded_bytes() == CONTROL_NAME)
    }

    /// Mounts a file system; `inside` are the ones to go below it. Grafts that fail are added to
    /// `failures`. The directory is removed again if it was made in vain.
    fn mount(
        &self,
        planned: &Planned,
        inside: Vec<&Planned>,
        table: &mut MountTable,
        failures: &mut Vec<NotMounted>,
    ) -> Result<DatasetMount, NotMounted> {
        let (dataset, plan) = planned;
        let name = dataset.name();
        let mut place = self.place(plan, table).map_err(NotMounted::at_place(name))?;
        if table.removals().has(place.path()) {
            if !table.removals().settle(place.path(), REMOVAL_PATIENCE) {
                let reason = "the directory of its last mount is about to be removed";
                return Err(NotMounted::as_of(name)(reason));
            }
            place = self.place(plan, table).map_err(NotMounted::at_place(name))?;
        }
        let mounted = self.mount_at(&place, planned, inside, table, failures);
        if mounted.is_err()
            && let Some(made) = place.made()
        {
            table.removals().remove(made, REMOVAL_PATIENCE);
        }
        mounted
    }

    /// The same on a directory that is held open.
    fn mount_at(
        &self,
        place: &MountPlace,
        (dataset, plan): &Planned,
        inside: Vec<&Planned>,
        table: &mut MountTable,
        failures: &mut Vec<NotMounted>,
    ) -> Result<DatasetMount, NotMounted> {
        let name = dataset.name();
        let is_respected = plan.underneath == CoveredContents::Respected;
        if is_respected && !place.is_empty().map_err(NotMounted::at_place(name))? {
            return Err(NotMounted::NotEmpty(plan.mountpoint.clone()));
        }
        let opened = self.open(dataset, plan.temporary);
        let (file_system, control) = opened.map_err(NotMounted::as_of(name))?;
        let sharing = if self.nesting == Nesting::Grafts { &inside[..] } else { &[] };
        let others = sharing.iter().map(|(dataset, plan)| (dataset, plan.temporary));
        let restrictions = self
            .restrictions((dataset, plan.temporary), others)
            .map_err(NotMounted::as_of(name))?;
        let opens = opens(dataset, sharing).map_err(NotMounted::as_of(name))?;
        let is_changed = file_system.live().is_some() && !restrictions.read_only;
        let mut options = rzfs_fuse::MountOptions {
            access: if self.options.allow_other { Access::Everyone } else { Access::Owner },
            restrictions,
            opens,
            threads: self.threads,
            wakefulness: self.wakefulness.clone(),
            connections: self.connections.clone(),
            while_mounted: self.while_mounted.upgrade(),
            ..rzfs_fuse::MountOptions::new(name)
        };
        let (mut grafted, mut reports) = (Vec::new(), Vec::new());
        match self.nesting {
            // In a writable file system the directories are created.
            Nesting::Mounts if is_changed => {}
            Nesting::Mounts => options.mount_points = next_below(plan, &inside),
            Nesting::Grafts => {
                for (dataset, inner) in inside {
                    match self.nested(dataset, inner, &plan.mountpoint) {
                        Ok(nested)
                            if grafted.iter().any(|one: &Nested| one.path == nested.path) =>
                        {
                            let taken = "another one is mounted there";
                            failures.push(NotMounted::as_of(&inner.dataset)(taken));
                        }
                        Ok(nested) => {
                            reports.push(Graft {
                                dataset: dataset.name().to_owned(),
                                path: nested.path.clone(),
                                site: inner.site,
                                temporary: inner.temporary,
                            });
                            grafted.push(nested);
                        }
                        Err(failure) => failures.push(failure),
                    }
                }
            }
        }
        let is_left = file_system.live().is_some_and(|live| table.is_still_used_with(live));
        if self.nesting == Nesting::Mounts && is_left && self.is_suspended() {
            // It may need writing first.
            return Err(NotMounted::as_of(name)(SUSPENDED));
        }
        // Even for read-only use: it may become writable later, in a mount that stays.
        let again = match (self.nesting, file_system.live()) {
            (Nesting::Mounts, Some(_)) => table.attach_again(&file_system, place, &options),
            _ => None,
        };
        let (mount, left_out) = match again {
            Some(mount) => (mount, Vec::new()),
            None => {
                let files = file_system.clone();
                let made = Mount::with_nested(file_system, control, grafted, place, &options)
                    .map_err(NotMounted::as_of(name))?;
                // Only now: if it fails here others keep it.
                table.cut_off_others(&files, &options);
                made
            }
        };
        for LeftOut { path, error } in left_out {
            let Some(out) = reports.iter().position(|graft| graft.path == path) else { continue };
            let graft = reports.remove(out);
            let directory = plan.mountpoint.join(path);
            failures.push(NotMounted::inside(&graft.dataset, directory, error.kind(), error));
        }
        Ok(DatasetMount {
            dataset: name.to_owned(),
            mountpoint: plan.mountpoint.clone(),
            mount,
            restrictions,
            site: plan.site,
            temporary: plan.temporary,
            grafted: reports,
            made: place.made(),
        })
    }

    /// The directory to mount on.
    ///
    /// Importing a pool implies trust in its mount points, but not in the contents of its file
    /// systems: within mounts, and below a directory named by the user, no links are followed.
    fn place(&self, plan: &PlannedMount, table: &MountTable) -> Result<MountPlace, PlaceError> {
        let outside = || PlaceError::Outside(plan.mountpoint.clone());
        let below = |above: &Path| plan.mountpoint.strip_prefix(above).map_err(|_| outside());
        if let Some(outer) = table.around(&plan.mountpoint) {
            return MountPlace::within(outer.mount.directory(), below(&outer.mountpoint)?);
        }
        let named = match &self.placement {
            _ if plan.site == Site::Named => &plan.mountpoint,
            Placement::Directory(directory) => directory,
            Placement::Properties { root: Some(root) } => root,
            Placement::Properties { root: None } => return MountPlace::on_host(&plan.mountpoint),
        };
        let base = MountPlace::named(named)?;
        let below = below(named)?;
        if below.as_os_str().is_empty() {
            return Ok(base);
        }
        MountPlace::within(base.path(), below)
    }

    /// Whether a file system can share an existing mount without changing the mount's options.
    pub(super) fn fits(&self, (dataset, plan): &Planned, outer: &DatasetMount) -> bool {
        let is = |property, value| dataset.text(property).is_ok_and(|text| text == value);
        let opens_fit =
            outer.mount.opens() == Opens::Checked || !opens_checked(dataset).unwrap_or(false);
        let restrictions_fit = self.restrictions_of(dataset, plan.temporary).is_ok_and(|inner| {
            // What is only read is so in every mount.
            let read_only = self.writable.is_none() || inner.read_only;
            (!outer.restrictions.read_only || read_only)
                && (outer.restrictions.no_devices || !inner.no_devices)
                && (outer.restrictions.no_set_id || !inner.no_set_id)
        });
        opens_fit
            && restrictions_fit
            && outer.mount.fits_lists(is(DatasetProperty::AclType, "posix"))
    }

    /// Adds a file system to an existing mount.
    fn add(&self, (dataset, plan): &Planned, outer: &mut DatasetMount) -> Result<(), NotMounted> {
        let nested = self.nested(dataset, plan, &outer.mountpoint)?;
        outer.graft(plan, nested).map_err(|error| {
            NotMounted::inside(dataset.name(), plan.mountpoint.clone(), error.kind(), error)
        })
    }

    /// A file system to be nested in another one's mount.
    fn nested(
        &self,
        dataset: &Dataset,
        plan: &PlannedMount,
        outer: &Path,
    ) -> Result<Nested, NotMounted> {
        let name = dataset.name();
        let opened = self.open(dataset, plan.temporary);
        let (file_system, control) = opened.map_err(NotMounted::as_of(name))?;
        let path = plan.mountpoint.strip_prefix(outer);
        let path = path.map_err(NotMounted::as_of(name))?.to_owned();
        Ok(Nested { path, file_system, control, underneath: plan.underneath })
    }

    /// Opens a file system for its mount, with its `.zfs` unless it is a snapshot.
    pub(super) fn open(
        &self,
        dataset: &Dataset,
        temporary: Temporary,
    ) -> Result<(Files, Option<ControlTree>), Box<dyn Error>> {
        let writable = self.writable.as_ref().filter(|_| !dataset.is_snapshot());
        let (files, snapshots): (Files, Box<dyn SnapshotSource>) = match writable {
            Some(pool) => {
                let name = dataset.name();
                let gone = "the pool is exported";
                let file_system = pool.upgrade().ok_or(gone)?.file_system(name)?;
                let overrides = self.overrides(dataset, temporary)?;
                file_system.change_options(|options| options.overrides = overrides);
                let snapshots = LiveSnapshots::new(
                    pool.clone(),
                    dataset,
                    self.pool_version,
                    self.caches.clone(),
                );
                (file_system.into(), Box::new(snapshots))
            }
            None => {
                let mut options = FileSystemOptions::of_dataset(dataset, self.pool_version)?;
                let read_ahead = self.read_ahead.clone();
                options.read_ahead.clone_from(&read_ahead);
                options.caches = self.caches.clone();
                let file_system = Arc::new(FileSystem::open(dataset.open_objset()?, options)?);
                self.fixed.add(dataset, &file_system);
                let (head, version) = (dataset.clone(), self.pool_version);
                let caches = self.caches.clone();
                let snapshots = DatasetSnapshots::new(head, version, read_ahead, caches);
                (file_system.into(), Box::new(snapshots))
            }
        };
        let control = (!dataset.is_snapshot()).then(|| ControlTree::new(files.clone(), snapshots));
        Ok((files, control))
    }
}

/// Whether opens in a file system are checked.
fn opens_checked(dataset: &Dataset) -> Result<bool, DatasetError> {
    let value = dataset.user_property(OPEN_PROPERTY)?.value;
    Ok(matches!(value, Some(PropertyValue::Text(word)) if word == "checked"))
}

/// Whether opens are checked in a file system or those that share its mount.
fn opens(dataset: &Dataset, inside: &[&Planned]) -> Result<Opens, DatasetError> {
    for one in std::iter::once(dataset).chain(inside.iter().map(|(dataset, _)| dataset)) {
        if opens_checked(one)? {
            return Ok(Opens::Checked);
        }
    }
    Ok(Opens::Unasked)
}

/// The places of the next mounts below a mount: relative paths.
fn next_below(outer: &PlannedMount, inside: &[&Planned]) -> Vec<PathBuf> {
    let is_next = |one: &&&Planned| !inside.iter().any(|between| between.1.surrounds(&one.1));
    let paths = inside.iter().filter(is_next).map(|one| one.1.mountpoint.as_path());
    let relative = paths.filter_map(|path| path.strip_prefix(&outer.mountpoint).ok());
    relative.map(Path::to_owned).collect()
}

/// Keeps processors awake under load, if this user may do that.
fn wakefulness() -> Option<Arc<Wakefulness>> {
    let device = std::env::var_os(LATENCY_VARIABLE).unwrap_or_else(|| LATENCY_DEVICE.into());
    if device.is_empty() {
        return None;
    }
    let started = Wakefulness::start(Path::new(&device));
    let tell =
        |error: &_| tracing::debug!(%error, ?device, "processors may sleep between requests");
    started.inspect_err(tell).ok().map(Arc::new)
}
