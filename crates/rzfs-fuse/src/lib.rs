//! The thin adapter from FUSE requests to [`rzfs_zpl`].
//!
//! ```text
//! Mount ── Session: the requests; one file system, and those that are grafted into it
//!             └── Adapter: one file system with .zfs and the directories of the mount alone
//!                    ├── Files: rzfs_zpl::FileSystem or rzfs_zpl::live::LiveFileSystem
//!                    └── KnownFiles: which of its files the kernel knows; each is held
//! ```
//! [`Mount::new`] mounts one file system, for reading or, if it is a live one, for reading and
//! writing; each ZFS file system has a mount of its own. Nothing here knows what a file is:
//! requests are translated to [`rzfs_zpl`] calls, answers to FUSE's structures, errors to errnos.
//!
//! # Ending a read-write mount
//!
//! 1. [`Mount::unmount`], or [`Mount::request_unmount`] until [`Mount::is_finished`]: of nested
//!    mounts the deepest first. The kernel writes what it has cached; then the mount lets go of all
//!    files (those without names are reclaimed), writes times of access, and waits until all of it
//!    is on disk.
//! 2. Drop every other handle of the [`LiveFileSystem`](rzfs_zpl::live::LiveFileSystem).
//! 3. Export the pool.
//!
//! A mount that was detached while in use goes on serving whoever has files open, and does the
//! same when the last of them is closed; until then the pool must stay open.
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
