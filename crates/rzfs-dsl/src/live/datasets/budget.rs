//! The space of a head, as seen by the writers of its files.

use super::head::LiveDataset;
use crate::live::space::accounts::Accounts;
use crate::live::space::demand::{SpaceDemand, SpaceRefusal, SpaceUse};
use rzfs_dmu::write::ObjsetPolicy;
use rzfs_format::{BlockPointer, Txg};
use std::sync::Arc;

/// Enforces the space limits of a head: its quotas and reservations, those of its ancestors, and
/// the size of the pool.
#[derive(Clone, Debug)]
pub struct HeadBudget {
    accounts: Arc<Accounts>,
    dataset: Arc<LiveDataset>,
}

impl HeadBudget {
    pub(crate) fn new(accounts: &Arc<Accounts>, dataset: &Arc<LiveDataset>) -> Self {
        Self { accounts: Arc::clone(accounts), dataset: Arc::clone(dataset) }
    }

    /// Admits a change in a txg before anything is modified; its bytes are logical.
    ///
    /// # Errors
    /// [`SpaceRefusal`].
    pub fn admit(&self, txg: Txg, demand: SpaceDemand) -> Result<(), SpaceRefusal> {
        self.accounts.admit((self.dataset.id(), self.dataset.policy().copies), txg, demand)
    }

    /// Bytes used by contents, with all their copies.
    #[must_use]
    pub fn with_copies(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(u64::from(self.dataset.policy().copies))
    }

    /// How blocks of the head are written, if the pool supports sharing: blocks are shared with
    /// datasets of the same policy.
    #[must_use]
    pub fn sharing_policy(&self) -> Option<ObjsetPolicy> {
        self.accounts.sharing().can_clone().then(|| self.dataset.policy())
    }

    /// Whether another reference to a block can be counted, as no damage prevents it.
    #[must_use]
    pub fn can_count(&self, pointer: &BlockPointer) -> bool {
        let tell = |error: &_| tracing::debug!(%error, ?pointer, "a block is not shared");
        self.accounts.sharing().look_up(pointer).inspect_err(tell).is_ok()
    }

    /// Space of the head, as on disk.
    #[must_use]
    pub fn space(&self) -> SpaceUse {
        self.accounts.space(self.dataset.id())
    }
}
