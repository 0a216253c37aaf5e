//! Syncing object sets: from dirty objects to a new root pointer (spec 03, sections 1.5 and 6).
//!
//! ```text
//! level 0 of all objects ─> their level 1 ─> ... ─> dnodes ─> blocks of dnodes ─> ... ─> root
//! ```
//! Only data is dirty before the sync: open context changes data blocks, bonuses and ranges to
//! free, and the pointer trees are updated here. Each level of all objects is one batch for the
//! [`BlockWriter`], so a parent always has its children's final pointers. Memory is bounded: a
//! batch has at most 64 MiB of data, or 128 parents.

mod descent;
mod error;
mod kill;
mod tree;
mod trees;

pub use error::SyncError;
pub(crate) use kill::kill_object;
pub(crate) use tree::{DirtyTree, LeafBlock, empty_dnode};
pub(crate) use trees::sync_trees;

use crate::write::{BlockWriter, ObjsetPolicy, WriteContext};
use rzfs_format::BlockPointer;

/// Maximum bytes of data in a batch.
const BATCH_BYTES: usize = 64 << 20;
/// Maximum indirect blocks in a batch.
const BATCH_GROUPS: usize = 128;

/// The owner of an object set's space: notified of every block that is born or dies in it.
pub trait BlockAccounting {
    /// A block was added to the set.
    fn born(&mut self, pointer: &BlockPointer);
    /// A shared block was added to the set: its logical birth is this txg, its physical birth an
    /// earlier one.
    fn shared(&mut self, pointer: &BlockPointer);
    /// A block was removed from the set.
    fn killed(&mut self, pointer: &BlockPointer);
    /// An object was freed, but damage hides this many bytes of it (deflated), which are leaked.
    fn lost(&mut self, bytes: u64);
}

/// How the blocks of one object set are synced.
pub struct SyncContext<'a> {
    /// Creates the pointers.
    pub writer: &'a BlockWriter,
    /// The txg and pass.
    pub write: WriteContext<'a>,
    /// The policy.
    pub policy: ObjsetPolicy,
    /// The accounting to notify.
    pub accounting: &'a mut dyn BlockAccounting,
}

impl std::fmt::Debug for SyncContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SyncContext").field("write", &self.write).finish_non_exhaustive()
    }
}
