//! Opens or creates the pool to be served, and plans its mounts.

use super::change;
use super::contents::{Contents, Lifetime, candidates};
use super::mounted::clear_dead_mounts;
use super::mounter::Plans;
use super::plan::{Candidate, Placement, PlannedMount, plan};
use super::socket::FreeSocket;
use crate::daemon::{Completeness, Daemon};
use crate::error::{ServeError, Unmountable};
use crate::keys;
use crate::protocol::Pair;
use crate::request::{
    Access, Choice, CreateRequest, ImportRequest, KeyLoading, MountOptions, MountRequest, NamedKey,
};
use crate::starter::{Notice, Starter};
use rzfs::setting::PoolSetting;
use rzfs::{Pool, PoolOptions};
use rzfs_dsl::import::{DeviceSource, Discovery};
use rzfs_dsl::live::{Attendance, Event};
use rzfs_fuse::CoveredContents;
use std::path::PathBuf;

/// An open pool, and its daemon.
pub(super) struct Opened {
    pub(super) daemon: Daemon,
    pub(super) contents: Contents,
    pub(super) place: Place,
    /// Its first event.
    pub(super) event: &'static str,
}

/// The mounts of a pool and their options.
pub(super) struct Place {
    pub(super) options: MountOptions,
    pub(super) placement: Placement,
    pub(super) lifetime: Lifetime,
    /// The chosen file systems; `None` for none.
    choice: Option<Choice>,
    keys: Vec<NamedKey>,
    key_loading: KeyLoading,
    /// Whether having nothing to mount is an error.
    expects_mounts: bool,
}

/// `rzfs mount`.
pub(super) fn mount(
    request: &MountRequest,
    starter: &mut dyn Starter,
) -> Result<Opened, ServeError> {
    let mut options = PoolOptions::new()
        .device_paths(&request.devices)
        .attendance(Attendance::Later)
        .tunables(request.options.tunables);
    if let Some(pool) = &request.pool {
        options = options.pool(pool);
    }
    if request.force {
        options = options.force();
    }
    let found = options.discover();
    for error in found.unopened() {
        starter.hear(Notice::Unopened(error));
    }
    let chosen = options.choose(&found)?;
    let mut socket = FreeSocket::of_pool_after_mounts(chosen.name())?;
    if request.options.access == Access::ReadWrite {
        socket = socket.for_writing(chosen.guid())?;
    }
    let daemon = socket.bind()?;
    let contents = opened(&options, &found, request.options.access, starter)?;
    let placement = match &request.directory {
        Some(directory) => Placement::Directory(directory.clone()),
        None => Placement::Properties { root: None },
    };
    let place = Place {
        options: request.options.clone(),
        placement,
        lifetime: Lifetime::Mounts,
        choice: Some(request.choice),
        keys: request.keys.clone(),
        key_loading: request.key_loading,
        expects_mounts: true,
    };
    Ok(Opened { daemon, contents, place, event: "pool_import" })
}

/// `zpool create`.
pub(super) fn create(
    request: &CreateRequest,
    starter: &mut dyn Starter,
) -> Result<Opened, ServeError> {
    let plan = request.plan()?;
    for feature in &plan.properties().incompatible {
        starter.hear(Notice::Incompatible(feature));
    }
    let socket = FreeSocket::of_pool(plan.name())?;
    clear_dead_mounts(plan.name());
    request.check_mount_point(&plan)?;
    let daemon = socket.bind()?;
    let root = plan.properties().alternate_root.clone();
    let cache_file = plan.properties().cache_file.clone();
    let contents = Contents::writing(plan.create()?)?.with_cache_file(cache_file);
    let place = Place::of_import(root, true);
    Ok(Opened { daemon, contents, place, event: "pool_create" })
}

/// `zpool import`.
pub(super) fn import(
    request: &ImportRequest,
    starter: &mut dyn Starter,
) -> Result<Opened, ServeError> {
    let options = request.options();
    let found = options.discover();
    let chosen = options.choose(&found)?;
    let name = request.new_name.clone().unwrap_or_else(|| chosen.name().to_owned());
    let mut socket = FreeSocket::of_pool(&name)?;
    if request.access == Access::ReadWrite {
        socket = socket.for_writing(chosen.guid())?;
    }
    let daemon = socket.bind()?;
    let contents = opened(&options, &found, request.access, starter)?;
    let contents =
        contents.below(request.alternate_root.clone()).with_cache_file(request.cache_file.clone());
    if let Err(error) = set_properties(&contents, &name, &request.properties) {
        contents.release();
        return Err(error);
    }
    contents.log(Event::Command { line: request.command.clone(), user: user() });
    let mut place = Place::of_import(request.alternate_root.clone(), request.mounts);
    place.options.access = request.access;
    place.options.temporary = request.temporary;
    place.key_loading = request.key_loading;
    Ok(Opened { daemon, contents, place, event: "pool_import" })
}

/// Sets the properties of an import on a writable pool.
fn set_properties(contents: &Contents, name: &str, properties: &[Pair]) -> Result<(), ServeError> {
    let Contents::Writing(pool, _) = contents else { return Ok(()) };
    for (property, word) in properties {
        let setting = PoolSetting::parse(property, word)
            .map_err(|source| ServeError::Setting { pool: name.to_owned(), source })?;
        change::set_on(pool, property, setting)
            .map_err(|source| ServeError::Change { pool: name.to_owned(), source })?;
    }
    Ok(())
}

fn user() -> u64 {
    rustix::process::geteuid().as_raw().into()
}

impl Place {
    /// Mounts of an imported pool: as its properties say, for all users if possible.
    fn of_import(root: Option<PathBuf>, mounts: bool) -> Self {
        let is_root = rustix::process::geteuid().is_root();
        Self {
            options: MountOptions { allow_other: is_root, ..MountOptions::default() },
            placement: Placement::Properties { root },
            lifetime: Lifetime::Import,
            choice: mounts.then_some(Choice::Automatic),
            keys: Vec::new(),
            key_loading: KeyLoading::Files,
            expects_mounts: false,
        }
    }
}

/// Opens a pool.
fn opened(
    options: &PoolOptions,
    found: &Discovery,
    access: Access,
    starter: &mut dyn Starter,
) -> Result<Contents, ServeError> {
    match access {
        Access::ReadOnly => {
            let pool = options.open_among(found)?;
            if !pool.unreplayed_logs()?.is_empty() {
                starter.hear(Notice::UnreplayedLogs { pool: pool.name(), txg: pool.txg() });
            }
            Ok(Contents::reading(pool))
        }
        Access::ReadWrite => {
            let pool = options.open_writable_among(found)?;
            for log in pool.live().take_dropped_logs() {
                starter.hear(Notice::DroppedLog(&log));
            }
            Ok(Contents::writing(pool)?)
        }
    }
}

/// The planned mounts whose keys are available.
pub(super) fn planned(
    contents: &Contents,
    place: &Place,
    starter: &mut dyn Starter,
) -> Result<Plans, ServeError> {
    let nothing = Plans { mounts: Vec::new(), completeness: Completeness::Complete };
    let Some(choice) = place.choice else { return Ok(nothing) };
    let pool = contents.view()?;
    keys::load_named(&pool, &place.keys)?;
    let candidates = candidates(pool.datasets())?;
    let planned = match (&place.options.snapshot, &place.placement) {
        (Some(snapshot), Placement::Directory(directory)) => {
            let dataset = pool.datasets().open(snapshot)?.name().to_owned();
            let (mountpoint, underneath) = (directory.clone(), CoveredContents::Hidden);
            vec![PlannedMount::new(dataset, mountpoint, underneath)]
        }
        _ => plan(pool.name(), &candidates, &place.placement, choice),
    };
    let temporary = place.options.temporary;
    let planned = planned.into_iter().map(|plan| PlannedMount { temporary, ..plan }).collect();
    let planned = with_keys(&pool, planned, place, starter)?;
    if planned.mounts.is_empty() && place.expects_mounts {
        let reason = unmountable(pool.name(), &candidates);
        return Err(ServeError::NothingToMount { pool: pool.name().to_owned(), reason });
    }
    Ok(planned)
}

/// Why the root file system of a pool is not mounted.
fn unmountable(pool: &str, candidates: &[Candidate]) -> Unmountable {
    match candidates.iter().find(|one| one.name == pool) {
        Some(root) if root.canmount != "on" => Unmountable::CanMount(root.canmount.clone()),
        Some(root) => Unmountable::MountPoint(root.mountpoint.clone()),
        None => Unmountable::Missing,
    }
}

/// Leaves out file systems without a key.
fn with_keys(
    pool: &Pool,
    planned: Vec<PlannedMount>,
    place: &Place,
    starter: &mut dyn Starter,
) -> Result<Plans, ServeError> {
    let Place { key_loading, lifetime, .. } = *place;
    let mut possible = Vec::new();
    let mut completeness = Completeness::Complete;
    let mut refused = Vec::new();
    for mount in planned {
        let dataset = pool.datasets().open(&mount.dataset)?;
        let root = dataset.encryption_root()?;
        let root = root.map(|root| root.name().to_owned());
        let is_refused = root.as_ref().is_some_and(|root| refused.contains(root));
        if !is_refused && keys::obtain(&dataset, key_loading, starter)? {
            possible.push((dataset, mount));
        } else {
            // An import without `-l` does not expect them.
            if key_loading != KeyLoading::Nothing {
                starter.hear(Notice::LeftOut(&mount.dataset));
                // `rzfs mount` takes what is available; an import with keys wants everything.
                if lifetime == Lifetime::Import {
                    completeness = Completeness::Partial;
                }
            }
            refused.extend(root);
        }
    }
    Ok(Plans { mounts: possible, completeness })
}

impl ImportRequest {
    /// The options to find and open the pool.
    fn options(&self) -> PoolOptions {
        let mut options = match self.devices.as_slice() {
            [] => PoolOptions::new().sources(DeviceSource::defaults()),
            devices => PoolOptions::new().device_paths(devices),
        };
        options = options.pool(&self.pool).attendance(Attendance::Later).tunables(self.tunables);
        if self.destroyed {
            options = options.destroyed();
        }
        if self.force {
            options = options.force();
        }
        if self.missing_logs {
            options = options.without_logs();
        }
        match &self.new_name {
            Some(name) => options.renamed(name),
            None => options,
        }
    }
}
