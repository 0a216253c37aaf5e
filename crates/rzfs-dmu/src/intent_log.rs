//! Intent logs on disk: the chain of blocks that starts at the header in the objset block (spec 05,
//! section 10.3).
//!
//! ```text
//! header ──> block 1 ──> block 2 ──> ... ──> allocated ahead, never written
//! ```
//! A block counts when its checksum, seeded with its place in the chain, verifies, and the next
//! pointer in it continues the chain. The walk ends at the first that does not, at the end of the
//! claimed part, and before a place already visited.

use crate::{BlockError, BlockPipeline};
use bytes::Bytes;
use rzfs_codec::crypto::DatasetKey;
use rzfs_format::block_pointer::Protection;
use rzfs_format::units::Bookmark;
use rzfs_format::zil::{BlockForm, Chain, Record, Verifier, ZilHeader};
use rzfs_format::{BlockId, BlockPointer, FormatError, Level, ObjectId, ObjsetId, Txg, VdevId};
use std::collections::HashSet;

/// Maximum blocks of one log to follow; only their places are kept.
const MAX_BLOCKS: usize = 1 << 22;

/// The bookmark of a log block.
#[must_use]
pub const fn bookmark(objset: ObjsetId, pointer: &BlockPointer) -> Bookmark {
    Bookmark {
        objset,
        object: ObjectId(0),
        level: Level::ZIL,
        block: BlockId(Verifier::of(pointer).seq),
    }
}

/// Why a chain ends.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ChainEnd {
    /// There is no log, or the next block does not exist.
    #[error("there is no next block")]
    Hole,
    /// The next block belongs to a txg beyond the limit of the walk.
    #[error("block {seq} is younger than the pool")]
    Young {
        /// Number of the block.
        seq: u64,
    },
    /// Everything that was claimed has been visited.
    #[error("the log was claimed up to block {seq}")]
    Claimed {
        /// Number of the last claimed block.
        seq: u64,
    },
    /// The pointer is not valid for a log block of this set.
    #[error(transparent)]
    Pointer(FormatError),
    /// The block does not continue the chain.
    #[error("block {seq} does not say how the log goes on")]
    Broken {
        /// Number of the block.
        seq: u64,
    },
    /// The walk has already visited this place.
    #[error("block {seq} is at the place of an earlier block")]
    Repeated {
        /// Number of the block.
        seq: u64,
    },
    /// The chain is too long.
    #[error("the log has too many blocks")]
    TooLong,
    /// The block cannot be read. An ordinary log ends like this: its last block was never written,
    /// so its checksum is wrong.
    #[error("block {seq}: {source}")]
    Unreadable {
        /// Number of the block.
        seq: u64,
        /// Why.
        source: BlockError,
    },
    /// The block has the right checksum but is not a log block.
    #[error("block {seq}: {source}")]
    Damaged {
        /// Number of the block.
        seq: u64,
        /// The error.
        source: FormatError,
    },
}

impl ChainEnd {
    /// Whether intact logs can end like this. After any other end there may be more of the log.
    #[must_use]
    pub const fn is_regular(&self) -> bool {
        match self {
            Self::Hole
            | Self::Young { .. }
            | Self::Claimed { .. }
            | Self::Broken { .. }
            | Self::Repeated { .. } => true,
            // A block that was never written has no right checksum.
            Self::Unreadable { source, .. } => source.is_content_error(),
            Self::Pointer(_) | Self::TooLong | Self::Damaged { .. } => false,
        }
    }
}

/// A block of a log.
#[derive(Clone, Debug)]
pub struct LogBlock {
    /// The pointer to it.
    pub pointer: BlockPointer,
    /// Its contents; `None` if it was apparently never written, which makes it the last one.
    pub contents: Option<LogContents>,
}

impl LogBlock {
    /// Number of the block; the first of a chain is 1.
    #[must_use]
    pub const fn seq(&self) -> u64 {
        Verifier::of(&self.pointer).seq
    }

    /// Its records, up to the first that is damaged or unclaimed.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        self.contents.iter().flat_map(LogContents::records)
    }
}

/// The contents of a log block.
#[derive(Clone, Debug)]
pub struct LogContents {
    /// The block; encrypted if the log is and its key is missing.
    pub data: Bytes,
    /// Its place in the chain.
    pub chain: Chain,
    /// Records with larger numbers were not claimed.
    last_seq: u64,
}

impl LogContents {
    fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let last = self.last_seq;
        let records = self.chain.records(&self.data).map_while(Result::ok);
        records.take_while(move |record| record.seq <= last)
    }
}

/// The part of a log that counts.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Blocks of younger txgs do not count.
    txg: Txg,
    block_seq: u64,
    record_seq: u64,
    /// Whether the log was claimed.
    is_claimed: bool,
}

/// Walks a log.
///
/// A claimed log is followed as far as it was claimed.
#[derive(Debug)]
pub struct LogChain<'a> {
    pipeline: &'a BlockPipeline,
    objset: ObjsetId,
    key: Option<&'a DatasetKey>,
    pointer: BlockPointer,
    limits: Limits,
    /// Number of the last record visited.
    record_seq: u64,
    visited: HashSet<(VdevId, u64)>,
    end: Option<ChainEnd>,
}

impl<'a> LogChain<'a> {
    /// The log that starts at `header` of `objset`.
    #[must_use]
    pub fn new(pipeline: &'a BlockPipeline, objset: ObjsetId, header: &ZilHeader) -> Self {
        let is_claimed = header.claim_txg.is_some();
        let claimed = |seq| if is_claimed { seq } else { u64::MAX };
        let limits = Limits {
            txg: Txg(u64::MAX),
            block_seq: claimed(header.claimed_block_seq),
            record_seq: claimed(header.claimed_record_seq),
            is_claimed,
        };
        Self {
            pipeline,
            objset,
            key: None,
            pointer: header.first,
            limits,
            record_seq: 0,
            visited: HashSet::new(),
            end: None,
        }
    }

    /// Decrypts the log. Without its key only the kinds of records and the pointers to data outside
    /// the log are known.
    #[must_use]
    pub const fn with_key(mut self, key: Option<&'a DatasetKey>) -> Self {
        self.key = key;
        self
    }

    /// Ends the walk before the first block that was allocated after `txg`.
    #[must_use]
    pub const fn up_to(mut self, txg: Txg) -> Self {
        self.limits.txg = txg;
        self
    }

    /// Why the walk ended; `None` while it has not.
    #[must_use]
    pub const fn end(&self) -> Option<&ChainEnd> {
        self.end.as_ref()
    }

    /// Checks whether the block at the pointer counts.
    fn check(&self, seq: u64) -> Result<(), ChainEnd> {
        if self.pointer.is_hole() {
            return Err(ChainEnd::Hole);
        }
        if self.pointer.logical_birth() > self.limits.txg {
            return Err(ChainEnd::Young { seq });
        }
        Chain::check_pointer(&self.pointer, self.objset).map_err(ChainEnd::Pointer)?;
        if seq > self.limits.block_seq {
            return Err(ChainEnd::Claimed { seq: self.limits.block_seq });
        }
        if self.visited.len() >= MAX_BLOCKS {
            return Err(ChainEnd::TooLong);
        }
        Ok(())
    }

    fn read(&self, seq: u64) -> Result<LogContents, ChainEnd> {
        if seq == self.limits.block_seq && self.record_seq == self.limits.record_seq {
            return Err(ChainEnd::Claimed { seq });
        }
        let data = self.read_block(seq).map_err(|source| ChainEnd::Unreadable { seq, source })?;
        let data = self.decrypted(data).map_err(|source| ChainEnd::Unreadable { seq, source })?;
        let damaged = |source| ChainEnd::Damaged { seq, source };
        let form = self.pointer.checksum_function().and_then(BlockForm::of).map_err(damaged)?;
        let chain = Chain::decode(&data, form, self.pointer.order()).map_err(damaged)?;
        let next = Verifier::of(&chain.next);
        if chain.next.is_hole() || !Verifier::of(&self.pointer).is_followed_by(&next) {
            return Err(ChainEnd::Broken { seq });
        }
        Ok(LogContents { data, chain, last_seq: self.limits.record_seq })
    }
}

impl LogChain<'_> {
    /// The current block of the walk. Claimed blocks, except for the last one, are known to have
    /// been written; all others may be missing.
    fn read_block(&self, seq: u64) -> Result<Bytes, BlockError> {
        let pointer = &self.pointer;
        let must_exist = self.limits.is_claimed && seq < self.limits.block_seq;
        let mut read = if must_exist {
            self.pipeline.read_stored(&[pointer])
        } else {
            self.pipeline.read_speculative(&[pointer])
        };
        let read = read.pop().unwrap_or(Err(BlockError::NoCopy));
        read.inspect_err(|error| {
            if must_exist {
                self.pipeline.damage().note(bookmark(self.objset, pointer), pointer, error);
            }
        })
    }

    fn decrypted(&self, data: Bytes) -> Result<Bytes, BlockError> {
        match self.key {
            Some(key) if self.pointer.protection() == Protection::Encrypted => {
                let mut data = Vec::from(data);
                key.decrypt_block(&self.pointer, &mut data)?;
                Ok(data.into())
            }
            _ => Ok(data),
        }
    }
}

impl Iterator for LogChain<'_> {
    type Item = LogBlock;

    fn next(&mut self) -> Option<LogBlock> {
        if self.end.is_some() {
            return None;
        }
        let pointer = self.pointer;
        let seq = Verifier::of(&pointer).seq;
        let mut checked = self.check(seq);
        for dva in pointer.dvas() {
            if checked.is_ok() && !self.visited.insert((dva.vdev(), dva.offset())) {
                checked = Err(ChainEnd::Repeated { seq });
            }
        }
        if let Err(end) = checked {
            self.end = Some(end);
            return None;
        }
        let mut block = LogBlock { pointer, contents: None };
        match self.read(seq) {
            Ok(contents) => {
                self.pointer = contents.chain.next;
                let last = contents.records().last().map(|record| record.seq);
                self.record_seq = self.record_seq.max(last.unwrap_or_default());
                block.contents = Some(contents);
            }
            Err(end) => self.end = Some(end),
        }
        Some(block)
    }
}

/// All blocks that a log owns: its own, those that its records point to, and its references to
/// shared blocks, if they were claimed with it. The first two kinds are listed once each, the
/// others once per reference.
#[must_use]
pub fn owned_blocks(
    pipeline: &BlockPipeline,
    objset: ObjsetId,
    header: &ZilHeader,
) -> Vec<BlockPointer> {
    let mut owned = OwnedBlocks::default();
    let mut shared = Vec::new();
    for block in LogChain::new(pipeline, objset, header) {
        owned.add(&block.pointer);
        let Some(claimed) = header.claim_txg else { continue };
        let data = block.records().filter_map(|record| record.data_pointer());
        data.filter(|data| data.logical_birth() >= claimed).for_each(|data| owned.add(&data));
        shared.extend(block.records().flat_map(|record| record.shared_pointers()));
    }
    owned.blocks.append(&mut shared);
    owned.blocks
}

/// Blocks of a log, each once.
#[derive(Debug, Default)]
pub struct OwnedBlocks {
    blocks: Vec<BlockPointer>,
    places: HashSet<(VdevId, u64)>,
}

impl OwnedBlocks {
    /// Adds a block, unless it is listed.
    pub fn add(&mut self, pointer: &BlockPointer) {
        let Some(first) = pointer.dvas().next() else { return };
        if self.places.insert((first.vdev(), first.offset())) {
            self.blocks.push(*pointer);
        }
    }

    /// The blocks, in the order of insertion.
    #[must_use]
    pub fn blocks(&self) -> &[BlockPointer] {
        &self.blocks
    }
}
