//! Reference pools and manifests for the tests of rzfs.
//!
//! A [`ReferencePool`] is a pool that OpenZFS made, with what OpenZFS said about it: the
//! [`Manifest`] of every file, and texts of its commands. [`differences`] compares a manifest with
//! anything that is a [`Tree`], for example a [`MountedTree`].
//!
//! ```no_run
//! let pool = rzfs_testkit::ReferencePool::golden("g01-default").expect("golden pools");
//! let images = pool.images().expect("unpacked images");
//! let manifest = pool.manifest().expect("a manifest");
//! for (dataset, files) in manifest.datasets() {
//!     println!("{dataset}: {} files on {} devices", files.entries.len(), images.len());
//! }
//! ```
//!
//! An [`OverlayDevice`] is a device that reads like another one, but for the damage that a test
//! does to it; a [`SparseDevice`] begins empty, and can be written. A [`Transcript`] is what OpenZFS's zdb printed about a pool.
//!
//! # Where pools are found
//! - Golden pools: `$RZFS_GOLDEN`, else `../shared/reference/golden` beside the repository, else
//!   the small subset in the repository's `tests/golden`.
//! - Pools of OpenZFS's test suite: `$RZFS_OPENZFS_IMAGES`, else
//!   `../shared/reference/openzfs-images` beside the repository.
//!
//! A pool that is not there is skipped with a message, and so is OpenZFS's [`zdb`], and what [only
//! root](has_root) can do; with `CI=true` that is a failure.
//!
//! Images are unpacked once, sparsely, below the build directory, and never written to; with
//! `$RZFS_GOLDEN_UNPACKED` they are taken from there (a directory for each pool).
#![forbid(unsafe_code)]

mod ending;
mod manifest;
mod overlay;
mod pool;
mod sparse;
mod streams;
mod transcript;
mod tree;
mod zdb;

pub use ending::SetWhenDropped;
pub use manifest::{Entry, EntryKind, FileSystemManifest, Manifest, parse_hex};
pub use overlay::{Damage, OverlayDevice};
pub use pool::{ReferencePool, has_root, kernel_passes, unpack_sample, unpacked_root};
pub use sparse::{Defect, SparseDevice};
pub use streams::{GoldenStream, zstream_program};
pub use transcript::Transcript;
pub use tree::{Listing, MountedTree, Observed, Tree, differences, differences_but_times};
pub use zdb::{zdb, zdb_program};
