//! OpenZFS pools in user space, as a library.
//!
//! rzfs reads pools written by any release of OpenZFS on any platform, without a kernel module, and
//! creates and writes pools that OpenZFS reads. This crate is the entry point: it finds and opens
//! pools on devices, images or any other [`blockdev::BlockDevice`], and gives access to their
//! datasets, files and objects. The commands (`rzfs-cli`, `rzfs-zdb`) and the process that mounts a
//! pool (`rzfs-server`) build on it.
//!
//! ```no_run
//! use rzfs::format::property::DatasetProperty;
//!
//! let pool = rzfs::PoolOptions::new().device_paths(["tank.img"]).open()?;
//! for dataset in pool.datasets().root()?.descendants()? {
//!     println!("{}: {} bytes", dataset.name(), dataset.number(DatasetProperty::Used)?);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! A [`Pool`] never writes to a device; a [`WritablePool`], created by [`NewPool`] or opened by
//! [`PoolOptions::open_writable`], does.
#![forbid(unsafe_code)]

mod added_vdevs;
mod file;
mod file_error;
mod file_tree;
mod new_pool;
mod open;
pub mod plain_file;
pub mod quantity;
mod secret;
pub mod setting;
mod vdev_request;
mod writable;

pub use added_vdevs::{AddError, AddedVdevs, Allowance, PlannedVdevs};
pub use file::{Extent, File};
pub use file_error::{FileError, FileProblem, ShownPath};
pub use file_tree::{Entries, Entry, FileNode, FileTree, OpenFiles, Walk, WalkEntry};
pub use new_pool::{CreateError, NewPool, PlannedPool, PoolNameError, check_pool_name};
pub use open::{OpenError, PoolOptions, encryption_roots, load_matching_key};
pub use rzfs_blockdev as blockdev;
pub use rzfs_dmu as dmu;
pub use rzfs_dsl as dsl;
pub use rzfs_dsl::Pool;
pub use rzfs_format as format;
pub use rzfs_tunables::{self as tunables, Tunables};
pub use rzfs_vdev as vdev;
pub use rzfs_zap as zap;
pub use rzfs_zpl as zpl;
pub use secret::{MAX_SECRET, Secret};
pub use vdev_request::VdevRequestError;
pub use writable::{FileSystemError, VersionError, WritablePool};
