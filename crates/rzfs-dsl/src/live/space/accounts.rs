//! The space of a live pool: what can be allocated, what blocks share, and what is promised.

use super::demand::{SpaceDemand, SpaceRefusal, SpaceUse};
use super::ledger::{Ledger, Room};
use super::sharing::Sharing;
use crate::dataset::property::DatasetProperty;
use crate::dataset::{Dataset, DatasetError};
use crate::live::space::limits::SpaceTier;
use parking_lot::Mutex;
use rzfs_format::dsl::{DslDataset, DslDir};
use rzfs_format::{ObjectId, Txg, VdevId};
use rzfs_metaslab::allocator::{Allocator, ClassKind};
use rzfs_vdev::VdevTree;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Unit of [`inflation`].
const ONE: u64 = 256;
/// The block by whose layout space is deflated.
const TYPICAL_BLOCK: u64 = 128 << 10;

/// The space of a pool.
#[derive(Debug)]
pub(crate) struct Accounts {
    allocator: Arc<Allocator>,
    sharing: Sharing,
    ledger: Mutex<Ledger>,
    /// The maximum ratio of allocated size to contents.
    inflation: AtomicU64,
}

impl Accounts {
    pub(crate) fn new(allocator: &Arc<Allocator>, sharing: Sharing, vdevs: &VdevTree) -> Self {
        Self {
            allocator: Arc::clone(allocator),
            sharing,
            ledger: Mutex::default(),
            inflation: AtomicU64::new(inflation(vdevs)),
        }
    }

    pub(crate) const fn allocator(&self) -> &Arc<Allocator> {
        &self.allocator
    }

    pub(crate) const fn sharing(&self) -> &Sharing {
        &self.sharing
    }

    /// Updates the accounts after the pool has gained vdevs.
    pub(crate) fn follow_vdevs(&self, vdevs: &VdevTree) {
        self.inflation.store(inflation(vdevs), Ordering::Relaxed);
    }

    /// Bytes in the pool for datasets, used or not, for a change of this tier.
    pub(crate) fn usable_space(&self, tier: SpaceTier) -> u64 {
        let usage = self.allocator.usage();
        let space = usage.normal_space.saturating_add(self.sharing.saved());
        space.saturating_sub(tier.kept_back(usage.slop))
    }

    /// Maximum allocated bytes for this many bytes of contents.
    fn inflated(&self, bytes: u64, copies: u64) -> u64 {
        let inflation = self.inflation.load(Ordering::Relaxed);
        let bytes = u128::from(bytes) * u128::from(copies) * u128::from(inflation);
        u64::try_from(bytes / u128::from(ONE)).unwrap_or(u64::MAX)
    }

    /// Admits a change of a head before anything is modified; its bytes are those of the contents,
    /// written in this many copies.
    pub(crate) fn admit(
        &self,
        (head, copies): (ObjectId, u8),
        txg: Txg,
        demand: SpaceDemand,
    ) -> Result<(), SpaceRefusal> {
        let demand = demand.map(|bytes| self.inflated(bytes, copies.into()));
        self.ledger.lock().admit(head, txg, demand)
    }

    /// Admits blocks of intent logs, which may go to the ordinary space.
    pub(crate) fn admit_log(&self, txg: Txg, bytes: u64) -> Result<(), SpaceRefusal> {
        let bytes = self.inflated(bytes, 1);
        self.ledger.lock().admit_log(txg, bytes)
    }

    /// Space of a head, as on disk.
    pub(crate) fn space(&self, head: ObjectId) -> SpaceUse {
        self.ledger.lock().space(head)
    }

    /// Opens the accounts of a head and of its ancestor directories.
    pub(crate) fn open(&self, dataset: &Dataset) -> Result<(), DatasetError> {
        let number = |property| dataset.stored_number(property).map(Option::unwrap_or_default);
        let limits = (number(DatasetProperty::RefQuota)?, number(DatasetProperty::RefReservation)?);
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

    /// Closes the accounts of heads that are no longer open.
    pub(crate) fn close_heads(&self, heads: &[ObjectId]) {
        let mut ledger = self.ledger.lock();
        heads.iter().for_each(|head| ledger.close_head(*head));
    }

    /// Closes the account of a destroyed directory.
    pub(crate) fn close_dir(&self, dir: ObjectId) {
        self.ledger.lock().close_dir(dir);
    }

    /// What can be allocated in the normal class, except for part of the slop space.
    fn room(&self) -> Option<Room> {
        let usage = self.allocator.usage();
        let normal = usage.class(ClassKind::Normal);
        let free = u128::from(normal.free()) * u128::from(usage.normal_space);
        let free = u64::try_from(free.checked_div(normal.space.into())?).unwrap_or(u64::MAX);
        let bytes = free.saturating_sub(SpaceTier::Frees.kept_back(usage.slop));
        let refusal = match normal.deferred {
            0 => SpaceRefusal::NoSpace,
            _ => SpaceRefusal::Later,
        };
        Some(Room { bytes, refusal })
    }

    /// Updates directories and heads from a txg that is on disk.
    pub(crate) fn settle<'a>(
        &self,
        txg: Txg,
        dirs: impl Iterator<Item = (ObjectId, &'a DslDir)>,
        heads: &BTreeMap<ObjectId, DslDataset>,
    ) {
        let usable = SpaceTier::ALL.map(|tier| self.usable_space(tier));
        let room = self.room();
        let mut ledger = self.ledger.lock();
        ledger.set_usable(usable);
        if let Some(room) = room {
            ledger.set_room(room);
        }
        for (id, dir) in dirs {
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

/// The maximum ratio of allocated size to contents, in 256ths: that of one-sector blocks on the
/// vdev with the least favourable layout.
fn inflation(vdevs: &VdevTree) -> u64 {
    let of = |vdev: VdevId| {
        let smallest = 1_u64 << vdevs.top_level(vdev)?.ashift()?;
        let allocated = vdevs.allocated_size(vdev, smallest, Txg(0))?;
        let typical = vdevs.allocated_size(vdev, TYPICAL_BLOCK, Txg(0))?.max(1);
        // The size of a sector as accounts count it.
        let deflated = u128::from(allocated) * u128::from(TYPICAL_BLOCK) / u128::from(typical);
        u64::try_from(deflated * u128::from(ONE) / u128::from(smallest)).ok()
    };
    let tops = vdevs.top_levels().filter_map(|top| of(top.vdev_id()?));
    tops.max().unwrap_or(ONE).max(ONE)
}
