//! Transactions: within the space of the target, and with no more frees than a group can hold.

use super::Applier;
use crate::error::ReceiveError;
use rzfs_dmu::live::{Extent, LiveObject};
use rzfs_dmu::txg::{OpenTx, Patience};
use rzfs_dsl::live::{SpaceDemand, SpaceRefusal};
use rzfs_format::BlockId;

/// Size of the writes for a changed dnode: its block, the blocks above it, and a spill block, with
/// two copies each.
pub(super) const DNODE_BYTES: u64 = 2 * ((16 << 10) + (2 << 10) + (16 << 10));

impl Applier<'_> {
    /// Begins a transaction that changes an object and writes up to `bytes` into it.
    pub(super) fn begin(&self, object: &LiveObject, bytes: u64) -> Result<OpenTx, ReceiveError> {
        let demand = |tx: &OpenTx| {
            let dnode = if object.is_dirty_in(tx.txg()) { 0 } else { DNODE_BYTES };
            SpaceDemand::Takes(bytes.saturating_add(dnode))
        };
        self.admitted(demand, || Ok(self.engine.begin_with(&[object], Patience::Wait)?))
    }

    /// Begins a transaction that creates an object.
    pub(super) fn begin_new(&self) -> Result<OpenTx, ReceiveError> {
        let demand = |_: &OpenTx| SpaceDemand::Takes(DNODE_BYTES);
        self.admitted(demand, || Ok(self.engine.begin_with(&[], Patience::Wait)?))
    }

    /// Begins a transaction that frees this many blocks of an object on disk.
    fn begin_freeing(&self, object: &LiveObject, blocks: u64) -> Result<OpenTx, ReceiveError> {
        // The blocks at both ends may be written.
        let edges = object.data_block_size().map_err(|error| self.failed(error))?;
        let bytes = DNODE_BYTES.saturating_add(u64::from(edges).saturating_mul(2));
        let begin = || Ok(self.engine.begin_freeing(&[object], Patience::Wait)?);
        loop {
            let tx = self.admitted(|_| SpaceDemand::Frees(bytes), begin)?;
            if tx.claim_frees(blocks) {
                return Ok(tx);
            }
            let txg = tx.txg();
            drop(tx);
            self.engine.wait_synced(txg)?;
        }
    }

    fn admitted(
        &self,
        demand: impl Fn(&OpenTx) -> SpaceDemand,
        begin: impl Fn() -> Result<OpenTx, ReceiveError>,
    ) -> Result<OpenTx, ReceiveError> {
        loop {
            let tx = begin()?;
            match self.budget.admit(tx.txg(), demand(&tx)) {
                Ok(()) => return Ok(tx),
                Err(SpaceRefusal::NoSpace) => return Err(ReceiveError::NoSpace),
                Err(SpaceRefusal::Quota) => {
                    return Err(ReceiveError::Quota { target: self.target.clone() });
                }
                Err(SpaceRefusal::Later) => {
                    let txg = tx.txg();
                    drop(tx);
                    self.engine.wait_synced(txg)?;
                }
            }
        }
    }

    /// Waits until all earlier changes are on disk.
    pub(super) fn sync(&self) -> Result<(), ReceiveError> {
        Ok(self.engine.wait_synced(self.engine.open_txg())?)
    }

    /// Makes a hole in an object, from its end backwards and over several groups if it has many
    /// blocks on disk.
    pub(super) fn make_hole(
        &self,
        object: &LiveObject,
        offset: u64,
        extent: Extent,
    ) -> Result<(), ReceiveError> {
        let failed = |error| self.failed(error);
        let block_size = u64::from(object.data_block_size().map_err(failed)?);
        let start = BlockId(offset / block_size);
        let (mut extent, mut end) = match extent {
            Extent::ToEnd => (extent, BlockId(u64::MAX)),
            Extent::Bytes(length) => {
                (extent, BlockId(offset.saturating_add(length).div_ceil(block_size)))
            }
        };
        loop {
            let (open, room) = self.engine.room_for_frees();
            if room == 0 {
                self.engine.wait_synced(open)?;
                continue;
            }
            let piece = object.last_piece(start..end, room).map_err(failed)?;
            let checked = object.check_blocks(piece.first..end).map_err(failed)?;
            let tx = self.begin_freeing(object, piece.blocks)?;
            if piece.first <= start {
                return object.free_checked(&tx, offset, extent, &checked).map_err(failed);
            }
            let first = piece.first.0.saturating_mul(block_size);
            let (now, rest) = match extent {
                Extent::ToEnd => (Extent::ToEnd, Extent::ToEnd),
                Extent::Bytes(length) => {
                    let now = offset.saturating_add(length).saturating_sub(first);
                    (Extent::Bytes(now), Extent::Bytes(first.saturating_sub(offset)))
                }
            };
            object.free_checked(&tx, first, now, &checked).map_err(failed)?;
            (extent, end) = (rest, piece.first);
        }
    }

    /// Frees an object, with everything in it.
    pub(super) fn destroy(&self, object: &LiveObject) -> Result<(), ReceiveError> {
        let failed = |error| self.failed(error);
        object.check_tree().map_err(failed)?;
        if object.blocks_on_disk() > self.engine.room_for_frees().1 {
            self.make_hole(object, 0, Extent::ToEnd)?;
            self.sync()?;
        }
        let tx = self.begin_freeing(object, object.blocks_on_disk())?;
        object.destroy(&tx).map_err(failed)
    }
}
