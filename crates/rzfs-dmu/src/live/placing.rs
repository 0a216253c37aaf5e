//! Dirty blocks written to their final places before their txg is synced (spec 05, section 11.2),
//! for the intent log.
//!
//! ```text
//! dirty ── place ──> written, has a pointer ──┬─ the same when the txg is synced: the object's
//!                                             └─ changed, or gone: born and freed in the txg
//! ```
//! The placement shares the buffer of the block. So a later change of the block goes to a copy, and
//! comparing two addresses shows whether it is unchanged: no other code has to know of placements.

use super::buffer::DirtyBuffer;
use super::object::LiveObject;
use super::placements::Placed;
use crate::txg::OpenTx;
use crate::write::{
    BlockWriter, Change, ObjsetPolicy, Part, Sealing, WriteContext, WriteRequest, WriteStream,
};
use bytes::Bytes;
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockId, BlockPointer, Level, Txg};

/// The contents of a dirty block at one moment.
#[derive(Clone, Debug)]
pub struct DirtyBlock {
    object: LiveObject,
    block: BlockId,
    txg: Txg,
    buffer: DirtyBuffer,
    placed: Option<BlockPointer>,
}

impl LiveObject {
    /// The current block, if it is dirty.
    #[must_use]
    pub fn dirty_block(&self, block: BlockId) -> Option<DirtyBlock> {
        let state = self.state();
        for version in state.versions.iter().rev() {
            if let Some(buffer) = version.blocks.get(&block.0) {
                return Some(DirtyBlock {
                    object: self.clone(),
                    block,
                    txg: version.txg,
                    buffer: buffer.clone(),
                    placed: version.placements.of(block.0, buffer),
                });
            }
            if version.hides(block.0) {
                return None;
            }
        }
        None
    }
}

impl DirtyBlock {
    /// The file's and the block's number.
    #[must_use]
    pub fn bookmark(&self) -> Bookmark {
        Bookmark {
            objset: self.object.objset().id(),
            object: self.object.id(),
            level: Level::DATA,
            block: self.block,
        }
    }

    /// The txg that last changed it.
    #[must_use]
    pub const fn txg(&self) -> Txg {
        self.txg
    }

    /// Its contents.
    #[must_use]
    pub fn data(&self) -> Bytes {
        self.buffer.bytes()
    }

    /// Its size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.buffer.len()
    }

    /// Its earlier placement, if it has not changed since.
    #[must_use]
    pub const fn placed(&self) -> Option<BlockPointer> {
        self.placed
    }

    /// Whether another one is the same block with the same contents.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.block == other.block && self.buffer.is_same(&other.buffer)
    }

    fn request(&self, policy: ObjsetPolicy) -> Option<WriteRequest> {
        let object_type = self.object.object_type().ok()?;
        Some(WriteRequest {
            data: self.data(),
            policy: policy.block(object_type, Level::DATA, Part::Contents),
            old: BlockPointer::HOLE,
            bookmark: self.bookmark(),
            fill: 1,
        })
    }

    /// Makes the txg take over the block, or free it.
    fn note(&self, outcome: Outcome, pointer: BlockPointer) {
        let mut state = self.object.state_mut();
        let version = state.versions.iter_mut().find(|version| version.txg == self.txg);
        let Some(version) = version else {
            // It is gone with the set.
            return self.object.objset().inner.orphans.add([pointer]);
        };
        match outcome {
            Outcome::Written => {
                let placed = Placed { buffer: self.buffer.clone(), pointer };
                version.placements.set(self.block.0, placed);
            }
            Outcome::Failed => version.placements.discard(pointer),
        }
    }
}

#[derive(Clone, Copy)]
enum Outcome {
    Written,
    Failed,
}

/// Writes blocks of one set and of the transaction's txg to their final places, and waits for the
/// devices but not for their caches. Returns each block's place; `None` if it has none: it belongs
/// to another txg, is stored in its pointer, there is no space, or a device has failed.
///
/// `stream` starts when there is something to write.
pub fn place_blocks(
    tx: &OpenTx,
    (writer, policy): (&BlockWriter, ObjsetPolicy),
    stream: WriteStream,
    blocks: &[DirtyBlock],
) -> Vec<Option<BlockPointer>> {
    let mut places: Vec<Option<BlockPointer>> = vec![None; blocks.len()];
    let key = blocks.first().and_then(|block| block.object.objset().key());
    let policy = ObjsetPolicy { is_encrypted: key.is_some(), ..policy };
    let sealing = key.map_or(Sealing::Plain, |key| Sealing::Key(key));
    let (mut requests, mut targets) = (Vec::new(), Vec::new());
    for (block, place) in blocks.iter().zip(&mut places) {
        match block.placed {
            Some(placed) => *place = Some(placed),
            None if block.txg == tx.txg() => {
                let Some(request) = block.request(policy) else { continue };
                requests.push(request);
                targets.push((block, place));
            }
            None => {}
        }
    }
    let context = WriteContext { txg: tx.txg(), pass: 1, stream: &stream, sealing };
    let changes = writer.write_each(context, &requests);
    let outcome = if stream.finish().is_empty() { Outcome::Written } else { Outcome::Failed };
    for ((block, place), change) in targets.into_iter().zip(changes) {
        let Ok(Change::Replaced(pointer)) = change else { continue };
        if pointer.is_hole() || pointer.is_embedded() {
            continue;
        }
        block.note(outcome, pointer);
        *place = Some(pointer).filter(|_| matches!(outcome, Outcome::Written));
    }
    places
}
