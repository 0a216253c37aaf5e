//! The data of writes, which is looked at when somebody commits them, and the two ways in which it
//! becomes durable (spec 05, section 11.2).
//!
//! ```text
//! copied:   record | data |                     short ones; all of them if there is a log device
//! placed:   record | pointer | ──> block        it is where the next txg would have written it
//! ```
//! What is placed is not written a second time: the txg takes the block over if it has not changed
//! since. What cannot be placed is copied.

use super::counters::ZilCounters;
use super::head_log::HeadLog;
use super::layout::{Ready, ReadyWrite};
use super::not_logged::NotLogged;
use super::pending::LoggedWrite;
use crate::dataset::property::DatasetProperty;
use bytes::Bytes;
use rzfs_dmu::live::{DirtyBlock, place_blocks};
use rzfs_dmu::write::WriteStream;
use rzfs_format::zil::{Body, RecordKind, Write};
use rzfs_format::{BlockPointer, ByteOrder, Txg, VdevId};
use rzfs_metaslab::allocator::ClassKind;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

/// Bytes of blocks that one transaction places, so that its txg is not held open for long.
const BATCH_BYTES: usize = 32 << 20;
/// Value of the property `logbias`.
const THROUGHPUT: u64 = 1;

/// The data of a write cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the data of a write cannot be read")]
pub struct UnreadableWrite;

/// A part of a write.
#[derive(Clone, Debug)]
pub enum LoggedPart {
    /// These bytes; they are not empty.
    Bytes(Bytes),
    /// Some bytes of a block that is dirty.
    Block {
        /// The block.
        block: DirtyBlock,
        /// Where in it.
        range: Range<usize>,
    },
}

impl LoggedPart {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Block { range, .. } => range.len(),
        }
    }
}

/// Whose records a log has: it knows the data of writes when they are committed.
pub trait LoggedContents {
    /// The data of a write as it is now, as parts that follow each other, none of which is of
    /// two blocks; less when the file ends before, nothing when it ends before all of it, or is
    /// gone.
    ///
    /// # Errors
    /// [`UnreadableWrite`]: the commit then waits for the txg.
    fn read(&self, write: &LoggedWrite) -> Result<Vec<LoggedPart>, UnreadableWrite>;
}

/// Which writes are placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Placing {
    /// None.
    Never,
    /// Those of at least this many bytes, where they change at least half of a block.
    Long(u64),
    /// All.
    Always,
}

impl Placing {
    /// Whether a part of a write is placed.
    fn includes(self, write: &LoggedWrite, part: usize, block: usize) -> bool {
        match self {
            Self::Never => false,
            Self::Long(least) => write.length >= least && part.saturating_mul(2) >= block,
            Self::Always => true,
        }
    }
}

/// A write, split into parts.
#[derive(Debug)]
pub(super) struct Parted {
    write: LoggedWrite,
    parts: Vec<LoggedPart>,
    placing: Placing,
}

impl Parted {
    pub(super) fn read(
        write: LoggedWrite,
        contents: &dyn LoggedContents,
        placing: Placing,
    ) -> Result<Self, UnreadableWrite> {
        Ok(Self { parts: contents.read(&write)?, write, placing })
    }

    /// The blocks to place.
    pub(super) fn blocks(&self) -> impl Iterator<Item = &DirtyBlock> {
        self.parts.iter().filter_map(|part| match part {
            LoggedPart::Block { block, range }
                if self.placing.includes(&self.write, range.len(), block.size()) =>
            {
                Some(block)
            }
            _ => None,
        })
    }

    /// Its records; `placed` are the blocks that were placed.
    pub(super) fn records(self, placed: &Placed, counters: &ZilCounters) -> Vec<Ready> {
        let Self { write, parts, .. } = self;
        let (mut records, mut offset) = (Vec::new(), write.offset);
        let mut copied = ReadyWrite { object: write.object, offset, data: VecDeque::new() };
        for part in parts {
            let length = part.len() as u64;
            let found = match &part {
                LoggedPart::Block { block, .. } => placed.pointer(block),
                LoggedPart::Bytes(_) => None,
            };
            match found.and_then(|pointer| encode_placed(&write, (offset, length), pointer)) {
                Some(record) => {
                    let next = offset.saturating_add(length);
                    let after =
                        ReadyWrite { object: write.object, offset: next, data: VecDeque::new() };
                    records.extend(ready(std::mem::replace(&mut copied, after), counters));
                    counters.count_placed(length);
                    records.push(Ready::Encoded(record));
                }
                None => copied.data.push_back(match part {
                    LoggedPart::Bytes(bytes) => bytes,
                    LoggedPart::Block { block, range } => block.data().slice(range),
                }),
            }
            offset = offset.saturating_add(length);
        }
        records.extend(ready(copied, counters));
        records
    }
}

/// A write with copied data, unless it is empty.
fn ready(write: ReadyWrite, counters: &ZilCounters) -> Option<Ready> {
    if write.data.is_empty() {
        return None;
    }
    counters.count_copied(write.len() as u64);
    Some(Ready::Write(write))
}

/// The record of a write whose data is at a pointer.
fn encode_placed(
    write: &LoggedWrite,
    (offset, length): (u64, u64),
    pointer: BlockPointer,
) -> Option<Vec<u8>> {
    let body = Body::Write(Write { object: write.object, offset, length, pointer, data: &[] });
    body.encode(RecordKind::Write, ByteOrder::NATIVE).ok()
}

/// The placed blocks of a commit.
#[derive(Default, Debug)]
pub(super) struct Placed {
    blocks: Vec<(DirtyBlock, BlockPointer)>,
}

impl Placed {
    fn pointer(&self, block: &DirtyBlock) -> Option<BlockPointer> {
        let found = self.blocks.binary_search_by_key(&block.bookmark(), |(one, _)| one.bookmark());
        let (placed, pointer) = self.blocks.get(found.ok()?)?;
        placed.is_same(block).then_some(*pointer)
    }

    /// Whether a block was placed in pieces.
    pub(super) fn has_gang(&self) -> bool {
        self.blocks.iter().any(|(_, pointer)| pointer.is_gang())
    }

    /// The vdevs that were written, except for gang members.
    pub(super) fn vdevs(&self) -> BTreeSet<VdevId> {
        self.blocks.iter().flat_map(|(_, pointer)| pointer.dvas().map(|dva| dva.vdev())).collect()
    }
}

impl HeadLog {
    /// Which writes are placed: as `logbias` says, but none where a log device takes their data
    /// sooner, or where blocks are deduplicated when they are synced.
    pub(super) fn placing(&self) -> Placing {
        let has_device = self.pool.accounts.allocator().usage().class(ClassKind::Log).space > 0;
        if self.dataset.policy().dedup.is_some() {
            Placing::Never
        } else if self.dataset.settings().number(DatasetProperty::LogBias) == Some(THROUGHPUT) {
            Placing::Always
        } else if has_device {
            Placing::Never
        } else {
            Placing::Long(self.pool.tunables.immediate_write)
        }
    }

    /// Places blocks; those that cannot be placed are left out.
    pub(super) fn place<'a>(
        &self,
        blocks: impl Iterator<Item = &'a DirtyBlock>,
    ) -> Result<Placed, NotLogged> {
        let mut all: Vec<DirtyBlock> = blocks.cloned().collect();
        // A block in several records is placed once, with its current contents.
        all.sort_by_key(DirtyBlock::bookmark);
        all.dedup_by(|second, first| second.is_same(first));
        let mut placed = Placed::default();
        let mut rest = all.as_slice();
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take_while(|block| {
                bytes += block.size();
                bytes <= BATCH_BYTES
            });
            let (batch, later) = rest.split_at(fits.count().max(1));
            let pointers = self.place_batch(batch)?;
            let pairs = batch.iter().zip(pointers);
            placed.blocks.extend(pairs.filter_map(|(block, at)| Some((block.clone(), at?))));
            rest = later;
        }
        Ok(placed)
    }

    fn place_batch(&self, batch: &[DirtyBlock]) -> Result<Vec<Option<BlockPointer>>, NotLogged> {
        let tx = self.pool.engine.begin_unthrottled(&[])?;
        let new = batch.iter().filter(|block| is_new(block, tx.txg()));
        let bytes = new.map(|block| block.size() as u64).fold(0, u64::saturating_add);
        if bytes > 0 {
            // The write has reserved room for one copy; the block may change again.
            self.claim(tx.txg(), bytes)?;
        }
        let stream = WriteStream::start(self.pool.devices.writer());
        Ok(place_blocks(&tx, (&*self.pool.writer, self.dataset.policy()), stream, batch))
    }
}

fn is_new(block: &DirtyBlock, txg: Txg) -> bool {
    block.placed().is_none() && block.txg() == txg
}
