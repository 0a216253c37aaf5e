//! The faults of a round's images.

use super::shelf::{Fault, Injected, LostPages, Presence, Shelf};
use rzfs_hostile::Random;
use std::time::Duration;

/// The faults of a round's images. Only some of them have their own: another one may hold the only
/// copy of what these lack.
#[derive(Debug)]
pub(super) struct Trouble<'a> {
    shelf: &'a Shelf,
    random: Random,
    chosen: Vec<usize>,
}

/// The fault that was injected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Strike {
    Trouble,
    /// An image was repaired; the pool has to be notified.
    Mended,
}

impl<'a> Trouble<'a> {
    /// Faults of this many images.
    pub(super) fn new(shelf: &'a Shelf, mut random: Random, of: usize) -> Self {
        let mut chosen = Vec::new();
        while chosen.len() < of.min(shelf.count()) {
            let image = random.index(shelf.count());
            if !chosen.contains(&image) {
                chosen.push(image);
            }
        }
        Self { shelf, random, chosen }
    }

    /// Injects a random fault.
    pub(super) fn strike(&mut self) -> Strike {
        let Some(image) = self.random.pick(&self.chosen).copied() else { return Strike::Trouble };
        let (spared, times) = (self.random.below(6), 1 + self.random.below(4));
        let presence = if self.random.once_in(2) { Presence::Unplugged } else { Presence::Dead };
        let fault = match self.random.below(12) {
            0..3 => Fault::FlushLoses(self.lost_pages()),
            3 => Fault::FlushFails,
            4 => Fault::WriteFails,
            5 => Fault::WriteTears,
            6 => Fault::ReadFails,
            7 => {
                let delay = Duration::from_millis(1 + self.random.below(200));
                self.shelf.slow_down(image, 1 + self.random.below(20), delay);
                return Strike::Trouble;
            }
            8 => {
                self.shelf.detach(image, presence);
                return Strike::Trouble;
            }
            9 => {
                self.shelf.mend(image);
                return Strike::Mended;
            }
            10 => {
                let fault = Fault::FlushLoses(self.lost_pages());
                for image in 0..self.shelf.count() {
                    self.shelf.inject(image, Injected { fault, spared: 0, times: 1 });
                }
                return Strike::Trouble;
            }
            _ => {
                (0..self.shelf.count()).for_each(|image| self.shelf.detach(image, presence));
                return Strike::Trouble;
            }
        };
        self.shelf.inject(image, Injected { fault, spared, times });
        Strike::Trouble
    }

    fn lost_pages(&mut self) -> LostPages {
        if self.random.once_in(2) { LostPages::StayInMemory } else { LostPages::AreReadAgain }
    }
}
