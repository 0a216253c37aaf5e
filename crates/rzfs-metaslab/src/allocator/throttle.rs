//! The allocation throttle: how many bytes of writes may be on their way between allocation and
//! device (spec 06, section 9.8).
//!
//! Without it all writes of a txg would be given their places at once, each vdev its share. With
//! it a vdev that writes faster gets more, since its writes end sooner and let the next ones in.

use super::Allocator;
use super::request::ClassKind;
use super::topology::Topology;
use parking_lot::{Condvar, Mutex};

/// Bytes under way in one class, for one allocator.
#[derive(Default, Debug)]
pub(crate) struct Throttle {
    reserved: Mutex<u64>,
    released: Condvar,
}

/// A share of the bytes that may be under way; given back when dropped.
#[derive(Debug)]
pub struct Reservation<'a> {
    throttle: &'a Throttle,
    bytes: u64,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let mut reserved = self.throttle.reserved.lock();
        *reserved = reserved.saturating_sub(self.bytes);
        self.throttle.released.notify_all();
    }
}

impl Allocator {
    /// Waits until `bytes` (size times copies) more may be under way in a class. A reservation is
    /// kept until the writes have ended. Intent logs do not wait.
    ///
    /// A thread that has a reservation of a class must not wait for another one of it.
    pub fn reserve(&self, class: ClassKind, locality: u64, bytes: u64) -> Option<Reservation<'_>> {
        if class == ClassKind::Log || !self.context.tunables.dva_throttle_enabled {
            return None;
        }
        let limit = throttle_limit(&self.topology(), class);
        let throttle = self.throttles.get(self.allocator_of(locality))?.get(class.index())?;
        let mut reserved = throttle.reserved.lock();
        while *reserved > limit {
            throttle.released.wait(&mut reserved);
        }
        *reserved = reserved.saturating_add(bytes);
        Some(Reservation { throttle, bytes })
    }
}

/// Bytes that may be under way for one allocator before others wait: four turns of all groups.
fn throttle_limit(topology: &Topology, class: ClassKind) -> u64 {
    let turns = topology.ring(class).iter().map(|member| member.group.turn.lock().aliquot);
    turns.fold(0, u64::saturating_add).saturating_mul(4)
}
