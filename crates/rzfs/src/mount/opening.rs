//! Opening or making the pool that a process is to serve, and what is to be mounted of it.

use super::change;
use super::contents::{Contents, Lifetime, candidates};
use super::keys;
use super::mounted::clear_dead_mounts;
use super::mounter::Plans;
use super::named_key::NamedKey;
use super::plan::{Choice, Placement, PlannedMount, plan};
use super::refusal::failed;
use super::request::{Access, ImportRequest, KeyLoading, MountOptions, MountRequest};
use super::socket::FreeSocket;
use crate::console::{Console, Failure};
use crate::daemon::{Completeness, Daemon};
use crate::source::{Advice, import_failure};
use crate::zpool::create_request::CreateRequest;
use rzfs::protocol::Pair;
use rzfs::setting::PoolSetting;
use rzfs::{OpenError, Pool, PoolOptions};
use rzfs_dsl::import::{DeviceSource, Discovery};
use rzfs_dsl::live::{Attendance, Event, NotWritable};
use rzfs_fuse::Underneath;

/// A pool that is open, and the socket on which it will be answered for.
pub(super) struct Opened {
    pub(super) daemon: Daemon,
    pub(super) contents: Contents,
    pub(super) place: Place,
    /// What to do where this user may not have the directories.
    pub(super) advice: Option<String>,
    /// The event that it begins with.
    pub(super) event: &'static str,
}

/// What is mounted of a pool, and how.
pub(super) struct Place {
    pub(super) options: MountOptions,
    pub(super) placement: Placement,
    pub(super) lifetime: Lifetime,
    /// Which file systems; none without.
    choice: Option<Choice>,
    keys: Vec<NamedKey>,
    key_loading: KeyLoading,
    /// Whether it is an error if there is nothing to mount.
    expects_mounts: bool,
}

/// `rzfs mount`.
pub(super) fn mount(request: &MountRequest, console: &mut Console<'_>) -> Result<Opened, Failure> {
    let mut options =
        PoolOptions::new().device_paths(&request.devices).attendance(Attendance::Later);
    if let Some(pool) = &request.pool {
        options = options.pool(pool);
    }
    if request.force {
        options = options.force();
    }
    if let Some(bytes) = request.options.arc_max {
        options = options.arc_max(bytes);
    }
    let found = options.discover();
    for error in found.unopened() {
        console.complain(error);
    }
    let chosen = options.choose(&found).map_err(failed)?;
    let mut socket = FreeSocket::of_pool(chosen.name(), "mount")?;
    if request.options.access == Access::ReadWrite {
        socket = socket.for_writing(chosen.guid())?;
    }
    let daemon = socket.bind("mount")?;
    let advised = Advice::of_forced("rzfs mount -f");
    let contents = match request.options.access {
        Access::ReadOnly => reading(&options, &found, advised, console)?,
        Access::ReadWrite => writing(&options, &found, advised, "-o ro", console)?,
    };
    let placement = match &request.directory {
        Some(directory) => Placement::Directory(directory.clone()),
        None => Placement::Properties { root: None },
    };
    let advice = request.directory.is_none();
    let advice = advice.then(|| "name a directory: rzfs mount IMAGE DIRECTORY".to_owned());
    let place = Place {
        options: request.options.clone(),
        placement,
        lifetime: Lifetime::Mounts,
        choice: Some(request.choice),
        keys: request.keys.clone(),
        key_loading: request.key_loading,
        expects_mounts: true,
    };
    Ok(Opened { daemon, contents, place, advice, event: "pool_import" })
}

/// `zpool create`.
pub(super) fn create(
    request: &CreateRequest,
    console: &mut Console<'_>,
) -> Result<Opened, Failure> {
    let plan = request.plan(console)?;
    let socket = FreeSocket::of_pool(plan.name(), "create")?;
    clear_dead_mounts(plan.name());
    request.check_mount_point(&plan)?;
    let daemon = socket.bind("create")?;
    let root = plan.properties().alternate_root.clone();
    let cache_file = plan.properties().cache_file.clone();
    let name = plan.name().to_owned();
    let pool = plan.create().map_err(failed)?;
    let contents = Contents::writing(pool).map_err(failed)?.with_cache_file(cache_file);
    // An alternate root is in front of all mount points.
    let advice = root.is_none().then(|| {
        format!(
            "'{name}' was created and is imported: 'zfs set mountpoint=DIRECTORY {name}', then \
             'zfs mount {name}' mounts it ('zpool create -m DIRECTORY' or '-R DIRECTORY' does so \
             at once)"
        )
    });
    let place = Place::of_import(root, true);
    Ok(Opened { daemon, contents, place, advice, event: "pool_create" })
}

/// `zpool import`.
pub(super) fn import(
    request: &ImportRequest,
    console: &mut Console<'_>,
) -> Result<Opened, Failure> {
    let options = request.options();
    let found = options.discover();
    let chosen = options.choose(&found).map_err(failed)?;
    let name = request.new_name.clone().unwrap_or_else(|| chosen.name().to_owned());
    let mut socket = FreeSocket::of_pool(&name, "import")?;
    if request.access == Access::ReadWrite {
        socket = socket.for_writing(chosen.guid())?;
    }
    let daemon = socket.bind("import")?;
    let contents = match request.access {
        Access::ReadOnly => reading(&options, &found, Advice::IMPORT, console)?,
        Access::ReadWrite => writing(&options, &found, Advice::IMPORT, "-o readonly=on", console)?,
    };
    let contents =
        contents.below(request.alternate_root.clone()).with_cache_file(request.cache_file.clone());
    if let Err(failure) = set_properties(&contents, &name, &request.properties) {
        contents.release();
        return Err(failure);
    }
    contents.log(Event::Command { line: request.command.clone(), user: user() });
    let mut place = Place::of_import(request.alternate_root.clone(), request.mounts);
    place.options.access = request.access;
    place.key_loading = request.key_loading;
    Ok(Opened { daemon, contents, place, advice: None, event: "pool_import" })
}

/// Gives a pool that is written the properties that it is imported with.
fn set_properties(contents: &Contents, name: &str, properties: &[Pair]) -> Result<(), Failure> {
    let Contents::Writing(pool, _) = contents else { return Ok(()) };
    let refused = |error: &dyn std::fmt::Display| {
        Failure::Failed(format!("cannot import pool '{name}': {error}"))
    };
    for (property, word) in properties {
        let setting = PoolSetting::parse(property, word).map_err(|error| refused(&error))?;
        change::set_on(pool, property, setting).map_err(|error| refused(&error))?;
    }
    Ok(())
}

fn user() -> u64 {
    rustix::process::geteuid().as_raw().into()
}

impl Place {
    /// Mounts of a pool that stays imported: as its properties say, for everybody if that is
    /// possible.
    fn of_import(root: Option<std::path::PathBuf>, mounts: bool) -> Self {
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

/// Opens a pool read-only.
fn reading(
    options: &PoolOptions,
    found: &Discovery,
    advice: Advice<'_>,
    console: &mut Console<'_>,
) -> Result<Contents, Failure> {
    let pool = options.open_among(found);
    let pool = pool.map_err(|error| Failure::Failed(open_failure(&error, advice)))?;
    if !pool.unreplayed_logs().map_err(failed)?.is_empty() {
        console.complain(format_args!(
            "{}: the intent log was not replayed; this is the pool as of txg {}",
            pool.name(),
            pool.txg()
        ));
    }
    Ok(Contents::reading(pool))
}

/// Opens a pool for writing. `for_reading` is the option with which it is only read.
fn writing(
    options: &PoolOptions,
    found: &Discovery,
    advice: Advice<'_>,
    for_reading: &str,
    console: &mut Console<'_>,
) -> Result<Contents, Failure> {
    let pool = options.open_writable_among(found).map_err(|error| {
        let message = open_failure(&error, advice);
        Failure::Failed(match error.leaves_reading() {
            true => format!("{message}\nThe pool can be imported using '{for_reading}'."),
            false => message,
        })
    })?;
    for log in pool.live().given_up_logs() {
        console.complain(log);
    }
    Contents::writing(pool).map_err(failed)
}

fn open_failure(error: &OpenError, advice: Advice<'_>) -> String {
    match error {
        OpenError::Import(failure) => import_failure(failure, advice),
        OpenError::NotWritable { pool, source } => not_writable(pool, source),
        OpenError::Device(device) if error.leaves_reading() => {
            format!("{device}\nIt can only be read.")
        }
        error => error.to_string(),
    }
}

/// What OpenZFS says about a pool that it can only read.
fn not_writable(pool: &str, reason: &NotWritable) -> String {
    let refused = format!("cannot import '{pool}': unsupported version or feature");
    match reason {
        NotWritable::Features { names } => {
            let features: String = names.iter().map(|name| format!("\t{name}\n")).collect();
            format!(
                "This pool uses the following feature(s) not supported by this system:\n\
                 {features}\
                 All unsupported features are only required for writing to the pool.\n\
                 {refused}"
            )
        }
        reason => format!("cannot import '{pool}': {reason}"),
    }
}

/// What is to be mounted where, as far as its keys are there.
pub(super) fn planned(
    contents: &Contents,
    place: &Place,
    console: &mut Console<'_>,
) -> Result<Plans, Failure> {
    let nothing = Plans { mounts: Vec::new(), completeness: Completeness::Complete };
    let Some(choice) = place.choice else { return Ok(nothing) };
    let pool = contents.view().map_err(failed)?;
    keys::load_named(&pool, &place.keys)?;
    let planned = match (&place.options.snapshot, &place.placement) {
        (Some(snapshot), Placement::Directory(directory)) => {
            let dataset = pool.datasets().open(snapshot).map_err(failed)?.name().to_owned();
            let (mountpoint, underneath) = (directory.clone(), Underneath::Hidden);
            vec![PlannedMount { dataset, mountpoint, underneath }]
        }
        _ => plan(
            pool.name(),
            &candidates(pool.datasets()).map_err(failed)?,
            &place.placement,
            choice,
        ),
    };
    let planned = with_keys(&pool, planned, place, console)?;
    if planned.mounts.is_empty() && place.expects_mounts {
        let name = pool.name();
        return Err(Failure::Failed(format!("cannot mount '{name}': no file system to mount")));
    }
    Ok(planned)
}

/// Leaves out what has no key.
fn with_keys(
    pool: &Pool,
    planned: Vec<PlannedMount>,
    place: &Place,
    console: &mut Console<'_>,
) -> Result<Plans, Failure> {
    let Place { key_loading, lifetime, .. } = *place;
    let mut possible = Vec::new();
    let mut completeness = Completeness::Complete;
    let mut refused = Vec::new();
    for mount in planned {
        let dataset = pool.datasets().open(&mount.dataset).map_err(failed)?;
        let root = dataset.encryption_root().map_err(failed)?;
        let root = root.map(|root| root.name().to_owned());
        let is_refused = root.as_ref().is_some_and(|root| refused.contains(root));
        if !is_refused && keys::obtain(&dataset, key_loading, console)? {
            possible.push((dataset, mount));
        } else {
            // Nobody expects them of an import without `-l`.
            if key_loading != KeyLoading::Nothing {
                let name = &mount.dataset;
                console.complain(format_args!("'{name}' is left out: its key is not loaded"));
                // Who mounts a pool takes what can be had; who imports one with its keys wants all.
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
    /// How to find and open the pool.
    fn options(&self) -> PoolOptions {
        let mut options = match self.devices.as_slice() {
            [] => PoolOptions::new().sources(DeviceSource::defaults()),
            devices => PoolOptions::new().device_paths(devices),
        };
        options = options.pool(&self.pool).attendance(Attendance::Later);
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
