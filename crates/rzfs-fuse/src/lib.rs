//! The thin adapter from FUSE requests to [`rzfs_zpl`].
//!
//! [`Mount::new`] mounts one file system; each ZFS file system has a mount of its own. Nothing
//! here knows what a file is: requests are translated to [`rzfs_zpl::FileSystem`] calls, answers
//! to FUSE's structures, errors to errnos.
#![forbid(unsafe_code)]

mod adapter;
mod attributes;
mod grafts;
mod inode;
mod mount;
mod mount_points;
mod session;
mod xattr;

pub use mount::{Access, InUse, Mount, MountError, MountOptions, Nested};
