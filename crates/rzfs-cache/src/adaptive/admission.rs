//! Inserting blocks: room is reserved first, and made by eviction if needed.

use super::entry::{Entry, Purpose, Retention, header_size};
use super::flight::Flight;
use super::lists::Lists;
use super::shard::{Arriving, Inserted, Shard};
use crate::hashed::Hashed;
use crate::{BlockKey, BlockKind, Weighted};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The unneeded part of an arrived block and its reserved room.
struct Leftover<V> {
    room: u64,
    block: Option<V>,
}

impl<V: Weighted> Lists<V> {
    /// Reserves room, evicting for it; returns whether there is room.
    fn reserve(&self, bytes: u64) -> bool {
        loop {
            let max = self.max.load(Ordering::Relaxed);
            let taken = self.size.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |size| {
                size.checked_add(bytes).filter(|&size| size <= max)
            });
            if taken.is_ok() {
                return true;
            }
            if bytes > max {
                return false;
            }
            let mut evictor = self.evictor.lock();
            let size = self.size.0.load(Ordering::Relaxed);
            let excess = size.saturating_add(bytes).saturating_sub(max);
            if excess > 0 && self.evict(&mut evictor, excess) == 0 {
                return false;
            }
        }
    }

    /// Inserts a block, if room can be made.
    pub(super) fn admit(&self, key: Hashed<BlockKey>, kind: BlockKind, value: V) {
        if self.shard(&key).holds(&key) {
            return;
        }
        let arriving = self.arriving(key, kind, Purpose::Demand, Retention::Cache, value);
        let charge = arriving.charge();
        if !self.reserve(charge) {
            self.not_enough.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut shard = self.shard(&key);
        let leftover = self.place(&mut shard, arriving);
        drop(shard);
        self.dispose(leftover);
    }

    /// Inserts a block in place of what its key stood for, which is no longer found from that
    /// moment on: also if there is no room for the block, or the other one is being read.
    pub(super) fn replace(&self, key: Hashed<BlockKey>, kind: BlockKind, value: V) {
        let arriving = self.arriving(key, kind, Purpose::Demand, Retention::Cache, value);
        let reserved = self.reserve(arriving.charge());
        let mut shard = self.shard(&key);
        shard.close_flight(&key);
        let before = shard.remove(&key);
        if let Some(entry) = &before {
            self.shrink_list(entry.class, entry.weight);
        }
        let leftover = match reserved {
            true => self.place(&mut shard, arriving),
            false => Leftover { room: 0, block: Some(arriving.value) },
        };
        drop(shard);
        self.dispose(leftover);
        if let Some(before) = before {
            self.forget(before);
        }
        if !reserved {
            self.not_enough.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Releases the room of a removed entry.
    pub(super) fn forget(&self, entry: Entry<V>) {
        let held = if entry.value.is_some() { entry.weight } else { 0 };
        drop(entry);
        self.release(held + header_size::<V>());
    }

    /// Inserts a block that was read, if it may stay and room can be made, and ends its flight, in
    /// one step. It may not stay if its key has been replaced since.
    pub(super) fn land(
        &self,
        (key, flight): (Hashed<BlockKey>, &Arc<Flight<V>>),
        kind: BlockKind,
        purpose: Purpose,
        retention: Retention,
        value: V,
    ) {
        let mut arriving = self.arriving(key, kind, purpose, retention, value);
        let charge = arriving.charge();
        let reserved = self.reserve(charge);
        let mut shard = self.shard(&key);
        // A caller may have joined for more than a prefetch.
        let wanted = shard.end_flight(&key, flight);
        arriving.purpose = wanted.unwrap_or(purpose);
        let may_stay = retention == Retention::Cache || arriving.purpose != Purpose::Demand;
        let stays = wanted.is_some() && may_stay;
        let leftover = match (reserved, stays) {
            (true, true) => self.place(&mut shard, arriving),
            (true, false) => Leftover { room: charge, block: Some(arriving.value) },
            (false, _) => Leftover { room: 0, block: Some(arriving.value) },
        };
        drop(shard);
        self.dispose(leftover);
        if stays && !reserved {
            self.not_enough.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn arriving(
        &self,
        key: Hashed<BlockKey>,
        kind: BlockKind,
        purpose: Purpose,
        retention: Retention,
        value: V,
    ) -> Arriving<V> {
        let weight = value.weight().max(1) as u64;
        Arriving { key, kind, purpose, retention, value, weight, now: self.clock.now() }
    }

    /// Puts a block for which room is reserved into a shard.
    fn place(&self, shard: &mut Shard<V>, arriving: Arriving<V>) -> Leftover<V> {
        let (weight, charge) = (arriving.weight, arriving.charge());
        match shard.insert(arriving) {
            Inserted::New(class) => {
                self.grow_list(class, weight);
                Leftover { room: 0, block: None }
            }
            Inserted::Returned { ghost, ghost_weight, to } => {
                self.shrink_list(ghost, ghost_weight);
                self.grow_list(to, weight);
                Leftover { room: header_size::<V>(), block: None }
            }
            Inserted::Refused(block) => Leftover { room: charge, block: Some(block) },
        }
    }

    /// Drops what was not needed. No shard is locked then: dropping a block takes time.
    fn dispose(&self, Leftover { room, block }: Leftover<V>) {
        drop(block);
        self.release(room);
    }
}
