//! Blocks shared by several objects (spec 02, section 10.2).
//!
//! A clone is a block pointer of another object that becomes part of this one: it keeps its
//! address, contents and physical birth; its logical birth is the txg in which it was cloned. Until
//! it is synced it is in a version, like a dirty buffer; then the owner of the space is notified
//! and counts the reference.

use super::object::LiveObject;
use super::reading::Origin;
use super::transaction::Transaction;
use crate::{DmuError, Object};
use rzfs_format::{BlockId, BlockPointer, ByteOrder};
use std::ops::Range;

/// The state of a block to be cloned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloneSource {
    /// A hole: its clone is a hole.
    Hole,
    /// A block on disk, or embedded in its pointer.
    Block(BlockPointer),
    /// Contents not on disk yet, which cannot be cloned.
    Dirty,
}

impl CloneSource {
    /// The pointer that represents it in records.
    #[must_use]
    pub const fn pointer(&self) -> BlockPointer {
        match self {
            Self::Block(pointer) => *pointer,
            Self::Hole | Self::Dirty => BlockPointer::HOLE,
        }
    }

    /// The blocks in a range of an object on disk, up to the first that cannot be cloned. The
    /// result stays valid as long as the object does.
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

    /// The source represented by a pointer in a record.
    #[must_use]
    pub fn of_record(pointer: BlockPointer) -> Self {
        of(pointer)
    }
}

impl LiveObject {
    /// The blocks in a range that can be cloned: the list ends with the first dirty one. The result
    /// stays valid while the caller keeps others from changing the object.
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

    /// Replaces the blocks from `first` on by those of another object, or holes. The block sizes
    /// are equal, and shared blocks are not freed before the transaction's txg.
    ///
    /// # Errors
    /// The parents of the blocks cannot be read, or the object does not exist any more.
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

/// The source for a block on disk. Blocks of the other byte order are not shared.
fn of(pointer: BlockPointer) -> CloneSource {
    if pointer.is_hole() {
        CloneSource::Hole
    } else if pointer.order() != ByteOrder::NATIVE {
        CloneSource::Dirty
    } else {
        CloneSource::Block(pointer)
    }
}
