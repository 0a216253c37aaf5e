//! The counters of a table: the number of shared blocks in each range.

use crate::PoolError;
use rzfs_dmu::{Object, Objset};
use rzfs_format::brt::{self, BrtHeader};
use rzfs_format::{BlockId, FormatError};

/// log2 of the minimum block size.
const MIN_BLOCK_SHIFT: u32 = 9;
/// Maximum entries of a 16 MiB range. A counter has room for twice as many.
pub(super) const MAX_ENTRIES: u16 = 1 << 15;

/// The counters of a table.
pub(super) fn read_counters(object: &Object, header: &BrtHeader) -> Result<Vec<u16>, PoolError> {
    let mut counters = Vec::new();
    let blocks = (header.counters * 2).div_ceil(u64::from(object.block_size()));
    for block in 0..blocks {
        let block = object.read_block(BlockId(block))?;
        counters.extend(brt::counters(&block.data, header.counter_order));
    }
    counters.truncate(header.counters as usize);
    Ok(counters)
}

/// Reconstructs the counters of a table from its entries. If these are damaged too, every block is
/// looked up, with an unknown result: the counters are such that no change takes them to zero, and
/// that OpenZFS, which lets them overflow, can continue with them.
pub(super) fn count_entries(mos: &Objset, header: &BrtHeader) -> Vec<u16> {
    count_readable(mos, header).unwrap_or_else(|error| {
        tracing::warn!(%error, "blocks that may be shared will never be freed");
        let most = u16::try_from(header.range_size >> MIN_BLOCK_SHIFT).unwrap_or(u16::MAX);
        vec![most.clamp(1, MAX_ENTRIES); header.counters as usize]
    })
}

/// Counts the entries of each range, unless some of them cannot be read.
fn count_readable(mos: &Objset, header: &BrtHeader) -> Result<Vec<u16>, PoolError> {
    let mut counters = vec![0_u16; header.counters as usize];
    let object = mos.object(header.entries)?;
    for entry in object.zap()?.entries() {
        let entry = entry.map_err(|source| object.zap_error(source))?;
        let offset = entry.key.as_words().and_then(|words| words.first());
        let offset = offset.ok_or_else(|| {
            let problem = FormatError::invalid("block reference table", "a key is no offset");
            PoolError::corrupt(object.id())(problem)
        })?;
        let range = usize::try_from(header.range_of(*offset)).unwrap_or(usize::MAX);
        if let Some(counter) = counters.get_mut(range) {
            *counter = counter.saturating_add(1);
        }
    }
    Ok(counters)
}
