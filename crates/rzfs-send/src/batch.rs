//! A part of a stream in progress: records, and the blocks that are their payloads.

use rzfs_dmu::{Block, DmuError};
use rzfs_format::BlockPointer;
use rzfs_format::stream::Record;
use rzfs_format::units::Bookmark;
use std::ops::Range;

/// Payloads of a batch, in bytes; a larger block is a batch of its own.
const BYTES: u64 = 4 << 20;
/// Records of a batch.
const RECORDS: usize = 1024;

/// A block and its position.
pub(crate) type Place = (BlockPointer, Bookmark);
/// The source of a record's payload.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    /// These bytes of [`Batch::inline`]; none for most records.
    Inline(Range<usize>),
    /// The contents of this block of [`Batch::contents`].
    Contents(usize),
    /// This block of [`Batch::stored`], in stored form.
    Stored(usize),
}

/// A record, with its payload.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) record: Record,
    pub(crate) payload: Payload,
}

/// Records in order, and the blocks to be read for them.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) inline: Vec<u8>,
    pub(crate) contents: Vec<Place>,
    pub(crate) stored: Vec<Place>,
    bytes: u64,
}

impl Batch {
    /// Adds a record with an available payload, padded to whole words.
    pub(crate) fn push(&mut self, record: Record, payload: &[u8]) {
        let start = self.inline.len();
        self.inline.extend_from_slice(payload);
        let padded = (self.inline.len() - start).next_multiple_of(8);
        self.inline.resize(start + padded, 0);
        self.bytes += padded as u64;
        self.pieces.push(Piece { record, payload: Payload::Inline(start..start + padded) });
    }

    /// Adds a record whose payload is a block's contents.
    pub(crate) fn push_contents(&mut self, record: Record, place: Place) {
        self.bytes += place.0.logical_size();
        self.contents.push(place);
        self.pieces.push(Piece { record, payload: Payload::Contents(self.contents.len() - 1) });
    }

    /// Adds a record whose payload is a block in stored form.
    pub(crate) fn push_stored(&mut self, record: Record, place: Place) {
        self.bytes += place.0.physical_size();
        self.stored.push(place);
        self.pieces.push(Piece { record, payload: Payload::Stored(self.stored.len() - 1) });
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= BYTES || self.pieces.len() >= RECORDS
    }
}

/// A batch with its blocks read.
pub(crate) struct ReadBatch {
    pub(crate) batch: Batch,
    pub(crate) contents: Vec<Result<Block, DmuError>>,
    pub(crate) stored: Vec<Result<bytes::Bytes, DmuError>>,
}
