//! The space of a head, as whoever writes its files asks for it.

use crate::dataset::{Dataset, DatasetError};
use crate::live::LiveDataset;
use crate::live::pool::{Inner, LivePool};
use crate::live::space::SpaceTier;
use crate::live::space::ledger::{HeadSpace, Room, SpaceClaim, SpaceShortage};
use crate::live::sync::state::SyncState;
use rzfs_dmu::write::ObjsetPolicy;
use rzfs_format::Txg;
use rzfs_format::dsl::DslDataset;
use rzfs_format::{BlockPointer, ObjectId, VdevId};
use rzfs_metaslab::allocator::ClassKind;
use rzfs_vdev::VdevTree;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Unit of [`inflation`].
pub(crate) const ONE: u64 = 256;
/// The block by whose layout space is deflated.
const TYPICAL_BLOCK: u64 = 128 << 10;

/// Watches over the space of a head: its quotas and reservations, those of the directories above
/// it, and the size of the pool.
#[derive(Clone)]
pub struct HeadBudget {
    inner: Arc<Inner>,
    dataset: Arc<LiveDataset>,
}

impl fmt::Debug for HeadBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeadBudget").field("dataset", &self.dataset).finish_non_exhaustive()
    }
}

impl LivePool {
    /// The budget of a head that is open.
    #[must_use]
    pub fn budget(&self, dataset: &Arc<LiveDataset>) -> HeadBudget {
        HeadBudget { inner: Arc::clone(self.inner()), dataset: Arc::clone(dataset) }
    }
}

impl HeadBudget {
    /// Admits a change of a txg before anything is changed; its bytes are those of the contents.
    ///
    /// # Errors
    /// [`SpaceShortage`].
    pub fn admit(&self, txg: Txg, claim: SpaceClaim) -> Result<(), SpaceShortage> {
        let copies = u64::from(self.dataset.policy().copies);
        let inflation = self.inner.inflation.load(Ordering::Relaxed);
        let full = |bytes: u64| {
            let bytes = u128::from(bytes) * u128::from(copies) * u128::from(inflation);
            u64::try_from(bytes / u128::from(ONE)).unwrap_or(u64::MAX)
        };
        let claim = match claim {
            SpaceClaim::Takes(bytes) => SpaceClaim::Takes(full(bytes)),
            SpaceClaim::Shares { shared, written } => {
                SpaceClaim::Shares { shared: full(shared), written: full(written) }
            }
            SpaceClaim::Frees(bytes) => SpaceClaim::Frees(full(bytes)),
        };
        self.inner.ledger.lock().admit(self.dataset.id(), txg, claim)
    }

    /// Bytes that contents take, with all their copies.
    #[must_use]
    pub fn with_copies(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(u64::from(self.dataset.policy().copies))
    }

    /// How blocks of the head are written, if the pool can share them: blocks are shared with
    /// datasets whose policy is the same.
    #[must_use]
    pub fn sharing_policy(&self) -> Option<ObjsetPolicy> {
        self.inner.sharing.can_clone().then(|| self.dataset.policy())
    }

    /// Whether one reference more to a block can be counted: no damage is in the way.
    #[must_use]
    pub fn can_count(&self, pointer: &BlockPointer) -> bool {
        let tell = |error: &_| tracing::debug!(%error, ?pointer, "a block is not shared");
        self.inner.sharing.look_up(pointer).inspect_err(tell).is_ok()
    }

    /// Space of the head as it is on disk.
    #[must_use]
    pub fn space(&self) -> HeadSpace {
        self.inner.ledger.lock().space(self.dataset.id())
    }
}

/// How much more than their contents blocks can take, in 256th parts: blocks of one sector on the
/// vdev whose layout suits them least.
pub(crate) fn inflation(vdevs: &VdevTree) -> u64 {
    let of = |vdev: VdevId| {
        let smallest = 1_u64 << vdevs.top_level(vdev)?.ashift()?;
        let allocated = vdevs.allocated_size(vdev, smallest, Txg(0))?;
        let typical = vdevs.allocated_size(vdev, TYPICAL_BLOCK, Txg(0))?.max(1);
        // What a sector takes, as accounts count it.
        let deflated = u128::from(allocated) * u128::from(TYPICAL_BLOCK) / u128::from(typical);
        u64::try_from(deflated * u128::from(ONE) / u128::from(smallest)).ok()
    };
    let tops = vdevs.top_levels().filter_map(|top| of(top.vdev_id()?));
    tops.max().unwrap_or(ONE).max(ONE)
}

impl Inner {
    /// Opens the accounts of a head and of the directories above it.
    pub(crate) fn open_account(&self, dataset: &Dataset) -> Result<(), DatasetError> {
        let number = |name| dataset.stored_number(name).map(Option::unwrap_or_default);
        let limits = (number("refquota")?, number("refreservation")?);
        let mut chain = Vec::new();
        let mut level = Some(dataset.clone());
        while let Some(dataset) = level {
            chain.push((dataset.directory_object(), dataset.dsl_dir().clone()));
            level = dataset.parent()?;
        }
        let mut ledger = self.ledger.lock();
        for (id, dir) in chain {
            if !ledger.has_dir(id) {
                ledger.set_dir(id, &dir);
            }
        }
        if !ledger.has_head(dataset.object()) {
            ledger.set_head(dataset.object(), dataset.dsl_dataset());
        }
        ledger.set_head_limits(dataset.object(), limits.0, limits.1);
        Ok(())
    }

    /// What can be allocated in the normal class, but for a part of what is held back.
    fn room(&self) -> Option<Room> {
        let usage = self.allocator.usage();
        let normal = usage.class(ClassKind::Normal);
        let free = u128::from(normal.free()) * u128::from(usage.normal_space);
        let free = u64::try_from(free.checked_div(normal.space.into())?).unwrap_or(u64::MAX);
        let bytes = free.saturating_sub(SpaceTier::Frees.kept_back(usage.slop));
        let shortage = match normal.deferred {
            0 => SpaceShortage::NoSpace,
            _ => SpaceShortage::Later,
        };
        Some(Room { bytes, shortage })
    }

    /// Takes over what a txg that is on disk has made of the accounts.
    pub(crate) fn settle_accounts(
        &self,
        state: &SyncState,
        txg: Txg,
        heads: &BTreeMap<ObjectId, DslDataset>,
    ) {
        self.sharing.follow(state);
        let usable = SpaceTier::ALL.map(|tier| self.usable_space(tier));
        let room = self.room();
        let mut ledger = self.ledger.lock();
        ledger.set_usable(usable);
        if let Some(room) = room {
            ledger.set_room(room);
        }
        for (id, dir) in state.dirs.known() {
            ledger.set_dir(id, dir);
        }
        for (id, head) in heads {
            if ledger.has_head(*id) {
                ledger.set_head(*id, head);
            }
        }
        ledger.settle(txg);
    }
}
