//! Syncing object sets: from dirty objects to a new root pointer (spec 03, sections 1.5 and 6).
//!
//! ```text
//! level 0 of all objects ─> their level 1 ─> ... ─> dnodes ─> blocks of dnodes ─> ... ─> root
//! ```
//! Nothing above the data is dirty before it is synced: what changes in open context is data
//! blocks, bonuses and ranges to free, and here the trees of pointers follow from that. Each
//! level of all objects is one batch for the [`BlockWriter`], so a parent always has its
//! children's final pointers. Memory is bounded: a batch has 64 MiB of data at most, or 128
//! parents.

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

/// Most bytes of data in a batch.
const BATCH_BYTES: usize = 64 << 20;
/// Most indirect blocks in a batch.
const BATCH_GROUPS: usize = 128;

/// Whoever owns an object set's space: told of every block that is born or dies in it.
pub trait BlockAccounting {
    /// A block has become part of the set.
    fn born(&mut self, pointer: &BlockPointer);
    /// A block of somebody else's has become part of the set, too: its logical birth is this txg,
    /// its physical one an earlier txg.
    fn shared(&mut self, pointer: &BlockPointer);
    /// A block is no longer part of it.
    fn killed(&mut self, pointer: &BlockPointer);
    /// An object was freed, but damage hides so many bytes of it (deflated): nobody frees them.
    fn lost(&mut self, bytes: u64);
}

/// How the blocks of one object set are synced.
pub struct SyncContext<'a> {
    /// Makes the pointers.
    pub writer: &'a BlockWriter,
    /// In which txg and pass.
    pub write: WriteContext<'a>,
    /// As which policy says.
    pub policy: ObjsetPolicy,
    /// Who is told.
    pub accounting: &'a mut dyn BlockAccounting,
}

impl std::fmt::Debug for SyncContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SyncContext").field("write", &self.write).finish_non_exhaustive()
    }
}
