//! Making room: selects the blocks to evict, so that the lists get the sizes given by the balance
//! (spec 03, section 10.4).

use super::balance::PerList;
use super::entry::{Class, State, header_size};
use super::evictor::Evictor;
use super::lists::Lists;
use crate::{BlockKind, Weighted};
use std::time::Duration;

const fn class(state: State, kind: BlockKind) -> Class {
    Class { state, kind }
}

const MRU_DATA: Class = class(State::Mru, BlockKind::Data);
const MRU_METADATA: Class = class(State::Mru, BlockKind::Metadata);
const MFU_DATA: Class = class(State::Mfu, BlockKind::Data);
const MFU_METADATA: Class = class(State::Mfu, BlockKind::Metadata);
const MRU_GHOST_DATA: Class = class(State::MruGhost, BlockKind::Data);
const MRU_GHOST_METADATA: Class = class(State::MruGhost, BlockKind::Metadata);
const MFU_GHOST_DATA: Class = class(State::MfuGhost, BlockKind::Data);
const MFU_GHOST_METADATA: Class = class(State::MfuGhost, BlockKind::Metadata);
const UNCACHED: [Class; 2] =
    [class(State::Uncached, BlockKind::Data), class(State::Uncached, BlockKind::Metadata)];
const GHOSTS: [Class; 4] = [MRU_GHOST_DATA, MRU_GHOST_METADATA, MFU_GHOST_DATA, MFU_GHOST_METADATA];

impl<V: Weighted> Lists<V> {
    /// Frees about `excess` bytes, rather more than less; returns their number. Less means that
    /// only blocks about to be inserted by other threads remain.
    pub(super) fn evict(&self, evictor: &mut Evictor, excess: u64) -> u64 {
        let hits = PerList {
            mru_data: self.take_ghost_hits(MRU_GHOST_DATA),
            mru_metadata: self.take_ghost_hits(MRU_GHOST_METADATA),
            mfu_data: self.take_ghost_hits(MFU_GHOST_DATA),
            mfu_metadata: self.take_ghost_hits(MFU_GHOST_METADATA),
        };
        evictor.balance.adapt(&hits, &evictor.limits);

        let mut freed = 0;
        for class in UNCACHED {
            freed += self.evict_class(evictor, class, excess.saturating_sub(freed), None);
        }
        let live = self.live();
        let quotas = evictor.balance.quotas(&live, excess.saturating_sub(freed));
        let now = Some(self.clock.now());
        let mut step = |evictor: &mut Evictor, class, over: u64| {
            let left = excess.saturating_sub(freed);
            freed += self.evict_class(evictor, class, over.min(left), now);
        };
        step(evictor, MRU_METADATA, live.mru_metadata.saturating_sub(quotas.mru_metadata));
        let metadata = self.live().metadata();
        step(evictor, MFU_METADATA, metadata.saturating_sub(quotas.metadata));
        let live = self.live();
        let mru_quota = evictor.balance.mru_data_quota(&quotas, live.metadata());
        step(evictor, MRU_DATA, live.mru_data.saturating_sub(mru_quota));
        step(evictor, MFU_DATA, u64::MAX);

        // Rounding, short lists and young blocks may leave something to do.
        for class in [MRU_DATA, MFU_DATA, MRU_METADATA, MFU_METADATA] {
            freed += self.evict_class(evictor, class, excess.saturating_sub(freed), None);
        }
        freed += self.trim_ghosts(evictor);
        for class in GHOSTS {
            let headers = excess.saturating_sub(freed).div_ceil(header_size::<V>());
            freed += self.forget_class(evictor, class, u64::MAX, headers);
        }
        freed
    }

    /// The sizes of the lists of blocks that are in memory.
    fn live(&self) -> PerList {
        PerList {
            mru_data: self.list_size(MRU_DATA),
            mru_metadata: self.list_size(MRU_METADATA),
            mfu_data: self.list_size(MFU_DATA),
            mfu_metadata: self.list_size(MFU_METADATA),
        }
    }

    /// Removes excess ghosts.
    fn trim_ghosts(&self, evictor: &mut Evictor) -> u64 {
        let limits = self.live().ghost_limits();
        evictor.limits = limits;
        let mut freed = 0;
        for (class, limit) in GHOSTS.into_iter().zip([
            limits.mru_data,
            limits.mru_metadata,
            limits.mfu_data,
            limits.mfu_metadata,
        ]) {
            let over = self.list_size(class).saturating_sub(limit);
            freed += self.forget_class(evictor, class, over, u64::MAX);
        }
        freed
    }

    /// Evicts blocks of a class, shard by shard, until `bytes` are free or none are left that are
    /// old enough; returns the bytes freed.
    fn evict_class(
        &self,
        evictor: &mut Evictor,
        class: Class,
        bytes: u64,
        now: Option<Duration>,
    ) -> u64 {
        let next = class.after_eviction();
        // A block that leaves no ghost takes its header with it.
        let header = if next.is_none() { header_size::<V>() } else { 0 };
        let (mut freed, mut idle) = (0, 0);
        let mut taken = Vec::new();
        while freed < bytes && idle < self.shards.len() {
            let shard = evictor.next_shard(class, self.shards.len());
            let released = {
                let mut shard = self.lock(shard);
                shard.evict(class, bytes - freed, now, &mut taken);
                let weight = taken.iter().map(|(_, weight)| weight).sum();
                self.shrink_list(class, weight);
                if let Some(next) = next {
                    self.grow_list(next, weight);
                }
                weight + header * taken.len() as u64
            };
            // The values are dropped before their bytes can be reused.
            taken.clear();
            self.release(released);
            idle = if released == 0 { idle + 1 } else { 0 };
            freed += released;
        }
        freed
    }

    /// Removes ghosts of a class, shard by shard, until that many bytes of weight or that many
    /// ghosts are gone, or all are; returns the bytes of memory freed.
    fn forget_class(
        &self,
        evictor: &mut Evictor,
        class: Class,
        mut weight: u64,
        mut count: u64,
    ) -> u64 {
        let (mut freed, mut idle) = (0, 0);
        while weight > 0 && count > 0 && idle < self.shards.len() {
            let shard = evictor.next_shard(class, self.shards.len());
            let (gone, gone_weight) = {
                let mut shard = self.lock(shard);
                let gone = shard.forget(class, weight, count);
                self.shrink_list(class, gone.1);
                gone
            };
            self.release(gone * header_size::<V>());
            freed += gone * header_size::<V>();
            weight = weight.saturating_sub(gone_weight);
            count -= gone;
            idle = if gone == 0 { idle + 1 } else { 0 };
        }
        freed
    }
}
