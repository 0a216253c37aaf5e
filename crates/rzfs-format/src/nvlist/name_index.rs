//! The hash table over the names of a list: chains of slots, newest first.

use std::hash::{BuildHasher, RandomState};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// End of a chain.
const NONE: u32 = u32::MAX;

/// Buckets of a table when its first name comes; always a power of two.
const FIRST_BUCKETS: usize = 16;

/// For each name the slots of the list that have it, as chains in buckets.
///
/// Names are hostile, so the hash is seeded per process; chains of equal names are found newest
/// first without being walked.
#[derive(Clone, Default)]
pub(super) struct NameIndex {
    /// Head of each bucket's chain.
    buckets: Vec<u32>,
    /// By slot: hash of the name and the next slot of its chain.
    links: Vec<Link>,
    seed: u64,
}

#[derive(Clone, Copy)]
struct Link {
    hash: u64,
    next: u32,
}

impl NameIndex {
    /// Enters the name of the next slot: slots are numbered in the order of insertion.
    pub(super) fn insert(&mut self, name: &[u8]) {
        if self.buckets.is_empty() {
            self.seed = RandomState::new().hash_one(0_u8);
            self.rebuild(FIRST_BUCKETS);
        } else if self.links.len() >= self.buckets.len() {
            self.rebuild(self.buckets.len() * 2);
        }
        let hash = xxh3_64_with_seed(name, self.seed);
        self.links.push(Link { hash, next: NONE });
        self.link(self.links.len() - 1);
    }

    /// Takes a slot out of the chains; its number stays used.
    pub(super) fn remove(&mut self, name: &[u8], slot: usize) {
        let Some(target) = slot_number(slot) else { return };
        let Some(after) = self.links.get(slot).map(|link| link.next) else { return };
        let bucket = self.bucket(xxh3_64_with_seed(name, self.seed));
        let mut previous: Option<usize> = None;
        let mut at = self.buckets.get(bucket).copied().unwrap_or(NONE);
        while at != NONE {
            let Some(link) = self.links.get(at as usize).copied() else { return };
            if at == target {
                match previous.and_then(|previous| self.links.get_mut(previous)) {
                    Some(link) => link.next = after,
                    None => self.buckets[bucket] = after,
                }
                return;
            }
            previous = Some(at as usize);
            at = link.next;
        }
    }

    /// Slots whose name has the same hash, newest first.
    pub(super) fn candidates(&self, name: &[u8]) -> impl Iterator<Item = usize> {
        let hash = xxh3_64_with_seed(name, self.seed);
        let first = self.buckets.get(self.bucket(hash)).copied().unwrap_or(NONE);
        let link = |at: u32| self.links.get(at as usize).copied();
        std::iter::successors(Some(first).filter(|at| *at != NONE), move |at| {
            link(*at).map(|link| link.next).filter(|next| *next != NONE)
        })
        .filter(move |at| link(*at).is_some_and(|link| link.hash == hash))
        .map(|at| at as usize)
    }

    fn bucket(&self, hash: u64) -> usize {
        hash as usize & self.buckets.len().saturating_sub(1)
    }

    fn link(&mut self, slot: usize) {
        let Some(number) = slot_number(slot) else { return };
        let bucket = self.bucket(self.links[slot].hash);
        self.links[slot].next = std::mem::replace(&mut self.buckets[bucket], number);
    }

    fn rebuild(&mut self, buckets: usize) {
        let linked = self.linked();
        self.buckets = vec![NONE; buckets];
        for (slot, linked) in linked.into_iter().enumerate() {
            if linked {
                self.link(slot);
            }
        }
    }

    /// Which slots are in a chain: all but the removed ones.
    fn linked(&self) -> Vec<bool> {
        let mut linked = vec![false; self.links.len()];
        for head in &self.buckets {
            let mut at = *head;
            while let Some(link) = self.links.get(at as usize) {
                linked[at as usize] = true;
                at = link.next;
            }
        }
        linked
    }
}

/// A slot's number in the table; lists are bounded below 2^31 pairs.
fn slot_number(slot: usize) -> Option<u32> {
    u32::try_from(slot).ok().filter(|slot| *slot != NONE)
}
