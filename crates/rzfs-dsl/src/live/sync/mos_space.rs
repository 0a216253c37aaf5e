//! The MOS as owner of its blocks.

use crate::live::amounts::{Deflation, SpaceDelta};
use rzfs_dmu::DmuError;
use rzfs_dmu::live::{LiveObjset, SpaceOwner, SyncTx};
use rzfs_dmu::sync::BlockAccounting;
use rzfs_format::dnode::{Dnode, DnodeFlags};
use rzfs_format::{BlockPointer, ObjectId};

/// The MOS as owner of its blocks.
pub(super) struct MosSpace<'a> {
    deflation: Deflation<'a>,
    pub(super) delta: SpaceDelta,
    pub(super) frees: Vec<BlockPointer>,
}

impl<'a> MosSpace<'a> {
    pub(super) const fn new(deflation: Deflation<'a>) -> Self {
        let delta = SpaceDelta { used: 0, compressed: 0, uncompressed: 0 };
        Self { deflation, delta, frees: Vec::new() }
    }
}

impl BlockAccounting for MosSpace<'_> {
    fn born(&mut self, pointer: &BlockPointer) {
        if !pointer.is_hole() {
            self.delta += self.deflation.of(pointer);
        }
    }

    fn shared(&mut self, pointer: &BlockPointer) {
        // Nothing in the MOS is cloned.
        self.born(pointer);
    }

    fn killed(&mut self, pointer: &BlockPointer) {
        if !pointer.is_hole() {
            self.delta += -self.deflation.of(pointer);
            if !pointer.is_embedded() {
                self.frees.push(*pointer);
            }
        }
    }

    fn lost(&mut self, _: u64) {
        // It still belongs to the MOS.
    }
}

impl SpaceOwner for MosSpace<'_> {
    fn dnode_flags(&self) -> DnodeFlags {
        DnodeFlags::default()
    }

    fn dnode_changed(&mut self, _: ObjectId, _: Option<&Dnode>, _: Option<&Dnode>) {}

    fn write_accounting(&mut self, _: &LiveObjset, _: &SyncTx<'_>) -> Result<(), DmuError> {
        Ok(())
    }
}
