//! The thin adapter from FUSE requests to [`rzfs_zpl`].
//!
//! ```text
//! Mount ── Session: the requests; one file system, and those grafted into it
//!             └── Adapter: one file system with .zfs and the directories of the mount alone
//!                    ├── Files: rzfs_zpl::FileSystem or rzfs_zpl::live::LiveFileSystem
//!                    └── KnownFiles: the files that the kernel knows; each is held
//! ```
//! [`Mount::new`] mounts one file system, read-only, or read-write if it is live; each ZFS file
//! system has its own mount. Nothing here knows what a file is: requests become [`rzfs_zpl`] calls,
//! results FUSE structures, errors errnos.
//!
//! # Ending a read-write mount
//!
//! 1. [`Mount::unmount`], or [`Mount::request_unmount`] until [`Mount::is_finished`]: nested mounts
//!    deepest first. The kernel writes back its cache; then the mount releases all files (unlinked
//!    ones are reclaimed), writes access times, and waits until everything is on disk.
//! 2. Drop every other handle of the [`LiveFileSystem`](rzfs_zpl::live::LiveFileSystem).
//! 3. Export the pool.
//!
//! A mount detached while in use keeps serving the processes that have files open, and runs the
//! same steps when the last file is closed; until then the pool must stay open.
#![forbid(unsafe_code)]

mod adapter;
mod answer;
mod attachment;
mod attributes;
mod connection;
mod credentials;
mod dead;
mod durability;
mod errands;
mod exchange;
mod file_flags;
mod grafts;
mod inode;
mod kernel_cache;
mod known;
mod lack;
mod mount;
mod mount_points;
mod options;
mod panics;
mod place;
mod process_files;
mod removals;
mod session;
mod system_mounts;
mod wakefulness;
mod xattr;

pub use attachment::mounts_without_helper;
pub use connection::Connections;
pub use dead::{abandon_mounts, clear_aborted_mounts, clear_dead_mounts};
pub use errands::run_errands_apart;
pub use exchange::{Exchange, ExchangeOutcome, Exchanged, NotExchanged, Successor};
pub use lack::MissingPrerequisite;
pub use mount::{Mount, MountError};
pub use options::{
    Access, CoveredContents, InUse, LeftOut, MountOptions, Nested, Opens, Restrictions,
};
pub use place::{MadeDirectory, MountPlace, PlaceError};
pub use process_files::hold_process_files;
pub use removals::Removals;
pub use system_mounts::SystemMounts;
pub use wakefulness::{LATENCY_DEVICE, Wakefulness};
