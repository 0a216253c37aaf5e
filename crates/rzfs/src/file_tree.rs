//! Files of a dataset by their paths.
//!
//! ```text
//! FileTree ── node(path) ──> FileNode ── attributes, xattrs, ACL, link target
//!                                │ ├── open ──────> File: contents at offsets, data and holes
//!                                │ ├── entries ───> Entries: what is in a directory
//!                                └───── walk ─────> Walk: everything below a directory
//! ```
//! Paths begin at the root of the file system, which is what an absolute symbolic link begins at
//! too. `.zfs/snapshot/NAME` leads into the snapshots, as in a mounted file system. Other file
//! systems of the pool are trees of their own: there are no mount points in a tree.

mod entries;
mod error;
mod node;
mod path;
mod walk;

pub use entries::{Entries, Entry};
pub use error::{FileError, FileProblem, ShownPath};
pub use node::FileNode;
pub use walk::{Walk, WalkEntry};

use crate::file::File;
use path::LastLink;
use rzfs_dsl::Pool;
use rzfs_dsl::dataset::Dataset;
use rzfs_zpl::{
    ControlTree, DatasetSnapshots, FileCaches, FileSystem, FileSystemOptions, ReadAhead, Volume,
    ZplError,
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
    /// None in a snapshot.
    control: Option<ControlTree>,
}

impl FileTree {
    /// Opens the file system of a dataset of `pool`, as its properties ask for. With `read_ahead`
    /// whoever reads a file in order finds the next blocks in memory.
    ///
    /// # Errors
    /// The dataset is no file system, its key is not loaded, or it is damaged.
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

    fn control(&self) -> Option<&ControlTree> {
        self.0.control.as_ref()
    }

    /// The root directory.
    #[must_use]
    pub fn root(&self) -> FileNode {
        FileNode::root(self.clone())
    }

    /// The file that a path leads to; symbolic links are followed.
    ///
    /// # Errors
    /// There is no such file, too many links were followed, or something on the way is damaged.
    pub fn node(&self, path: impl AsRef<[u8]>) -> Result<FileNode, FileError> {
        path::resolve(self, path.as_ref(), LastLink::Follow)
    }

    /// The file that a path leads to; if that is a symbolic link, the link itself.
    ///
    /// # Errors
    /// As [`FileTree::node`].
    pub fn link_node(&self, path: impl AsRef<[u8]>) -> Result<FileNode, FileError> {
        path::resolve(self, path.as_ref(), LastLink::Keep)
    }

    /// Opens the regular file that a path leads to.
    ///
    /// # Errors
    /// As [`FileTree::node`], or it is no regular file.
    pub fn open(&self, path: impl AsRef<[u8]>) -> Result<File, FileError> {
        self.node(path)?.open()
    }
}

/// Opens files in the datasets of a pool.
pub trait OpenFiles {
    /// The file system with this name: `pool/fs`, `pool/fs@snapshot`.
    ///
    /// # Errors
    /// There is no such file system, its key is not loaded, or it is damaged.
    fn file_system(&self, name: &str) -> Result<FileTree, FileError>;

    /// The volume with this name: `pool/volume`, `pool/volume@snapshot`.
    ///
    /// # Errors
    /// There is no such volume, its key is not loaded, or it is damaged.
    ///
    /// ```no_run
    /// use rzfs::OpenFiles;
    ///
    /// let pool = rzfs::PoolOptions::new().device_paths(["garden.img"]).open()?;
    /// let mut sector = [0; 512];
    /// pool.volume("garden/disk")?.read_at(0, &mut sector)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn volume(&self, name: &str) -> Result<File, FileError>;
}

impl OpenFiles for Pool {
    fn file_system(&self, name: &str) -> Result<FileTree, FileError> {
        let dataset = self.datasets().open(name);
        let dataset = dataset.map_err(|error| FileError::of_dataset(name, error.into()))?;
        FileTree::of_dataset(self, &dataset, None)
    }

    fn volume(&self, name: &str) -> Result<File, FileError> {
        let failed = |error: ZplError| FileError::of_dataset(name, error);
        let dataset = self.datasets().open(name).map_err(|error| failed(error.into()))?;
        let volume = Volume::of_dataset(&dataset, None).map_err(failed)?;
        Ok(File::of_volume(name, volume))
    }
}
