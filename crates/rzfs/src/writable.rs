//! Pools open for writing, with their file systems.

use rzfs_dsl::dataset::{Dataset, DatasetError, DatasetKind, KeyStatus};
use rzfs_dsl::live::{DroppedLog, Environment, LiveDataset, LivePool, NotExported};
use rzfs_dsl::{Pool, PoolError};
use rzfs_format::ObjectId;
use rzfs_format::znode::ZplVersion;
use rzfs_zpl::live::{LiveFileSystem, LiveOptions, UpgradeError, raise_version, replay_volume};
use rzfs_zpl::{FileCaches, FileSystemOptions, ReadAhead, ZplError};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Why a file system cannot be opened for writing.
#[derive(Debug, thiserror::Error)]
pub enum FileSystemError {
    /// The pool's datasets cannot be read.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// There is no such dataset, or it cannot be read.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// It is not a file system, or is damaged.
    #[error(transparent)]
    Files(Box<ZplError>),
}

/// Why the version of a file system is not upgraded.
#[derive(Debug, thiserror::Error)]
pub enum VersionError {
    /// It cannot be opened.
    #[error(transparent)]
    Unopened(Box<FileSystemError>),
    /// It cannot have another version.
    #[error(transparent)]
    UpgradeError(UpgradeError),
    /// The pool cannot be written.
    #[error(transparent)]
    Stopped(NotExported),
}

impl<E: Into<FileSystemError>> From<E> for VersionError {
    fn from(error: E) -> Self {
        Self::Unopened(Box::new(error.into()))
    }
}

impl From<ZplError> for FileSystemError {
    fn from(error: ZplError) -> Self {
        Self::Files(Box::new(error))
    }
}

/// A pool open for writing. It must be exported in the end: dropping it is like a crash, which
/// loses only the changes since the last sync.
pub struct WritablePool {
    live: LivePool,
    environment: Arc<dyn Environment>,
    alternate_root: Option<PathBuf>,
    caches: FileCaches,
    /// `None` if the system has no threads for it.
    read_ahead: Option<Arc<ReadAhead>>,
    file_systems: Mutex<FileSystems>,
}

impl fmt::Debug for WritablePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WritablePool").field("name", &self.live.name()).finish_non_exhaustive()
    }
}

impl WritablePool {
    /// A pool without open file systems.
    pub(crate) fn new(live: LivePool, environment: Arc<dyn Environment>) -> Self {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        let none = |error: &_| tracing::warn!(%error, "nothing is read ahead");
        let read_ahead = ReadAhead::start_by(environment.clock(), threads).inspect_err(none).ok();
        Self {
            live,
            environment,
            alternate_root: None,
            caches: FileCaches::default(),
            read_ahead,
            file_systems: Mutex::default(),
        }
    }

    /// The same pool, with mounts below a directory.
    #[must_use]
    pub fn with_alternate_root(self, alternate_root: Option<PathBuf>) -> Self {
        Self { alternate_root, ..self }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.live.name()
    }

    /// The directory below which its file systems are mounted (`altroot`).
    #[must_use]
    pub fn alternate_root(&self) -> Option<&Path> {
        self.alternate_root.as_deref()
    }

    /// Prefetches for sequential reads of its files, if available.
    #[must_use]
    pub const fn read_ahead(&self) -> Option<&Arc<ReadAhead>> {
        self.read_ahead.as_ref()
    }

    /// The engine.
    #[must_use]
    pub const fn live(&self) -> &LivePool {
        &self.live
    }

    /// The current on-disk state of the pool.
    ///
    /// # Errors
    /// [`PoolError`].
    pub fn view(&self) -> Result<Pool, PoolError> {
        self.live.view()
    }

    /// Opens a file system by name, for any number of concurrent users. Files that were unlinked
    /// but still open when it was last in use are removed first.
    ///
    /// # Errors
    /// [`FileSystemError`].
    pub fn file_system(&self, name: &str) -> Result<Arc<LiveFileSystem>, FileSystemError> {
        let pool = self.view()?;
        let dataset = pool.datasets().open(name)?;
        let mut known = self.known();
        known.forget_superseded(dataset.object());
        if let Some(one) = known.open.get(&dataset.object()) {
            return Ok(Arc::clone(&one.files));
        }
        let live = self.live.open_dataset(&dataset)?;
        let files = match known.take_closed(dataset.object()) {
            Some(files) => {
                files.resume_reclaiming();
                files
            }
            None => self.newly_opened(&pool, &dataset, &live)?,
        };
        let shared = Arc::clone(&files);
        let one = OpenFileSystem { files, dataset: live };
        known.open.insert(dataset.object(), one);
        Ok(shared)
    }

    fn newly_opened(
        &self,
        pool: &Pool,
        dataset: &Dataset,
        live: &Arc<LiveDataset>,
    ) -> Result<Arc<LiveFileSystem>, FileSystemError> {
        let mut reading = FileSystemOptions::of_dataset(dataset, pool.version())?;
        reading.caches = self.caches.clone();
        reading.read_ahead.clone_from(&self.read_ahead);
        let clock = Arc::new(self.environment.clock());
        let options = LiveOptions { clock, ..LiveOptions::new(reading, self.environment.random()) };
        let files = LiveFileSystem::open_dataset(&self.live, live, options)?;
        files.drain_unlinked()?;
        Ok(files)
    }

    /// Upgrades the version of a file system that is not open; on return it is on disk.
    ///
    /// # Errors
    /// [`VersionError`].
    pub fn raise_version(&self, name: &str, version: ZplVersion) -> Result<(), VersionError> {
        let pool = self.view()?;
        let dataset = pool.datasets().open(name)?;
        // Held against concurrent opens and upgrades.
        let known = self.known();
        let live = self.live.open_dataset(&dataset)?;
        let (contents, seed) = (live.generation(), self.environment.random());
        let versions = (pool.version(), version);
        let raised = raise_version(contents.objset(), self.live.engine(), versions, seed);
        raised.map_err(VersionError::UpgradeError)?;
        drop(known);
        self.sync().map_err(VersionError::Stopped)
    }

    /// Replays the intent logs of volumes whose keys are loaded, as far as that is needed: a volume
    /// is in use as soon as its pool is. What is damaged is passed over, and can be had from
    /// [`LivePool::take_dropped_logs`].
    pub fn replay_volumes(&self) {
        let all = match self.datasets() {
            Ok(all) => all,
            Err(error) => return tracing::warn!(%error, "intent logs of volumes stay"),
        };
        for dataset in all {
            if let Err(error) = self.replay_if_volume(&dataset) {
                tracing::warn!(dataset = dataset.name(), %error, "the intent log stays");
                let (dataset, reason) = (dataset.name().to_owned(), error.to_string());
                self.live.note_dropped_log(DroppedLog::Kept { dataset, reason });
            }
        }
    }

    fn datasets(&self) -> Result<Vec<Dataset>, FileSystemError> {
        Ok(self.view()?.datasets().root()?.descendants()?)
    }

    fn replay_if_volume(&self, dataset: &Dataset) -> Result<(), FileSystemError> {
        let is_volume = !dataset.is_inconsistent() && dataset.kind()? == DatasetKind::Volume;
        if is_volume && dataset.key_status()? != KeyStatus::Unavailable {
            replay_volume(&self.live, &self.live.open_dataset(dataset)?)?;
        }
        Ok(())
    }

    fn known(&self) -> MutexGuard<'_, FileSystems> {
        self.file_systems.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases a file system, so that it can be destroyed or opened with other properties. It may
    /// still be in use through a mount that was detached while in use: until that ends, opening it
    /// returns the same instance.
    pub fn close_file_system(&self, name: &str) {
        // If it cannot be found, the next open returns this instance.
        if let Ok(dataset) = self.live.dataset_tree().and_then(|all| all.open(name)) {
            self.known().close(dataset.object());
        }
    }

    /// The same for an open file system, whatever its current name.
    pub fn close_files(&self, files: &Arc<LiveFileSystem>) {
        let mut known = self.known();
        let is_it = |one: &OpenFileSystem| Arc::ptr_eq(&one.files, files);
        let object = known.open.iter().find(|(_, one)| is_it(one)).map(|(object, _)| *object);
        if let Some(object) = object {
            known.close(object);
        }
    }

    /// A file system in use, even if it was released.
    #[must_use]
    pub fn files_in_use(&self, name: &str) -> Option<Arc<LiveFileSystem>> {
        let dataset = self.live.dataset_tree().and_then(|all| all.open(name)).ok()?;
        let known = self.known();
        let open = known.open.get(&dataset.object()).map(|one| Arc::clone(&one.files));
        open.or_else(|| known.closed.get(&dataset.object())?.upgrade())
    }

    /// Writes all changes made so far, and waits for that.
    ///
    /// # Errors
    /// [`NotExported`]: the pool is suspended.
    pub fn sync(&self) -> Result<(), NotExported> {
        self.live.sync().map_err(|_| NotExported { reason: self.live.failure() })
    }

    /// Writes everything and leaves the pool to any host that imports it.
    ///
    /// # Errors
    /// [`NotExported`]: the pool is suspended; its last durable state can be imported with `-f`.
    pub fn export(self) -> Result<(), NotExported> {
        self.close();
        self.live.export()
    }

    /// Marks the pool as destroyed; its contents stay until the devices are reused.
    ///
    /// # Errors
    /// As [`WritablePool::export`].
    pub fn destroy(self) -> Result<(), NotExported> {
        self.close();
        self.live.destroy()
    }

    /// Closes all file systems. Waits for failed devices end.
    fn close(&self) {
        self.live.give_up_waiting();
        for (_, one) in std::mem::take(&mut self.known().open) {
            one.close();
        }
    }
}

/// The file systems of a pool in use. There is at most one [`LiveFileSystem`] per dataset: two
/// would change the same directories without knowing of each other.
#[derive(Default)]
struct FileSystems {
    open: BTreeMap<ObjectId, OpenFileSystem>,
    /// Closed ones that are still in use elsewhere.
    closed: BTreeMap<ObjectId, Weak<LiveFileSystem>>,
}

impl FileSystems {
    fn close(&mut self, object: ObjectId) {
        let Some(one) = self.open.remove(&object) else { return };
        self.closed.retain(|_, files| files.strong_count() > 0);
        self.closed.insert(object, Arc::downgrade(&one.files));
        one.close();
    }

    /// Forgets one whose contents were replaced by a rollback.
    fn forget_superseded(&mut self, object: ObjectId) {
        let is_superseded = |files: &LiveFileSystem| files.objset().is_superseded();
        if self.open.get(&object).is_some_and(|one| is_superseded(&one.files)) {
            self.open.remove(&object);
        }
        let closed = self.closed.get(&object).and_then(Weak::upgrade);
        if closed.is_some_and(|files| is_superseded(&files)) {
            self.closed.remove(&object);
        }
    }

    /// Returns a closed one that is still in use elsewhere. Its object set keeps the dataset from
    /// being destroyed, so the number identifies it.
    fn take_closed(&mut self, object: ObjectId) -> Option<Arc<LiveFileSystem>> {
        self.closed.remove(&object)?.upgrade()
    }
}

/// A file system in use.
struct OpenFileSystem {
    files: Arc<LiveFileSystem>,
    /// Keeps the object set open.
    dataset: Arc<LiveDataset>,
}

impl OpenFileSystem {
    fn close(self) {
        self.files.pause_reclaiming();
        if let Err(error) = self.files.flush_access_times() {
            tracing::warn!(dataset = self.dataset.name(), %error, "times of access are lost");
        }
    }
}
