//! A live file system, which can be changed (spec 05).
//!
//! ```text
//! LiveFileSystem ── FileSystem<Live>: files in use, a lock each, and reading them
//!     │ an operation: lock, work out what things become, begin a transaction, change them
//!     ▼
//! LiveObjset ── objects in memory, written when their transaction group is synced
//! ```
//! Operations produce the same result as OpenZFS: the same objects, attributes in the same order,
//! the same block sizes, so that either can continue where the other stopped. An operation is
//! entirely in one transaction group, except for long writes, which are split from the front.

mod access_list;
mod access_time;
mod acl;
mod admission;
mod allocation;
mod attributes;
mod block_size;
mod caller;
mod change;
mod contents;
mod copying;
mod creation;
mod dataset;
mod directory;
mod draft;
mod durability;
mod file_system;
mod legacy;
mod log;
mod names;
mod new_file_system;
mod node;
mod options;
mod quota;
mod quotas;
mod raising;
mod reclaimer;
mod reclaiming;
mod removal;
mod renaming;
mod replay;
mod salts;
mod schema;
mod seed;
mod sharing;
mod source;
mod tables;
mod unlinked;
mod unlinked_set;
mod values;
mod volume;
mod xattr;
mod xattr_change;

pub use crate::quota::{QuotaOwner, QuotaUnit};
pub use allocation::Allocation;
pub use attributes::{AttributeChange, FlagChange, TimeChange};
pub use caller::{Caller, Privilege};
pub use contents::{WriteAt, Writing};
pub use creation::{NewFile, NewKind};
pub use file_system::LiveFileSystem;
pub use new_file_system::NewFileSystem;
pub use options::{
    AccessTimes, Changes, DatasetSpace, DnodeSize, LiveOptions, Overrides, SyncMode,
    UnboundedSpace, WallClock, XattrStore,
};
pub use raising::{UpgradeError, raise_version};
pub use renaming::{Named, RenameMode};
pub use replay::{ReplayFailure, ReplaySummary};
pub use rzfs_dsl::live::{SpaceDemand, SpaceRefusal};
pub use sharing::{CopySource, FilePlace};
pub use source::Live;
pub use unlinked::Hold;
pub use volume::replay_volume;
pub use xattr::{SetGroupId, XattrMode};
