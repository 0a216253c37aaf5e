//! Blocks that several objects share (spec 02, section 10.2).
//!
//! A clone is a block pointer of another object that becomes part of this one: its address, its
//! contents and its physical birth stay, its logical birth is the txg in which it was cloned. It
//! is in a version until it is synced, as a dirty buffer is; whoever owns the space is told of it
//! then and counts the reference.

use super::object::LiveObject;
use super::reading::Origin;
use super::transaction::Transaction;
use crate::{DmuError, Object};
use rzfs_format::{BlockId, BlockPointer, ByteOrder};
use std::ops::Range;

/// What a block is that may be cloned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloneSource {
    /// A hole: its clone is one.
    Hole,
    /// A block that is on disk, or embedded in its pointer.
    Block(BlockPointer),
    /// Contents that are not on disk yet, which cannot be cloned.
    Dirty,
}

impl CloneSource {
    /// The pointer that stands for it in records.
    #[must_use]
    pub const fn pointer(&self) -> BlockPointer {
        match self {
            Self::Block(pointer) => *pointer,
            Self::Hole | Self::Dirty => BlockPointer::HOLE,
        }
    }

    /// What the blocks of a range of an object on disk are, up to the first that cannot be cloned.
    /// They stay so long as the object does.
    ///
    /// # Errors
    /// An indirect block cannot be read.
    pub fn of_object(object: &Object, range: Range<u64>) -> Result<Vec<Self>, DmuError> {
        let mut sources = Vec::new();
        for pointer in object.pointers(0, range) {
            let source = of(pointer?);
            sources.push(source);
            if source == Self::Dirty {
                break;
            }
        }
        Ok(sources)
    }

    /// What a pointer in a record stands for.
    #[must_use]
    pub fn of_record(pointer: BlockPointer) -> Self {
        of(pointer)
    }
}

impl LiveObject {
    /// What the blocks of a range are, as far as they can be cloned: with the first one that is
    /// dirty the list ends. It stays true while the caller keeps others from changing the object.
    ///
    /// # Errors
    /// An indirect block cannot be read, or the object does not exist.
    pub fn clone_sources(&self, range: Range<u64>) -> Result<Vec<CloneSource>, DmuError> {
        let mut sources = Vec::new();
        for origin in self.plan(range)?.origins {
            let source = match origin {
                Origin::Dirty(_) => CloneSource::Dirty,
                Origin::Clone(pointer) => CloneSource::Block(pointer),
                Origin::Hole => CloneSource::Hole,
                Origin::OnDisk(pointer) => of(pointer?),
            };
            sources.push(source);
            if source == CloneSource::Dirty {
                break;
            }
        }
        Ok(sources)
    }

    /// Makes the blocks from `first` on those of another object, or holes. The sizes of the
    /// blocks are equal, and what is shared is not freed before the transaction's txg.
    ///
    /// # Errors
    /// What is above the blocks cannot be read, or the object does not exist any more.
    pub fn clone_blocks(
        &self,
        tx: &dyn Transaction,
        first: BlockId,
        sources: &[CloneSource],
    ) -> Result<(), DmuError> {
        let end = first.0.saturating_add(sources.len() as u64);
        self.check_blocks(first..BlockId(end))?;
        self.modify(tx, |version| {
            for (block, source) in (first.0..).zip(sources) {
                match source {
                    CloneSource::Block(pointer) => version.put_clone(block, *pointer),
                    CloneSource::Hole => version.punch(block..block.saturating_add(1)),
                    CloneSource::Dirty => break,
                }
            }
        })
    }
}

/// What a block on disk is. Blocks of another byte order are not shared with objects of this one.
fn of(pointer: BlockPointer) -> CloneSource {
    if pointer.is_hole() {
        CloneSource::Hole
    } else if pointer.order() != ByteOrder::NATIVE {
        CloneSource::Dirty
    } else {
        CloneSource::Block(pointer)
    }
}
