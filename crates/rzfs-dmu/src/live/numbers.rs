//! Allocating numbers for new objects (spec 03, section 5).
//!
//! Numbers are allocated upwards, skipping nearly full dnode blocks. After many frees the search
//! restarts.

use crate::tree::AboveCheck;
use crate::{DmuError, Objset};
use rzfs_format::dnode::{SLOTS_PER_BLOCK, slots};
use rzfs_format::{BlockId, BlockPointer, ObjectId, Txg};
use std::collections::HashMap;

/// Dnode blocks with more dnodes than this are skipped.
const NEARLY_FULL: u64 = 24;
/// Freed objects after which the search restarts (`dmu_rescan_dnode_threshold`).
const RESCAN_AFTER: u64 = 131_072;
/// New blocks below damage, each beside others below the same, after which nobody looks further.
const MOST_PASSED: u32 = 64;
const PER_BLOCK: u64 = SLOTS_PER_BLOCK as u64;

/// Slots of a dnode block, one bit for each slot in use.
type Slots = u32;

/// Tracks free object numbers.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// The next number to try.
    next: u64,
    /// The dnode block that contains `next`, with its slots in use.
    current: Option<(u64, Slots)>,
    /// Numbers in use but not on disk yet, by block.
    taken: HashMap<u64, Slots>,
    freed: u64,
}

/// `count` slots from `first` on.
const fn mask(first: u64, count: u8) -> Slots {
    let ones = if count as u32 >= Slots::BITS { Slots::MAX } else { (1 << count) - 1 };
    ones << first
}

impl Numbers {
    /// Allocates a number for an object of `count` slots; `on_disk` is the set as last synced.
    pub(super) fn take(&mut self, on_disk: &Objset, count: u8) -> Result<ObjectId, DmuError> {
        let last = on_disk.meta_object().map_or(0, |meta| meta.dnode().max_block_id.0);
        let mut passed = 0;
        loop {
            let block = self.next / PER_BLOCK;
            if ObjectId(self.next) >= ObjectId::END {
                return Err(DmuError::Full { objset: on_disk.id() });
            }
            let used = match self.current {
                Some((current, used)) if current == block => used,
                _ => match self.used_slots(on_disk, block) {
                    // In a damaged block free slots are unknown, and it cannot be written.
                    Err(error) if error.is_damage() => {
                        passed += u32::from(block > last);
                        if passed > MOST_PASSED {
                            return Err(error);
                        }
                        Slots::MAX
                    }
                    used => used?,
                },
            };
            let free = (self.next % PER_BLOCK..PER_BLOCK.saturating_sub(u64::from(count) - 1))
                .find(|slot| used & mask(*slot, count) == 0);
            if let Some(slot) = free {
                let taken = mask(slot, count);
                self.current = Some((block, used | taken));
                *self.taken.entry(block).or_default() |= taken;
                self.next = block * PER_BLOCK + slot + u64::from(count);
                return Ok(ObjectId(block * PER_BLOCK + slot));
            }
            self.next = block_with_room(on_disk, block + 1)? * PER_BLOCK;
        }
    }

    /// Claims this number; returns whether it was free.
    pub(super) fn claim(
        &mut self,
        on_disk: &Objset,
        number: ObjectId,
        count: u8,
    ) -> Result<bool, DmuError> {
        let (block, slot) = (number.0 / PER_BLOCK, number.0 % PER_BLOCK);
        let wanted = mask(slot, count);
        if number.0 == 0 || number >= ObjectId::END || slot + u64::from(count) > PER_BLOCK {
            return Err(DmuError::InvalidObject { object: number });
        }
        if self.used_slots(on_disk, block)? & wanted != 0 {
            return Ok(false);
        }
        *self.taken.entry(block).or_default() |= wanted;
        self.current = None;
        Ok(true)
    }

    /// Marks an allocated number as written to disk, or as unused again.
    pub(super) fn settle(&mut self, number: ObjectId, count: u8) {
        let (block, slot) = (number.0 / PER_BLOCK, number.0 % PER_BLOCK);
        if let Some(taken) = self.taken.get_mut(&block) {
            *taken &= !mask(slot, count);
            if *taken == 0 {
                self.taken.remove(&block);
            }
        }
    }

    /// Records that an object is gone from disk.
    pub(super) fn free(&mut self) {
        self.freed += 1;
        if self.freed >= RESCAN_AFTER {
            self.freed = 0;
            self.next = 0;
            self.current = None;
        }
    }

    fn used_slots(&self, on_disk: &Objset, block: u64) -> Result<Slots, DmuError> {
        let mut used = self.taken.get(&block).copied().unwrap_or_default();
        if block == 0 {
            used |= 1;
        }
        let Some(meta) = on_disk.meta_object() else { return Ok(used) };
        // What is above may be damaged even if the block is a new one.
        let (blocks, newer_than, limit) = (block..block.saturating_add(1), Txg(0), u64::MAX);
        meta.tree().check_above(AboveCheck { blocks, newer_than, limit })?;
        if block > meta.dnode().max_block_id.0 {
            return Ok(used);
        }
        let contents = meta.read_block(BlockId(block))?;
        let mut last = None;
        for (slot, dnode) in slots(&contents.data, contents.order) {
            // The slots between this dnode and the one before belong to that one. An unreadable
            // dnode keeps its slot.
            if let Some(owner) = last.take() {
                used |= mask(owner, (slot as u64 - owner) as u8);
            }
            if !matches!(dnode, Ok(None)) {
                last = Some(slot as u64);
            }
        }
        if let Some(owner) = last {
            used |= mask(owner, (PER_BLOCK - owner) as u8);
        }
        Ok(used)
    }
}

/// The first dnode block from `from` on that may have free slots.
fn block_with_room(on_disk: &Objset, from: u64) -> Result<u64, DmuError> {
    let Some(meta) = on_disk.meta_object() else { return Ok(from) };
    let per_group = 1_u64 << meta.dnode().pointers_shift();
    let mut block = from;
    while block <= meta.dnode().max_block_id.0 {
        let end = (block / per_group + 1) * per_group;
        let pointers = meta.pointers(0, block..end);
        for (pointer, number) in pointers.into_iter().zip(block..) {
            if pointer.as_ref().is_ok_and(has_room) {
                return Ok(number);
            }
        }
        block = end;
    }
    // A new block may lie below damage, too.
    match meta.pointers(0, block..block.saturating_add(1)).pop() {
        Some(Err(error)) if error.is_damage() => Ok((block / per_group + 1) * per_group),
        _ => Ok(block),
    }
}

fn has_room(pointer: &BlockPointer) -> bool {
    pointer.fill() <= NEARLY_FULL
}
