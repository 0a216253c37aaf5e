//! The POSIX layer on an object set, free of FUSE types.
//!
//! ```text
//!  FileSystem ─── names: case, Unicode form        Volume ─── one object of bytes
//!   │  │  └────── attributes, ACLs, xattrs
//!   │  └───────── directories (ZAPs) with cookies
//!   └──────────── contents, holes, read-ahead
//!       │
//!    Source: Fixed, with caches │ Live, with locks ── LiveFileSystem changes it
//!
//!  ControlTree ── .zfs/snapshot/NAME: the other FileSystems of the same dataset
//! ```
//!
//! A [`FileSystem`] is opened on an [`Objset`](rzfs_dmu::Objset) and addressed by object numbers,
//! which are the inode numbers. Every method takes `&self`; handles are shared between threads.
//! Recently used data (attributes, open directories) stays in bounded caches, from which
//! [`FileSystem::forget`] removes a changed object. A [`live::LiveFileSystem`] is read in the same
//! way.
#![forbid(unsafe_code)]

mod accounts;
mod cache;
mod contents;
mod control;
mod control_node;
mod diff;
mod directory;
mod entry;
mod error;
mod file;
mod file_system;
mod files;
mod fixed;
pub mod live;
mod master;
mod name;
mod node;
mod object;
mod options;
mod path;
mod quota;
mod read_ahead;
mod schema;
mod snapshots;
mod source;
mod space;
mod sync;
mod volume;
mod xattr;

pub use accounts::{Account, Share, stored_accounts, stored_domains};
pub use control::{
    ControlAttributes, ControlEntry, ControlTree, SnapshotChange, SnapshotEntry, SnapshotSource,
};
pub use control_node::ControlNode;
pub use diff::{DiffState, Difference, Differences, FileChange, TooDeep};
pub use entry::{CONTROL_NAME, DirCookie, DirEntry, NameTarget};
pub use error::{Place, ZplError};
pub use file_system::FileSystem;
pub use files::Files;
pub use fixed::Fixed;
pub use master::{CaseSensitivity, MasterNode};
pub use node::Attributes;
pub use options::{
    AclType, CacheBudget, FileCaches, FileSystemOptions, SnapshotDirectory, XattrUse,
};
pub use path::FilePath;
pub use quota::{QuotaOwner, QuotaUnit, stored_quota, stored_usage};
pub use read_ahead::ReadAhead;
pub use rzfs_dsl::accounting;
pub use rzfs_dsl::live::SpaceUse;
pub use snapshots::DatasetSnapshots;
pub use source::Source;
pub use space::Statistics;
pub use volume::Volume;
