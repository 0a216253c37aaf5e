//! Files of a dataset by their paths.
//!
//! ```text
//! FileTree ── node(path) ──> FileNode ── attributes, xattrs, ACL, link target
//!                                │ ├── open ──────> File: contents at offsets, data and holes
//!                                │ ├── entries ───> Entries: the entries of a directory
//!                                └───── walk ─────> Walk: everything below a directory
//! ```
//! Paths start at the root of the file system, and so do absolute symbolic links.
//! `.zfs/snapshot/NAME` leads into the snapshots, as in a mounted file system. Other file systems
//! of the pool are trees of their own: there are no mount points in a tree.

mod entries;
mod node;
mod path;
mod tree;
mod walk;

pub use entries::{Entries, Entry};
pub use node::FileNode;
pub use tree::FileTree;
pub use walk::{Walk, WalkEntry};

use crate::FileError;
use crate::file::File;
use rzfs_dsl::Pool;
use rzfs_zpl::{Volume, ZplError};

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
