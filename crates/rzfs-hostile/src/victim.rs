//! The contents of a block on their way to damage, with the numbers of their byte order.

use crate::random::Random;
use rzfs_format::{BlockPointer, ByteOrder};

/// Contents to be damaged. What lies outside of them is not written, and reads as 0.
#[derive(Debug)]
pub(crate) struct Victim<'a> {
    pub(crate) bytes: &'a mut [u8],
    pub(crate) order: ByteOrder,
}

impl Victim<'_> {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let rest = self.bytes.get(at..).unwrap_or_default();
        rest.first_chunk().copied().unwrap_or([0; N])
    }

    pub(crate) fn byte(&self, at: usize) -> u8 {
        self.array::<1>(at)[0]
    }

    pub(crate) fn half(&self, at: usize) -> u16 {
        self.order.u16(self.array(at))
    }

    pub(crate) fn word(&self, at: usize) -> u64 {
        self.order.u64(self.array(at))
    }

    /// The block pointer at `at`.
    pub(crate) fn pointer(&self, at: usize) -> BlockPointer {
        let bytes = self.bytes.get(at..).unwrap_or_default();
        BlockPointer::decode(bytes, self.order).unwrap_or_default()
    }

    /// Writes as much as there is room for.
    pub(crate) fn put(&mut self, at: usize, value: &[u8]) {
        for (byte, new) in self.bytes.iter_mut().skip(at).zip(value) {
            *byte = *new;
        }
    }

    pub(crate) fn put_half(&mut self, at: usize, value: u16) {
        self.put(at, &self.order.bytes16(value));
    }

    pub(crate) fn put_word(&mut self, at: usize, value: u64) {
        self.put(at, &self.order.bytes64(value));
    }

    pub(crate) fn put_pointer(&mut self, at: usize, pointer: &BlockPointer) {
        self.put(at, &pointer.encode(self.order));
    }

    /// Another word in place of the one at `at`.
    pub(crate) fn change_word(&mut self, at: usize, random: &mut Random) {
        self.put_word(at, random.instead_of(self.word(at)));
    }

    /// Copies `len` bytes, when they and their place are there.
    pub(crate) fn copy(&mut self, from: usize, to: usize, len: usize) {
        let last = from.max(to).checked_add(len);
        if last.is_some_and(|last| last <= self.bytes.len()) {
            self.bytes.copy_within(from..from + len, to);
        }
    }

    /// Changes a number of some width, most likely near the start, where headers are.
    pub(crate) fn number(&mut self, random: &mut Random) {
        let width = random.pick(&[1, 2, 4, 8]).copied().unwrap_or(8);
        let extent = if random.once_in(2) { self.len().min(256) } else { self.len() };
        let at = random.index(extent / width) * width;
        let new = random.instead_of(u64::from_le_bytes(self.array(at))).to_le_bytes();
        self.put(at, new.get(..width).unwrap_or_default());
    }

    /// Changes bytes without regard to what they are.
    pub(crate) fn blind(&mut self, random: &mut Random) {
        let (at, len) = (random.index(self.len()), 1 + random.index(64));
        let end = at.saturating_add(len).min(self.len());
        match random.below(4) {
            0 => self.put(at, &[self.byte(at) ^ 1 << random.below(8)]),
            1 => self.put(at, &vec![0; end - at]),
            2 => {
                let noise: Vec<u8> = (at..end).map(|_| random.draw() as u8).collect();
                self.put(at, &noise);
            }
            _ => {
                let from = random.index(self.len() - (end - at) + 1);
                self.copy(from, at, end - at);
            }
        }
    }
}
