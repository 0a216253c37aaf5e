//! A write whose bytes lie in several pieces of memory.

use super::step::{MAX_STEP, Step};
use crate::IoBuffer;
use bytes::Bytes;
use std::io::{self, IoSlice};

/// The most pieces in one system call (`IOV_MAX`).
const MAX_PIECES: usize = 1024;

/// Pieces written consecutively, in place where the device can.
#[derive(Debug)]
pub(super) struct Gather {
    /// The parts of `pieces` that the current step writes, for the system.
    slices: Vec<IoSlice<'static>>,
    pieces: Vec<Bytes>,
    offset: u64,
    len: usize,
    done: usize,
}

impl Gather {
    /// Copies the pieces that the device cannot write in place.
    pub(super) fn new(mut pieces: Vec<Bytes>, offset: u64, alignment: usize) -> io::Result<Self> {
        pieces.retain(|piece| !piece.is_empty());
        let len = pieces.iter().map(Bytes::len).sum();
        if pieces.iter().any(|piece| !piece.len().is_multiple_of(alignment)) {
            pieces = vec![joined(&pieces, len)?];
        }
        for piece in &mut pieces {
            if !piece.as_ptr().addr().is_multiple_of(alignment) {
                *piece = IoBuffer::padded(piece, piece.len())?.freeze();
            }
        }
        Ok(Self { slices: Vec::new(), pieces, offset, len, done: 0 })
    }

    /// From the last aligned byte written, as much as fits in one call.
    pub(super) fn step(&mut self, alignment: usize) -> Step<'_> {
        let from = self.done - self.done % alignment;
        self.slices.clear();
        let (mut skip, mut room) = (from, MAX_STEP);
        for piece in &self.pieces {
            let Some(rest) = piece.get(skip..).filter(|rest| !rest.is_empty()) else {
                skip -= piece.len();
                continue;
            };
            skip = 0;
            let slice = rest.get(..room).unwrap_or(rest);
            room -= slice.len();
            // SAFETY: the bytes belong to `pieces`, which neither changes nor moves its contents
            // before it is dropped together with `slices`; nobody gets a slice for longer than he
            // borrows `self`.
            let slice = unsafe { std::mem::transmute::<&[u8], &'static [u8]>(slice) };
            self.slices.push(IoSlice::new(slice));
            if room == 0 || self.slices.len() == MAX_PIECES {
                break;
            }
        }
        Step::Gather { offset: self.offset + from as u64, slices: &self.slices }
    }

    /// Whether everything is written.
    pub(super) fn advance(&mut self, count: usize, alignment: usize) -> io::Result<bool> {
        let done = self.done - self.done % alignment + count;
        if done <= self.done {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.done = done;
        Ok(done >= self.len)
    }
}

/// All pieces as one.
fn joined(pieces: &[Bytes], len: usize) -> io::Result<Bytes> {
    let mut buffer = IoBuffer::zeroed(len)?;
    let mut rest = &mut buffer[..];
    for piece in pieces {
        let (now, later) = rest.split_at_mut(piece.len());
        now.copy_from_slice(piece);
        rest = later;
    }
    Ok(buffer.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that the steps of a gather write, when each call writes at most `most` bytes.
    fn written(gather: &mut Gather, alignment: usize, most: usize) -> Vec<u8> {
        let mut image = Vec::new();
        loop {
            let Step::Gather { offset, slices } = gather.step(alignment) else {
                panic!("another step");
            };
            let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            let now = &all[..all.len().min(most)];
            let start = usize::try_from(offset - 4096).unwrap();
            image.resize(image.len().max(start + now.len()), 0);
            image[start..start + now.len()].copy_from_slice(now);
            if gather.advance(now.len(), alignment).unwrap() {
                return image;
            }
        }
    }

    #[test]
    fn pieces_follow_each_other_whatever_a_call_writes() {
        let byte = |index: usize| (index * 7 % 251) as u8;
        let all: Bytes = (0..10_240).map(byte).collect();
        let aligned = IoBuffer::padded(&all, all.len()).unwrap().freeze();
        let cut = |at: &[usize]| {
            at.windows(2).map(|range| aligned.slice(range[0]..range[1])).collect::<Vec<_>>()
        };
        for (pieces, alignment) in [
            (cut(&[0, 512, 512, 4096, 10_240]), 512),
            (cut(&[0, 1000, 1001, 10_240]), 1),
            (cut(&[0, 1000, 10_240]), 512),
            (cut(&[0, 10_240]), 512),
            ((0..20).map(|at| all.slice(at * 512..at * 512 + 512)).collect(), 512),
        ] {
            for most in [700, 4096, 1 << 20] {
                let mut gather = Gather::new(pieces.clone(), 4096, alignment).unwrap();
                assert!(written(&mut gather, alignment, most) == all, "{alignment} {most}");
            }
            let mut gather = Gather::new(pieces, 4096, alignment).unwrap();
            assert!(gather.advance(0, alignment).is_err());
        }
    }

    #[test]
    fn more_pieces_than_a_call_takes_need_another() {
        let page = IoBuffer::zeroed(4096).unwrap().freeze();
        let mut gather = Gather::new(vec![page; 3000], 4096, 4096).unwrap();
        let Step::Gather { slices, .. } = gather.step(4096) else { panic!("another step") };
        assert_eq!(slices.len(), MAX_PIECES);
        assert_eq!(written(&mut gather, 4096, usize::MAX).len(), 3000 * 4096);
    }
}
