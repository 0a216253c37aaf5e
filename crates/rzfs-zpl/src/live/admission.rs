//! Conditions for a transaction to begin: there is room for what it writes, and its group's limit
//! of frees is not exceeded.

use super::options::DatasetSpace;
use crate::error::ZplError;
use crate::sync::Arc;
use rzfs_dmu::live::LiveObject;
use rzfs_dmu::txg::{OpenTx, Patience, TxgEngine};
use rzfs_dsl::live::{SpaceDemand, SpaceRefusal};
use rzfs_format::{ObjsetId, Txg};

/// Bytes written by a change of a dnode: its block, its parents, and a spill block, each with a
/// second copy.
pub(super) const DNODE_BYTES: u64 = 2 * ((16 << 10) + (2 << 10) + (16 << 10));

/// The part of the demand for these dnodes already claimed in a txg, as they have changed in it.
pub(super) fn claimed_dnodes(objects: &[&LiveObject], txg: Txg) -> u64 {
    objects.iter().filter(|object| object.is_dirty_in(txg)).count() as u64 * DNODE_BYTES
}

/// Progress of an operation that may span several groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress<T, R = ()> {
    /// It is done.
    Done(T),
    /// It continues when a group is on disk.
    Paused { until: Txg, rest: R },
}

/// The admission of transactions of a dataset.
pub(super) struct Admission<'a> {
    pub(super) engine: &'a Arc<TxgEngine>,
    pub(super) space: &'a dyn DatasetSpace,
    pub(super) objset: ObjsetId,
    pub(super) patience: Patience,
}

/// The result of beginning a transaction that frees blocks.
pub(super) enum Freeing {
    /// It has begun.
    Begun(OpenTx),
    /// This group has reached its limit of frees.
    After(Txg),
}

impl Admission<'_> {
    /// Begins a transaction once there is room for what it writes.
    pub(super) fn begin(
        &self,
        objects: &[&LiveObject],
        demand: SpaceDemand,
        claimed: impl Fn(Txg) -> u64,
    ) -> Result<OpenTx, ZplError> {
        let objset = self.objset;
        loop {
            let tx = match demand {
                SpaceDemand::Takes(_) | SpaceDemand::Shares { .. } => {
                    self.engine.begin_with(objects, self.patience)?
                }
                SpaceDemand::Frees(_) => self.engine.begin_freeing(objects, self.patience)?,
            };
            let demand = demand.less(claimed(tx.txg()));
            match self.space.admit(tx.txg(), demand) {
                Ok(()) => return Ok(tx),
                Err(SpaceRefusal::NoSpace) => return Err(ZplError::NoSpace { objset }),
                Err(SpaceRefusal::Quota) => {
                    self.engine.count_over_quota();
                    return Err(ZplError::Quota { objset });
                }
                Err(SpaceRefusal::Later) => {
                    let txg = tx.txg();
                    drop(tx);
                    self.engine.wait_synced_with(txg, self.patience)?;
                }
            }
        }
    }

    /// Begins a transaction that writes up to `bytes` and frees this many blocks on disk, unless
    /// its group has reached its limit of frees.
    pub(super) fn begin_freeing(
        &self,
        objects: &[&LiveObject],
        bytes: u64,
        blocks: u64,
    ) -> Result<Freeing, ZplError> {
        let tx = self.begin(objects, SpaceDemand::Frees(bytes), |_| 0)?;
        let is_admitted = tx.claim_frees(blocks);
        Ok(if is_admitted { Freeing::Begun(tx) } else { Freeing::After(tx.txg()) })
    }

    /// Waits until everything that was done so far is on disk.
    pub(super) fn sync(&self) -> Result<(), ZplError> {
        Ok(self.engine.wait_synced(self.engine.open_txg())?)
    }
}
