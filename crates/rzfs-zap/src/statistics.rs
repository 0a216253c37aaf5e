//! What `zdb` prints about a ZAP.

use rzfs_format::BlockId;
use rzfs_format::zap::ZapHash;
use rzfs_format::zap::fat::FatHeader;
use rzfs_format::zap::leaf::{ARRAY_BYTES, Leaf};

use crate::fat::Fat;
use crate::{ZapBlocks, ZapError};

/// Bytes of a free chunk that `zdb` counts as unused (measured; a chunk has 24).
const FREE_CHUNK_BYTES: usize = 22;

/// Statistics of a ZAP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ZapStatistics {
    /// Of a microzap.
    Micro(MicroStatistics),
    /// Of a fat ZAP.
    Fat(Box<FatStatistics>),
}

/// Statistics of a microzap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MicroStatistics {
    /// Bytes of the block.
    pub block_size: usize,
    /// Entries in use.
    pub entries: usize,
}

/// Counts by a small number; what is beyond the last counts there.
pub type Histogram = [u64; 10];

/// Statistics of a fat ZAP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FatStatistics {
    /// The header.
    pub header: FatHeader,
    /// Blocks of the object.
    pub blocks: u64,
    /// Leaves by log2 of the pointers that refer to them.
    pub leaves_with_pointers: Histogram,
    /// Leaves by a fifth of their entries.
    pub leaves_with_fives: Histogram,
    /// Leaves by tenths of the block that are in use; a free chunk counts as 22 unused bytes, as
    /// it does for `zdb`.
    pub leaves_with_tenths: Histogram,
    /// Entries by the chunks that they take; each word of a key counts as one byte, as it does for
    /// `zdb`.
    pub entries_with_chunks: Histogram,
    /// Buckets by their entries.
    pub buckets_with_entries: Histogram,
}

/// Walks all leaves of a fat ZAP.
pub(crate) fn of_fat<B: ZapBlocks>(
    fat: &Fat,
    blocks: &B,
) -> Result<FatStatistics, ZapError<B::Error>> {
    let mut statistics = FatStatistics {
        header: fat.header.clone(),
        blocks: blocks.block_count().map_err(ZapError::Blocks)?,
        leaves_with_pointers: Histogram::default(),
        leaves_with_fives: Histogram::default(),
        leaves_with_tenths: Histogram::default(),
        entries_with_chunks: Histogram::default(),
        buckets_with_entries: Histogram::default(),
    };
    let mut next = Some(ZapHash(0));
    while let Some(hash) = next {
        let leaf = fat.leaf(blocks, hash)?;
        let counted =
            leaf.view().and_then(|view| statistics.add_leaf(fat, &view).map(|()| view.last_hash()));
        let last = counted.map_err(ZapError::corrupt(leaf.id))?;
        next = last.0.checked_add(1).map(ZapHash);
    }
    Ok(statistics)
}

impl FatStatistics {
    fn add_leaf(&mut self, fat: &Fat, leaf: &Leaf<'_>) -> Result<(), rzfs_format::FormatError> {
        let pointers = fat.header.table_shift.saturating_sub(leaf.prefix_len());
        count(&mut self.leaves_with_pointers, pointers as usize);
        count(&mut self.leaves_with_fives, usize::from(leaf.entry_count()) / 5);
        let size = leaf.geometry().block_size();
        let free = usize::from(leaf.free_chunks()) * FREE_CHUNK_BYTES;
        count(&mut self.leaves_with_tenths, size.saturating_sub(free) * 10 / size);
        for bucket in 0..leaf.geometry().buckets() {
            let mut entries = 0;
            for entry in leaf.bucket(bucket, fat.key_kind()) {
                let entry = entry?;
                // A key of 64-bit words counts as if they were bytes (measured).
                let name = usize::from(entry.name.count).div_ceil(ARRAY_BYTES);
                count(&mut self.entries_with_chunks, 1 + name + entry.value.chunks());
                entries += 1;
            }
            count(&mut self.buckets_with_entries, entries);
        }
        Ok(())
    }

    /// Number of the block with the pointer table; 0 when it is embedded.
    #[must_use]
    pub const fn table_block(&self) -> BlockId {
        match self.header.table {
            rzfs_format::zap::fat::PointerTable::Embedded => BlockId(0),
            rzfs_format::zap::fat::PointerTable::External { first, .. } => first,
        }
    }
}

fn count(histogram: &mut Histogram, number: usize) {
    let last = histogram.len() - 1;
    histogram[number.min(last)] += 1;
}
