//! Finding and opening pools.

use crate::WritablePool;
use rzfs_blockdev::{Access, OpenOptions};
use rzfs_dsl::Pool;
use rzfs_dsl::dataset::{DatasetError, KeyStatus};
use rzfs_dsl::import::{
    ActivityCheck, Destroyed, DeviceSource, DiscoveredPool, Discovery, HostCheck, ImportError,
    ImportFailure, ImportOptions, LoadVerification, MissingLogs, SelectError,
};
use rzfs_dsl::live::{Attendance, LiveOptions, LivePool, NotWritable, SystemEnvironment};
use rzfs_format::pool_state::PoolState;
use rzfs_tunables::Tunables;
use std::path::Path;
use std::sync::Arc;

/// Why no pool was opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A device cannot be opened.
    #[error(transparent)]
    Device(#[from] rzfs_blockdev::OpenError),
    /// No pool has this name, or several.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// There is no pool on the devices.
    #[error("no pool was found on {0}")]
    NoPool(String),
    /// There are several pools on the devices, and none was named.
    #[error("several pools were found, name one: {0}")]
    SeveralPools(String),
    /// The pool cannot be imported.
    #[error(transparent)]
    Import(#[from] ImportFailure),
    /// The pool can be read, but not written.
    #[error("cannot import '{pool}': {source}")]
    NotWritable {
        /// The pool.
        pool: String,
        /// The reason.
        source: Box<NotWritable>,
    },
    /// A device that the pool needs is read-only.
    #[error(
        "cannot import '{pool}': one or more devices is read only\n{} can only be read.",
        device.path.display()
    )]
    ReadOnly {
        /// The pool.
        pool: String,
        /// The device.
        device: rzfs_blockdev::OpenError,
    },
    /// A device of the pool is being written elsewhere.
    #[error("cannot import '{pool}': pool is busy\n{device}")]
    InUse {
        /// The pool.
        pool: String,
        /// The device, and its writer.
        device: rzfs_blockdev::OpenError,
    },
}

impl OpenError {
    /// The corresponding errno.
    #[must_use]
    pub fn errno(&self) -> i32 {
        const ENOENT: i32 = 2;
        const EIO: i32 = 5;
        const EBUSY: i32 = 16;
        const EROFS: i32 = 30;
        match self {
            Self::Device(error) => error.source.raw_os_error().unwrap_or(EIO),
            Self::Select(error) => error.errno(),
            Self::NoPool(_) | Self::SeveralPools(_) => ENOENT,
            Self::Import(failure) => failure.errno(),
            Self::NotWritable { .. } | Self::ReadOnly { .. } => EROFS,
            Self::InUse { .. } => EBUSY,
        }
    }

    /// Whether a pool that cannot be opened for writing because of this may still be readable.
    #[must_use]
    pub fn allows_read_only(&self) -> bool {
        const EACCES: i32 = 13;
        match self {
            Self::NotWritable { source, .. } => source.allows_read_only(),
            Self::ReadOnly { .. } => true,
            Self::Device(device) => device.errno() == EACCES,
            _ => false,
        }
    }
}

/// Opens pools read-only.
///
/// ```no_run
/// let pool = rzfs::PoolOptions::new().device_paths(["/dev/sdb"]).open()?;
/// for dataset in pool.datasets().root()?.descendants()? {
///     println!("{}", dataset.name());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct PoolOptions {
    sources: Vec<DeviceSource>,
    name: Option<String>,
    destroyed: Destroyed,
    import: ImportOptions,
    attendance: Attendance,
}

impl PoolOptions {
    /// No devices yet, and all checks enabled.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds devices, images, or directories that contain them.
    #[must_use]
    pub fn device_paths<P: AsRef<Path>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        let paths = paths.into_iter().map(|path| path.as_ref().to_owned());
        self.sources.extend(paths.map(DeviceSource::Path));
        self
    }

    /// Adds sources: open devices of any kind, or paths.
    #[must_use]
    pub fn sources(mut self, sources: impl IntoIterator<Item = DeviceSource>) -> Self {
        self.sources.extend(sources);
        self
    }

    /// Selects the pool with this name or guid; without, there must be exactly one.
    #[must_use]
    pub fn pool(mut self, name_or_guid: &str) -> Self {
        self.name = Some(name_or_guid.to_owned());
        self
    }

    /// Includes a destroyed pool, if it is named; opening it for writing revives it.
    #[must_use]
    pub fn destroyed(mut self) -> Self {
        self.destroyed = Destroyed::Only;
        self
    }

    /// Opens the pool even if another system used it last and did not export it.
    #[must_use]
    pub fn force(mut self) -> Self {
        self.import.host_check = HostCheck::Override;
        self
    }

    /// Opens the pool even if its log devices are missing, or its intent logs cannot be read.
    #[must_use]
    pub fn without_logs(mut self) -> Self {
        self.import.missing_logs = MissingLogs::Ignore;
        self
    }

    /// Determines when a pool opened for writing starts to wait for failed devices: as soon as it
    /// is open, or not before it can be mended.
    #[must_use]
    pub fn attendance(mut self, attendance: Attendance) -> Self {
        self.attendance = attendance;
        self
    }

    /// Opens the pool under another name; opening it for writing makes the name permanent.
    #[must_use]
    pub fn renamed(mut self, name: &str) -> Self {
        self.import.name = Some(name.to_owned());
        self
    }

    /// Limits the block cache to this many bytes.
    #[must_use]
    pub fn arc_max(mut self, bytes: u64) -> Self {
        self.import.tunables.zfs_arc_max = bytes;
        self
    }

    /// Tunables of the pool, and of opening it.
    #[must_use]
    pub fn tunables(mut self, tunables: Tunables) -> Self {
        self.import.tunables = tunables;
        self
    }

    /// All other import options.
    #[must_use]
    pub fn with_import(mut self, import: ImportOptions) -> Self {
        self.import = import;
        self
    }

    /// The import options.
    #[must_use]
    pub const fn import(&self) -> &ImportOptions {
        &self.import
    }

    /// Searches the devices. Sources that cannot be opened are in [`Discovery::unopened`].
    #[must_use]
    pub fn discover(&self) -> Discovery {
        Discovery::search(&self.sources, &OpenOptions::new())
    }

    /// Opens the pool.
    ///
    /// # Errors
    /// [`OpenError`]: a device cannot be opened, there is no such pool, or several, or it cannot be
    /// imported.
    pub fn open(&self) -> Result<Pool, OpenError> {
        let found = self.discover();
        if let Some(error) = found.unopened().first() {
            return Err(error.clone().into());
        }
        self.open_among(&found)
    }

    /// Opens the pool among the found ones, regardless of unopened devices.
    ///
    /// # Errors
    /// [`OpenError`]: there is no such pool or several, or it cannot be imported.
    pub fn open_among(&self, found: &Discovery) -> Result<Pool, OpenError> {
        Ok(Pool::import(self.choose(found)?, &self.import)?)
    }

    /// The selected pool among the found ones.
    ///
    /// # Errors
    /// [`OpenError`]: there is no such pool, or several.
    pub fn choose<'f>(&self, found: &'f Discovery) -> Result<&'f DiscoveredPool, OpenError> {
        Ok(match &self.name {
            Some(_) if found.pools().is_empty() => {
                return Err(OpenError::NoPool(self.described()));
            }
            Some(name) => found.select(name, self.destroyed)?,
            None => {
                let is_alive = |state: PoolState| state != PoolState::Destroyed;
                let mut pools = found.pools().iter().filter(|pool| is_alive(pool.state()));
                let first = pools.next().ok_or_else(|| OpenError::NoPool(self.described()))?;
                let others: Vec<_> = pools.map(|pool| pool.name().to_owned()).collect();
                if !others.is_empty() {
                    let names = [vec![first.name().to_owned()], others].concat();
                    return Err(OpenError::SeveralPools(names.join(", ")));
                }
                first
            }
        })
    }

    /// Opens the pool for writing; from then on it belongs to this host.
    ///
    /// # Errors
    /// [`OpenError`]: as for [`PoolOptions::open`], or the pool is not writable, or a device that
    /// it needs is read-only, or another process on this host writes to one.
    pub fn open_writable(&self) -> Result<WritablePool, OpenError> {
        let found = self.discover();
        if let Some(error) = found.unopened().first() {
            return Err(error.clone().into());
        }
        self.open_writable_among(&found)
    }

    /// Opens the pool among the found ones for writing, regardless of unopened devices. A read-only
    /// device then counts as missing, if the pool does not need it.
    ///
    /// # Errors
    /// As [`PoolOptions::open_writable`].
    pub fn open_writable_among(&self, found: &Discovery) -> Result<WritablePool, OpenError> {
        let chosen = self.choose(found)?;
        let name = self.import.name.clone().unwrap_or_else(|| chosen.name().to_owned());
        let writable = self.discover_writable(chosen);
        // Spares and cache devices may belong to another pool.
        let members = chosen.member_paths();
        let unopened = writable.unopened().iter().filter(|device| members.contains(&device.path));
        let (read_only, others): (Vec<_>, Vec<_>) =
            unopened.partition(|device| device.is_read_only());
        match others.first().copied() {
            Some(device) if device.is_in_use() => {
                return Err(OpenError::InUse { pool: name, device: device.clone() });
            }
            Some(error) => return Err(error.clone().into()),
            None => {}
        }
        let rest = writable.pools().iter().find(|pool| pool.guid() == chosen.guid());
        let pool = match read_only.first().copied() {
            None => {
                let rest = rest.ok_or_else(|| OpenError::NoPool(self.described()))?;
                Pool::import(rest, &self.import)?
            }
            Some(device) => self.import_without(chosen, rest)?.ok_or_else(|| {
                OpenError::ReadOnly { pool: name.clone(), device: device.clone() }
            })?,
        };
        let environment = Arc::new(SystemEnvironment::new(self.import.host.clone()));
        let ImportOptions { tunables, missing_logs, .. } = self.import;
        let attendance = self.attendance;
        let options = LiveOptions { tunables, missing_logs, attendance, ..LiveOptions::default() };
        let shared = Arc::clone(&environment);
        let live = LivePool::open(&pool, shared, &options);
        let live =
            live.map_err(|source| OpenError::NotWritable { pool: name, source: Box::new(source) })?;
        Ok(WritablePool::new(live, environment))
    }

    /// Opens the devices of a pool for writing, and examines them again.
    fn discover_writable(&self, chosen: &DiscoveredPool) -> Discovery {
        let devices = self.sources.iter().filter(|one| matches!(one, DeviceSource::Device(_)));
        let paths = chosen.device_paths().into_iter().map(DeviceSource::Path);
        // Devices that were open already are used as they are; their names are not paths.
        let paths = paths.filter(|one| matches!(one, DeviceSource::Path(path) if path.exists()));
        let sources: Vec<_> = devices.cloned().chain(paths).collect();
        Discovery::search(&sources, &OpenOptions::new().access(Access::ReadWrite))
    }

    /// Imports a pool without its read-only devices; `None` if it needs them. It also does if they
    /// are newer than the rest: that state would be lost with the first write.
    fn import_without(
        &self,
        whole: &DiscoveredPool,
        rest: Option<&DiscoveredPool>,
    ) -> Result<Option<Pool>, OpenError> {
        let Some(rest) = rest else { return Ok(None) };
        let rest = Pool::import(rest, &self.import);
        let looking = ImportOptions {
            host_check: HostCheck::Override,
            activity: ActivityCheck::Skip,
            verification: LoadVerification::None,
            ..self.import.clone()
        };
        let Ok(newest) = Pool::import(whole, &looking).map(|pool| pool.txg()) else {
            return Ok(Some(rest?));
        };
        match rest {
            Ok(pool) if pool.txg() < newest => Ok(None),
            Err(failure) if lacks_devices(&failure.error) => Ok(None),
            imported => Ok(Some(imported?)),
        }
    }

    fn described(&self) -> String {
        let name = |source: &DeviceSource| match source {
            DeviceSource::Device(device) => device.name().to_owned(),
            DeviceSource::Path(path) => path.display().to_string(),
        };
        self.sources.iter().map(name).collect::<Vec<_>>().join(", ")
    }
}

/// Whether a pool might be importable with more of its devices.
const fn lacks_devices(error: &ImportError) -> bool {
    matches!(
        error,
        ImportError::MissingDevices { .. }
            | ImportError::MissingNewer { .. }
            | ImportError::MissingLogs { .. }
            | ImportError::NoUberblock
    )
}

/// Loads `key` for every encryption root that it fits and whose key is not loaded yet; returns
/// their number.
///
/// # Errors
/// The datasets cannot be listed. A key that does not fit is not an error.
pub fn load_matching_key(pool: &Pool, key: &[u8]) -> Result<usize, DatasetError> {
    let mut loaded = 0;
    for root in encryption_roots(pool)? {
        if root.key_status()? == KeyStatus::Unavailable && root.load_key(key).is_ok() {
            loaded += 1;
        }
    }
    Ok(loaded)
}

/// All encryption roots of a pool, by name.
///
/// # Errors
/// The datasets cannot be listed.
pub fn encryption_roots(pool: &Pool) -> Result<Vec<rzfs_dsl::dataset::Dataset>, DatasetError> {
    let mut roots = Vec::new();
    for dataset in pool.datasets().root()?.descendants()? {
        let root = dataset.encryption_root()?;
        if root.is_some_and(|root| root.name() == dataset.name()) {
            roots.push(dataset);
        }
    }
    Ok(roots)
}
