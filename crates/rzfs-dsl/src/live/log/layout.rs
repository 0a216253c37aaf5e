//! Putting records into log blocks (spec 05, sections 10.2 and 11.2).
//!
//! ```text
//! records:  | CREATE | WRITE of 300 KiB                        | SETATTR |
//! blocks:   | CREATE | WRITE | ──> | WRITE        | ──> | WRITE | SETATTR |
//! ```
//! The length of a block is fixed at allocation; the size of the next one is chosen when its
//! pointer is written, so that the remaining records fit if possible. Only writes are split.

use bytes::Bytes;
use rzfs_format::zil::{CHAIN_SIZE, WRITE_HEADER_SIZE, WriteHeader, stamp};
use rzfs_format::{ByteOrder, ObjectId, Txg};
use std::collections::VecDeque;

/// Maximum size of a log block.
pub(super) const MAX_BLOCK: u64 = 128 << 10;
/// Blocks are multiples of this.
pub(super) const UNIT: u64 = 4096;
/// Minimum bytes of a write that are put into the remainder of a block.
const MIN_PIECE: usize = 512;
/// Number of past commits used to predict the size of the next one.
const HISTORY: usize = 8;
/// The prediction without history.
const FIRST_GUESS: u64 = 8192;

/// A record whose contents are in memory.
#[derive(Clone, Debug)]
pub(super) enum Ready {
    /// An encoded one.
    Encoded(Vec<u8>),
    /// A write.
    Write(ReadyWrite),
}

/// The data of a write.
#[derive(Clone, Debug)]
pub(super) struct ReadyWrite {
    pub(super) object: ObjectId,
    pub(super) offset: u64,
    /// Consecutive parts of blocks; none is empty.
    pub(super) data: VecDeque<Bytes>,
}

impl ReadyWrite {
    pub(super) fn len(&self) -> usize {
        self.data.iter().map(Bytes::len).sum()
    }

    /// Copies the first `target.len()` bytes out and removes them.
    fn take(&mut self, target: &mut [u8]) {
        let mut at = 0;
        while at < target.len() {
            let Some(mut part) = self.data.pop_front() else { break };
            let len = part.len().min(target.len() - at);
            let now = part.split_to(len);
            if let Some(place) = target.get_mut(at..at + len) {
                place.copy_from_slice(&now);
            }
            at += len;
            if !part.is_empty() {
                self.data.push_front(part);
            }
        }
        self.offset = self.offset.saturating_add(at as u64);
    }
}

impl Ready {
    fn size(&self) -> usize {
        match self {
            Self::Encoded(bytes) => bytes.len(),
            Self::Write(write) => WriteHeader::record_size(write.len()),
        }
    }
}

/// Records to write, in order, with their txgs.
#[derive(Default, Debug)]
pub(super) struct Queue(VecDeque<(Txg, Ready)>);

impl Queue {
    pub(super) fn push(&mut self, txg: Txg, record: Ready) {
        self.0.push_back((txg, record));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Total size of the records in bytes.
    pub(super) fn size(&self) -> u64 {
        self.0.iter().map(|(_, record)| record.size() as u64).fold(0, u64::saturating_add)
    }

    /// Whether each record fits in a block of this size, split if needed.
    pub(super) fn fits_blocks(&self, max_block: u64) -> bool {
        self.0.iter().all(|(_, record)| match record {
            Ready::Encoded(bytes) => bytes.len().saturating_add(CHAIN_SIZE) as u64 <= max_block,
            Ready::Write(_) => true,
        })
    }
}

/// The records of one block.
#[derive(Debug)]
pub(super) struct Filled {
    pub(super) records: Vec<u8>,
    /// The youngest txg of a record; `None` if there is none.
    pub(super) last_txg: Option<Txg>,
}

/// Takes as many records as fit into a block of `size` bytes, and numbers them after `seq`.
pub(super) fn fill(queue: &mut Queue, size: u64, seq: &mut u64) -> Filled {
    let capacity = (size as usize).saturating_sub(CHAIN_SIZE);
    let mut filled = Filled { records: Vec::new(), last_txg: None };
    while let Some((txg, record)) = queue.0.front_mut() {
        let start = filled.records.len();
        let room = capacity - start;
        let is_whole = record.size() <= room;
        match record {
            Ready::Encoded(bytes) if is_whole => filled.records.append(bytes),
            Ready::Encoded(_) => break,
            Ready::Write(write) => {
                let rest = write.len();
                // Data is padded to words, and room is a multiple of words.
                let piece = rest.min(room.saturating_sub(WRITE_HEADER_SIZE));
                if !is_whole && piece < MIN_PIECE {
                    break;
                }
                let header = WriteHeader {
                    object: write.object,
                    offset: write.offset,
                    length: piece as u64,
                };
                filled.records.resize(start + WriteHeader::record_size(piece), 0);
                let record = filled.records.get_mut(start..).unwrap_or_default();
                header.encode(record, ByteOrder::NATIVE);
                write.take(
                    record.get_mut(WRITE_HEADER_SIZE..).unwrap_or_default().split_at_mut(piece).0,
                );
            }
        }
        *seq += 1;
        if let Some(record) = filled.records.get_mut(start..) {
            stamp(record, *txg, *seq, ByteOrder::NATIVE);
        }
        filled.last_txg = filled.last_txg.max(Some(*txg));
        if is_whole {
            queue.0.pop_front();
        }
    }
    filled
}

/// Predicts the size of the next block.
#[derive(Clone, Debug, Default)]
pub(super) struct SizeGuess {
    past: VecDeque<u64>,
}

impl SizeGuess {
    /// Notes the size of a commit's records in bytes.
    pub(super) fn note(&mut self, bytes: u64) {
        if self.past.len() == HISTORY {
            self.past.pop_front();
        }
        self.past.push_back(bytes);
    }

    /// The size of a block for `rest` more bytes of records, or for the next commit if none remain;
    /// at most `max_block`.
    pub(super) fn next_size(&self, rest: u64, max_block: u64) -> u64 {
        let bytes = match rest {
            0 => self.past.iter().copied().max(),
            rest => Some(rest),
        };
        let with_chain = bytes.map(|bytes| bytes.saturating_add(CHAIN_SIZE as u64));
        with_chain.unwrap_or(FIRST_GUESS).min(max_block).next_multiple_of(UNIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rzfs_format::zil::{Body, Record};

    fn write(offset: u64, parts: &[&[u8]]) -> Ready {
        let data = parts.iter().map(|part| Bytes::copy_from_slice(part)).collect();
        Ready::Write(ReadyWrite { object: ObjectId(5), offset, data })
    }

    fn encoded(len: usize) -> Ready {
        let mut bytes = vec![0; len];
        bytes[..8].copy_from_slice(&5_u64.to_ne_bytes());
        bytes[8..16].copy_from_slice(&(len as u64).to_ne_bytes());
        Ready::Encoded(bytes)
    }

    #[test]
    fn sizes_follow_what_is_known() {
        let mut guess = SizeGuess::default();
        assert_eq!(guess.next_size(0, MAX_BLOCK), 8192);
        guess.note(300);
        assert_eq!((guess.next_size(0, MAX_BLOCK), guess.next_size(4000, MAX_BLOCK)), (4096, 8192));
        guess.note(1 << 20);
        assert_eq!(guess.next_size(0, MAX_BLOCK), MAX_BLOCK);
        (0..HISTORY).for_each(|_| guess.note(300));
        assert_eq!(guess.next_size(0, MAX_BLOCK), 4096);
    }

    #[test]
    fn a_record_that_does_not_fit_waits_for_a_larger_block() {
        let mut queue = Queue::default();
        queue.push(Txg(9), encoded(64));
        queue.push(Txg(8), encoded(6000));
        let mut seq = 0;
        let filled = fill(&mut queue, 4096, &mut seq);
        assert_eq!((filled.records.len(), filled.last_txg, seq), (64, Some(Txg(9)), 1));
        let filled = fill(&mut queue, 4096, &mut seq);
        assert_eq!((filled.records.len(), filled.last_txg, seq), (0, None, 1));
        let filled = fill(&mut queue, 8192, &mut seq);
        assert_eq!((filled.records.len(), filled.last_txg, seq), (6000, Some(Txg(8)), 2));
        assert!(queue.is_empty());
    }

    proptest! {
        #[test]
        fn all_data_arrives_once_and_in_order(
            lengths in proptest::collection::vec(1_usize..200_000, 1..4),
            sizes in proptest::collection::vec(1_u64..33, 1..6),
        ) {
            let mut queue = Queue::default();
            let mut expected = Vec::new();
            for (index, length) in lengths.iter().enumerate() {
                let data: Vec<u8> = (0..*length).map(|at| (at * 7 + index) as u8).collect();
                let (left, right) = data.split_at(length / 3);
                let parts: Vec<&[u8]> = [left, right].into_iter().filter(|p| !p.is_empty()).collect();
                queue.push(Txg(7), write(1000 * index as u64, &parts));
                queue.push(Txg(7), encoded(48));
                expected.push((1000 * index as u64, data));
            }
            let mut found: Vec<(u64, Vec<u8>)> = Vec::new();
            let mut seq = 0;
            let mut seen = 0;
            for size in sizes.iter().cycle() {
                if queue.is_empty() {
                    break;
                }
                let size = size * UNIT;
                let filled = fill(&mut queue, size, &mut seq);
                prop_assert!((filled.records.len() + CHAIN_SIZE) as u64 <= size);
                let mut rest = &filled.records[..];
                while !rest.is_empty() {
                    let record = Record::decode(rest, ByteOrder::NATIVE).unwrap();
                    seen += 1;
                    prop_assert_eq!((record.seq, record.txg), (seen, Txg(7)));
                    rest = &rest[record.bytes().len()..];
                    let Ok(Body::Write(write)) = record.body() else { continue };
                    let goes_on = found.last().is_some_and(|(at, data): &(u64, Vec<u8>)| {
                        at + data.len() as u64 == write.offset && at % 1000 == 0
                            && expected[found.len() - 1].1.len() > data.len()
                    });
                    if goes_on {
                        found.last_mut().unwrap().1.extend(write.data);
                    } else {
                        found.push((write.offset, write.data.to_vec()));
                    }
                }
            }
            prop_assert_eq!(found, expected);
        }
    }
}
