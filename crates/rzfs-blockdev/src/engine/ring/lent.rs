//! The memory that the kernel may currently access.
//!
//! A transfer moves into its slot *before* a pointer into its buffer is taken, and leaves the slot
//! only when the kernel has completed it; the slots themselves never move. If the owner is dropped
//! while requests are in flight (only after a panic), their buffers are leaked, never freed.

use crate::engine::transfer::{Step, Transfer};

/// Requests in flight, and the word that the bell is read into.
pub(super) struct Lent {
    slots: Box<[Option<Transfer>]>,
    free: Vec<u32>,
    bell: Option<Box<[u8; 8]>>,
    bell_lent: bool,
}

impl Lent {
    pub(super) fn new(slots: u32) -> Self {
        Self {
            slots: (0..slots).map(|_| None).collect(),
            free: (0..slots).rev().collect(),
            bell: Some(Box::new([0; 8])),
            bell_lent: false,
        }
    }

    /// Whether another transfer can be lent.
    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Whether the kernel holds nothing of what is here.
    pub(super) fn is_idle(&self) -> bool {
        self.free.len() == self.slots.len() && !self.bell_lent
    }

    /// Moves a transfer into a slot and returns the slot's number with the step to request.
    ///
    /// `None` without room, and the transfer completes with an error.
    pub(super) fn lend(&mut self, transfer: Transfer) -> Option<(u32, Step<'_>)> {
        let slot = self.free.pop()?;
        let place = self.slots.get_mut(slot as usize)?;
        Some((slot, place.insert(transfer).step()))
    }

    /// Takes a transfer back that the kernel has completed, or has never seen.
    pub(super) fn take_back(&mut self, slot: u32) -> Option<Transfer> {
        let transfer = self.slots.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(transfer)
    }

    /// Lends the bell's word; none if it is lent already.
    pub(super) fn lend_bell(&mut self) -> Option<&mut [u8; 8]> {
        if self.bell_lent {
            return None;
        }
        self.bell_lent = true;
        self.bell.as_deref_mut()
    }

    /// Records that the kernel has completed the bell's read, or has never seen it.
    pub(super) fn take_back_bell(&mut self) {
        self.bell_lent = false;
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        for transfer in self.slots.iter_mut().filter_map(Option::take) {
            transfer.abandon();
        }
        if self.bell_lent {
            std::mem::forget(self.bell.take());
        }
    }
}
