//! Groups: the metaslabs of one vdev that serve one class, in the order in which they are tried
//! (spec 06, sections 9.3 and 9.7).
//!
//! Lock order: a metaslab's state, then a group's slots, then its order.

use super::request::ClassKind;
use crate::weight::{Activation, Weight};
use parking_lot::Mutex;
use rzfs_format::VdevId;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The place of a metaslab in its group's order: unused ones first, the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct OrderKey {
    rank: u8,
    weight: Reverse<Weight>,
    pub(crate) index: u64,
}

impl OrderKey {
    pub(crate) const fn new(active: Option<Activation>, weight: Weight, index: u64) -> Self {
        let rank = match active {
            None => 0,
            Some(Activation::Primary) => 1,
            Some(Activation::Secondary | Activation::Claim) => 2,
        };
        Self { rank, weight: Reverse(weight), index }
    }
}

/// The metaslabs that an allocator uses now.
#[derive(Clone, Copy, Default, Debug)]
struct Slots {
    primary: Option<u64>,
    secondary: Option<u64>,
}

/// Space of a group, in bytes as the vdev counts them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SpaceTotals {
    /// What its metaslabs have.
    pub space: u64,
    /// What is allocated, deferred frees included.
    pub allocated: u64,
    /// Frees that cannot be used again yet.
    pub deferred: u64,
}

impl SpaceTotals {
    /// What is not allocated.
    #[must_use]
    pub const fn free(&self) -> u64 {
        self.space.saturating_sub(self.allocated)
    }

    pub(crate) const fn add(&mut self, other: Self) {
        self.space = self.space.saturating_add(other.space);
        self.allocated = self.allocated.saturating_add(other.allocated);
        self.deferred = self.deferred.saturating_add(other.deferred);
    }
}

/// The metaslabs of one vdev that serve one class.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) vdev: VdevId,
    pub(crate) class: ClassKind,
    order: Mutex<BTreeSet<OrderKey>>,
    slots: Mutex<Vec<Slots>>,
    pub(crate) totals: Mutex<SpaceTotals>,
    /// Bytes per turn ([`Rotor`](super::rotor::Rotor)).
    pub(crate) turn: AtomicU64,
    /// It had no room for the smallest allocation in this txg.
    pub(crate) full: AtomicBool,
    /// Too full or too fragmented compared with others.
    pub(crate) avoided: AtomicBool,
}

impl Group {
    pub(crate) fn new(vdev: VdevId, class: ClassKind, allocators: usize, aliquot: u64) -> Self {
        Self {
            vdev,
            class,
            order: Mutex::default(),
            slots: Mutex::new(vec![Slots::default(); allocators.max(1)]),
            totals: Mutex::default(),
            turn: AtomicU64::new(aliquot),
            full: AtomicBool::new(false),
            avoided: AtomicBool::new(false),
        }
    }

    pub(crate) fn insert(&self, key: OrderKey) {
        self.order.lock().insert(key);
    }

    pub(crate) fn replace(&self, old: OrderKey, new: OrderKey) {
        let mut order = self.order.lock();
        order.remove(&old);
        order.insert(new);
    }

    /// Number of metaslabs.
    pub(crate) fn len(&self) -> usize {
        self.order.lock().len()
    }

    /// The first metaslab after `after` that may have room for `asize` bytes.
    pub(crate) fn next_candidate(&self, after: Option<OrderKey>, asize: u64) -> Option<OrderKey> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let order = self.order.lock();
        order.range((from, Bound::Unbounded)).find(|key| key.weight.0.may_fit(asize)).copied()
    }

    /// The unused metaslabs that will be tried first.
    pub(crate) fn best(&self, count: usize) -> Vec<u64> {
        let order = self.order.lock();
        let usable = order.iter().filter(|key| key.weight.0 != Weight::NONE);
        usable.take(count).map(|key| key.index).collect()
    }

    /// The metaslab that an allocator uses.
    pub(crate) fn active(&self, allocator: usize, activation: Activation) -> Option<u64> {
        let slots = self.slots.lock();
        let slots = slots.get(allocator)?;
        match activation {
            Activation::Primary => slots.primary,
            Activation::Secondary => slots.secondary,
            Activation::Claim => None,
        }
    }

    /// Sets the metaslab in use by an allocator; fails if it has one, or for claims.
    pub(crate) fn activate(&self, allocator: usize, activation: Activation, index: u64) -> bool {
        self.with_slot(allocator, activation, |slot| match slot {
            Some(_) => false,
            None => {
                *slot = Some(index);
                true
            }
        })
    }

    /// Records that an allocator no longer uses a metaslab.
    pub(crate) fn passivate(&self, allocator: usize, activation: Activation, index: u64) {
        self.with_slot(allocator, activation, |slot| {
            if *slot == Some(index) {
                *slot = None;
            }
            true
        });
    }

    fn with_slot(
        &self,
        allocator: usize,
        activation: Activation,
        change: impl FnOnce(&mut Option<u64>) -> bool,
    ) -> bool {
        let mut slots = self.slots.lock();
        let Some(slots) = slots.get_mut(allocator) else { return false };
        match activation {
            Activation::Primary => change(&mut slots.primary),
            Activation::Secondary => change(&mut slots.secondary),
            Activation::Claim => false,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    pub(crate) fn is_avoided(&self) -> bool {
        self.avoided.load(Ordering::Relaxed)
    }
}
