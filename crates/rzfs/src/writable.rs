//! Pools that are open for writing, with their file systems.

use rzfs_dsl::dataset::{Dataset, DatasetError, DatasetKind, KeyStatus};
use rzfs_dsl::live::{Environment, LiveDataset, LivePool, NotExported};
use rzfs_dsl::{Pool, PoolError};
use rzfs_format::ObjectId;
use rzfs_zpl::live::{LiveFileSystem, LiveOptions, replay_volume};
use rzfs_zpl::{FileCaches, FileSystemOptions, ZplError};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Why a file system cannot be opened for writing.
#[derive(Debug, thiserror::Error)]
pub enum FileSystemError {
    /// The pool's datasets cannot be read.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// There is no such dataset, or it cannot be read.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// It is no file system, or damaged.
    #[error(transparent)]
    Files(Box<ZplError>),
}

impl From<ZplError> for FileSystemError {
    fn from(error: ZplError) -> Self {
        Self::Files(Box::new(error))
    }
}

/// A pool that is open for writing. It has to be exported in the end: one that is dropped is left
/// as a crash would leave it, which loses what was changed since the last sync and nothing else.
pub struct WritablePool {
    live: LivePool,
    environment: Arc<dyn Environment>,
    alternate_root: Option<PathBuf>,
    caches: FileCaches,
    open: Mutex<BTreeMap<ObjectId, OpenFileSystem>>,
}

impl fmt::Debug for WritablePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WritablePool").field("name", &self.live.name()).finish_non_exhaustive()
    }
}

impl WritablePool {
    /// A pool with no file system open.
    pub(crate) fn new(live: LivePool, environment: Arc<dyn Environment>) -> Self {
        let (caches, open) = (FileCaches::default(), Mutex::default());
        Self { live, environment, alternate_root: None, caches, open }
    }

    /// The same pool, to be mounted below a directory.
    #[must_use]
    pub fn with_alternate_root(self, alternate_root: Option<PathBuf>) -> Self {
        Self { alternate_root, ..self }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.live.name()
    }

    /// The directory below which its file systems are to be mounted (`altroot`).
    #[must_use]
    pub fn alternate_root(&self) -> Option<&Path> {
        self.alternate_root.as_deref()
    }

    /// The engine.
    #[must_use]
    pub const fn live(&self) -> &LivePool {
        &self.live
    }

    /// The pool as it is on disk at this moment.
    ///
    /// # Errors
    /// [`PoolError`].
    pub fn view(&self) -> Result<Pool, PoolError> {
        self.live.view()
    }

    /// A file system by its name, for any number of users at once. Files that were unlinked but
    /// open when it was last in use are removed first.
    ///
    /// # Errors
    /// [`FileSystemError`].
    pub fn file_system(&self, name: &str) -> Result<Arc<LiveFileSystem>, FileSystemError> {
        let pool = self.view()?;
        let dataset = pool.datasets().open(name)?;
        let mut open = self.open_file_systems();
        if let Some(one) = open.get(&dataset.object()) {
            return Ok(Arc::clone(&one.files));
        }
        let live = self.live.open_dataset(&dataset)?;
        let seed = self.environment.random();
        let mut reading = FileSystemOptions::of_dataset(&dataset, pool.version())?;
        reading.caches = self.caches.clone();
        let options = LiveOptions::new(reading, seed);
        let files = LiveFileSystem::open_dataset(&self.live, &live, options)?;
        files.drain_unlinked()?;
        let shared = Arc::clone(&files);
        open.insert(
            dataset.object(),
            OpenFileSystem { name: name.to_owned(), files, _dataset: live },
        );
        Ok(shared)
    }

    /// Replays the intent logs of volumes whose keys are loaded, as far as that is needed: a volume
    /// is in use as soon as its pool is. What is damaged is passed over with a warning.
    pub fn replay_volumes(&self) {
        let all = match self.datasets() {
            Ok(all) => all,
            Err(error) => return tracing::warn!(%error, "intent logs of volumes stay"),
        };
        for dataset in all {
            if let Err(error) = self.replay_if_volume(&dataset) {
                tracing::warn!(dataset = dataset.name(), %error, "the intent log stays");
            }
        }
    }

    fn datasets(&self) -> Result<Vec<Dataset>, FileSystemError> {
        Ok(self.view()?.datasets().root()?.descendants()?)
    }

    fn replay_if_volume(&self, dataset: &Dataset) -> Result<(), FileSystemError> {
        let is_volume = dataset.kind()? == DatasetKind::Volume;
        if is_volume && dataset.key_status()? != KeyStatus::Unavailable {
            replay_volume(&self.live, &self.live.open_dataset(dataset)?)?;
        }
        Ok(())
    }

    fn open_file_systems(&self) -> MutexGuard<'_, BTreeMap<ObjectId, OpenFileSystem>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of a file system, so that it can be destroyed or opened with other properties.
    /// Others may still have it.
    pub fn close_file_system(&self, name: &str) {
        let mut open = self.open_file_systems();
        let object = open.iter().find(|(_, one)| one.name == name).map(|(object, _)| *object);
        if let Some(closed) = object.and_then(|object| open.remove(&object)) {
            closed.close();
        }
    }

    /// Tells file systems that are open the names that they have now; for datasets that were
    /// renamed while in use.
    pub fn rename_file_systems(&self, renamed: impl Fn(&str) -> Option<String>) {
        for one in self.open_file_systems().values_mut() {
            if let Some(name) = renamed(&one.name) {
                one.name = name;
            }
        }
    }

    /// Has everything that was changed so far written, and waits for it.
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

    /// Marks the pool as destroyed; its contents stay until something else is made of the
    /// devices.
    ///
    /// # Errors
    /// As [`WritablePool::export`].
    pub fn destroy(self) -> Result<(), NotExported> {
        self.close();
        self.live.destroy()
    }

    /// Ends the use of all file systems. Nobody waits any more for devices that fail.
    fn close(&self) {
        self.live.give_up_waiting();
        for (_, one) in std::mem::take(&mut *self.open_file_systems()) {
            one.close();
        }
    }
}

/// A file system that is in use.
struct OpenFileSystem {
    name: String,
    files: Arc<LiveFileSystem>,
    /// Keeps the object set open.
    _dataset: Arc<LiveDataset>,
}

impl OpenFileSystem {
    fn close(self) {
        self.files.stop_reclaiming();
        if let Err(error) = self.files.flush_access_times() {
            tracing::warn!(dataset = self.name, %error, "times of access are lost");
        }
    }
}
