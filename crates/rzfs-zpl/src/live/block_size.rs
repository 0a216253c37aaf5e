//! Sizes of files' blocks: how the first one grows (spec 05, section 5.5), and which ones a file
//! system cannot write.
//!
//! What is encrypted with CCM is shorter than 16 MiB. A block of that size from elsewhere is there
//! because its contents compressed; those that somebody writes over them may not. So it is read,
//! shared and freed as a whole, and nothing else; a file without contents has no such blocks.

use super::file_system::LiveFileSystem;
use crate::error::ZplError;
use rzfs_dmu::live::{LiveObject, Transaction};

const SECTOR: u64 = 512;

/// The size of a file's only block so that it can reach to `end`; `None` if it stays. A file with
/// several blocks, or that is longer than its first one, is not asked for.
///
/// It grows up to the size of records. When it is larger and no power of two, because records
/// were larger once, it grows to the next power of two.
fn grown_block(block_size: u64, record_size: u64, end: u64) -> Option<u64> {
    if end <= block_size {
        return None;
    }
    let most = if block_size > record_size {
        block_size.checked_next_power_of_two()?
    } else {
        record_size
    };
    let wanted = end.checked_next_multiple_of(SECTOR).unwrap_or(u64::MAX);
    Some(wanted.min(most)).filter(|size| *size > block_size)
}

/// Bytes of the blocks that a write of `offset..end` changes. `grown` is the size that the first
/// block gets, if it does not stay.
pub(super) fn written_bytes(block_size: u64, grown: Option<u64>, offset: u64, end: u64) -> u64 {
    let size = grown.unwrap_or(block_size).max(1);
    let covered = end.next_multiple_of(size) - offset / size * size;
    // The first block is written anew wherever the data is.
    if grown.is_some() && offset >= size { covered + size } else { covered }
}

impl LiveFileSystem {
    /// The size that the only block of a file of `size` bytes gets so that it can reach to `end`;
    /// `None` if it stays.
    ///
    /// # Errors
    /// It would have to be one that the file system's cipher cannot take.
    pub(super) fn grown_size(
        &self,
        object: &LiveObject,
        size: u64,
        end: u64,
    ) -> Result<Option<u64>, ZplError> {
        let block_size = u64::from(object.data_block_size()?);
        if object.max_block_id()?.0 > 0 || size > block_size {
            return Ok(None);
        }
        let record_size = u64::from(self.options().reading.record_size);
        // Contents that do not compress have to be encrypted as they are.
        let most = self.objset().key().map_or(record_size, |key| key.suite().max_block_size());
        let record_size = record_size.min(most);
        let grown = grown_block(block_size, record_size, end.max(size));
        grown.map(|size| self.check_storable(object, size)).transpose()?;
        Ok(grown)
    }

    /// Makes the only block of a file of `size` bytes large enough to reach to `end`, as far as
    /// blocks grow.
    pub(super) fn grow_block(
        &self,
        tx: &dyn Transaction,
        object: &LiveObject,
        size: u64,
        end: u64,
    ) -> Result<(), ZplError> {
        if let Some(grown) = self.grown_size(object, size, end)? {
            object.set_data_block_size(tx, u32::try_from(grown).unwrap_or(u32::MAX))?;
        }
        Ok(())
    }

    /// Whether a block of so many bytes can be written whatever it holds.
    pub(super) fn can_store(&self, block_size: u64) -> bool {
        self.objset().key().is_none_or(|key| key.suite().can_encrypt(block_size))
    }

    /// Checks that blocks of so many bytes can be written to a file whatever they hold.
    pub(super) fn check_storable(
        &self,
        object: &LiveObject,
        block_size: u64,
    ) -> Result<(), ZplError> {
        if self.can_store(block_size) {
            return Ok(());
        }
        Err(ZplError::TooBig { place: self.place(object.id()) })
    }

    /// Makes the block of a file that has no contents any more one that can be written.
    pub(super) fn shrink_empty(
        &self,
        tx: &dyn Transaction,
        object: &LiveObject,
        size: u64,
    ) -> Result<(), ZplError> {
        if size == 0 && !self.can_store(object.data_block_size()?.into()) {
            object.set_data_block_size(tx, SECTOR as u32)?;
        }
        Ok(())
    }

    /// Checks that the blocks of a file can be written in which something begins or ends at these
    /// places.
    pub(super) fn check_edges(&self, object: &LiveObject, edges: &[u64]) -> Result<(), ZplError> {
        let block_size = u64::from(object.data_block_size()?);
        if edges.iter().all(|edge| edge.is_multiple_of(block_size)) {
            return Ok(());
        }
        self.check_storable(object, block_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_claims_the_blocks_that_it_changes() {
        const BLOCK: u64 = 4096;
        for (grown, offset, end, expected) in [
            (None, 0, 1, BLOCK),
            (None, 100, BLOCK, BLOCK),
            (None, BLOCK - 1, BLOCK + 1, 2 * BLOCK),
            (None, 5 * BLOCK, 7 * BLOCK, 2 * BLOCK),
            (Some(3 * BLOCK), 2 * BLOCK, 3 * BLOCK, 3 * BLOCK),
            (Some(8 * BLOCK), 16 * BLOCK, 17 * BLOCK, 16 * BLOCK),
        ] {
            assert_eq!(written_bytes(BLOCK, grown, offset, end), expected, "{offset} {end}");
        }
    }

    #[test]
    fn only_blocks_grow_as_the_spec_says() {
        const RECORD: u64 = 131_072;
        for (block, record, end, expected) in [
            (512, RECORD, 1000, Some(1024)),
            (512, RECORD, 512, None),
            (512, RECORD, 513, Some(1024)),
            (1024, RECORD, 100_000, Some(100_352)),
            (512, RECORD, 1_000_001, Some(RECORD)),
            (100_352, RECORD, 300_000, Some(RECORD)),
            (RECORD, RECORD, 300_000, None),
            (100_352, 4096, 300_000, Some(RECORD)),
            (RECORD, 4096, 300_000, None),
            (512, 512, 5000, None),
            (512, RECORD, u64::MAX, Some(RECORD)),
        ] {
            assert_eq!(grown_block(block, record, end), expected, "{block} {record} {end}");
        }
    }
}
