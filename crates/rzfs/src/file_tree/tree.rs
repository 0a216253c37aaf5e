//! The files of one file system.

use crate::FileError;
use rzfs_dsl::Pool;
use rzfs_dsl::dataset::Dataset;
use rzfs_zpl::{
    ControlTree, DatasetSnapshots, FileCaches, FileSystem, FileSystemOptions, ReadAhead, ZplError,
};
use std::sync::Arc;

/// The files of one file system, live or a snapshot. Clones share everything.
///
/// ```no_run
/// use rzfs::OpenFiles;
/// use std::io::Read;
///
/// let pool = rzfs::PoolOptions::new().device_paths(["garden.img"]).open()?;
/// let notes = pool.file_system("garden/notes@monday")?;
/// for entry in notes.node("/beds")?.entries()? {
///     println!("{}", String::from_utf8_lossy(&entry?.name));
/// }
/// let mut text = String::new();
/// notes.open("/beds/north")?.read_to_string(&mut text)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct FileTree(Arc<Tree>);

#[derive(Debug)]
struct Tree {
    dataset: String,
    live: Arc<FileSystem>,
    /// `None` for a snapshot.
    control: Option<ControlTree>,
}

impl FileTree {
    /// Opens the file system of a dataset of `pool`, according to its properties. With `read_ahead`
    /// sequential reads of a file find the next blocks in memory.
    ///
    /// # Errors
    /// The dataset is not a file system, its key is not loaded, or it is damaged.
    ///
    /// ```no_run
    /// use rzfs::FileTree;
    /// use rzfs::zpl::ReadAhead;
    ///
    /// let pool = rzfs::PoolOptions::new().device_paths(["garden.img"]).open()?;
    /// let seeds = pool.datasets().open("garden/seeds")?;
    /// let tree = FileTree::of_dataset(&pool, &seeds, Some(ReadAhead::start(2)?))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn of_dataset(
        pool: &Pool,
        dataset: &Dataset,
        read_ahead: Option<Arc<ReadAhead>>,
    ) -> Result<Self, FileError> {
        let version = pool.version();
        let caches = FileCaches::default();
        let failed = |error: ZplError| FileError::of_dataset(dataset.name(), error);
        let mut options = FileSystemOptions::of_dataset(dataset, version).map_err(failed)?;
        options.read_ahead.clone_from(&read_ahead);
        options.caches = caches.clone();
        let objset = dataset.open_objset().map_err(|error| failed(error.into()))?;
        let live = Arc::new(FileSystem::open(objset, options).map_err(failed)?);
        let control = live.has_control_directory().then(|| {
            let snapshots = DatasetSnapshots::new(dataset.clone(), version, read_ahead, caches);
            ControlTree::new(Arc::clone(&live), Box::new(snapshots))
        });
        Ok(Self(Arc::new(Tree { dataset: dataset.name().to_owned(), live, control })))
    }

    /// The name of the dataset.
    #[must_use]
    pub fn dataset(&self) -> &str {
        &self.0.dataset
    }

    /// The file system by object numbers.
    #[must_use]
    pub fn file_system(&self) -> &Arc<FileSystem> {
        &self.0.live
    }

    pub(super) fn control(&self) -> Option<&ControlTree> {
        self.0.control.as_ref()
    }
}
