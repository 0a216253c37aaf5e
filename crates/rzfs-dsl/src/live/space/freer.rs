//! Releasing references to blocks.

use crate::live::LiveError;
use crate::live::amounts::{Deflation, SpaceDelta};
use crate::live::error::UnlessDamaged;
use crate::live::space::clone_table::{CloneTables, Release};
use crate::live::space::dedup::DedupTables;
use crate::mos::live::MosTx;
use rzfs_dmu::{BlockError, MAX_GANG_DEPTH};
use rzfs_format::BlockPointer;
use rzfs_metaslab::allocator::SyncPass;
use std::cell::Cell;

/// Frees blocks in a pass of a txg.
#[derive(Clone, Copy)]
pub(crate) struct BlockFreer<'a> {
    pub(crate) mos: MosTx<'a>,
    pub(crate) space: &'a SyncPass<'a>,
    pub(crate) clones: &'a CloneTables,
    pub(crate) dedup: &'a DedupTables,
    pub(crate) deflation: Deflation<'a>,
    pub(crate) leaks: &'a Leaks,
}

/// Space that cannot be freed because of damage, and is not charged yet.
#[derive(Debug, Default)]
pub(crate) struct Leaks(Cell<SpaceDelta>);

impl Leaks {
    pub(crate) fn add(&self, lost: SpaceDelta) {
        let mut sum = self.0.get();
        sum += lost;
        self.0.set(sum);
    }

    /// Takes what was added since the last call.
    pub(crate) fn take(&self) -> SpaceDelta {
        self.0.take()
    }
}

impl BlockFreer<'_> {
    /// Releases a reference to a block: if it was the last one, its space is freed. If damage hides
    /// other references, it is leaked.
    pub(crate) fn free(&self, pointer: &BlockPointer) -> Result<(), LiveError> {
        let leak = |error: &LiveError| {
            tracing::warn!(%error, ?pointer, "a block is leaked");
            self.leaks.add(self.deflation.of(pointer));
        };
        self.free_counted(pointer).unless_damaged(leak).map(drop)
    }

    fn free_counted(&self, pointer: &BlockPointer) -> Result<(), LiveError> {
        if pointer.is_dedup() {
            // An entry missing from its table was pruned: the block has one reference.
            return match self.dedup.release(pointer)? {
                true => Ok(()),
                false => self.free_plain(&pointer.without_dedup()),
            };
        }
        self.free_plain(pointer)
    }

    /// The same for a block that is in no dedup table.
    fn free_plain(&self, pointer: &BlockPointer) -> Result<(), LiveError> {
        let dsize = || self.deflation.of(pointer).used.unsigned_abs();
        match self.clones.release(&self.mos, pointer, dsize)? {
            Release::Kept => Ok(()),
            Release::Free => self.free_space(pointer, MAX_GANG_DEPTH),
        }
    }

    /// Frees the space of a block. What is hidden by an unreadable or wrong gang header is leaked:
    /// it stays allocated.
    fn free_space(&self, pointer: &BlockPointer, gangs: u32) -> Result<(), LiveError> {
        if pointer.is_gang() {
            let members = self.gang_members(pointer, gangs).unless_damaged(|error| {
                tracing::warn!(%error, ?pointer, "parts of a gang block are lost");
                self.leaks.add(self.deflation.of(pointer));
            })?;
            let below = gangs.saturating_sub(1);
            members.iter().flatten().try_for_each(|member| self.free_space(member, below))?;
        }
        Ok(self.space.free_block(pointer)?)
    }

    /// The members of a gang, with up to `gangs` levels of nesting.
    fn gang_members(
        &self,
        pointer: &BlockPointer,
        gangs: u32,
    ) -> Result<Vec<BlockPointer>, LiveError> {
        if gangs == 0 {
            let at = pointer.dvas().next().unwrap_or_default();
            return Err(BlockError::Gang { at, problem: "the tree is too deep" }.into());
        }
        Ok(self.mos.objset().pipeline().gang_members(pointer)?)
    }
}
