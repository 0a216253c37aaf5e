//! Block sizes of files: how the first block grows (spec 05, section 5.5), and which sizes a file
//! system cannot write.
//!
//! CCM cannot encrypt blocks of 16 MiB. A received block of that size exists because its contents
//! compressed; its new contents may not. So it is only read, shared and freed as a whole; a file
//! without contents has no such blocks.

use super::file_system::LiveFileSystem;
use crate::error::ZplError;
use rzfs_dmu::live::{LiveObject, Transaction};

const SECTOR: u64 = 512;

/// The new size of a file's only block so that it reaches to `end`; `None` if it stays. Not called
/// for files with several blocks, or longer than the first one.
///
/// It grows up to the record size. If it is larger and not a power of two, because records used to
/// be larger, it grows to the next power of two.
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

/// Total size of the blocks changed by a write of `offset..end`. `grown` is the new size of the
/// first block, if it changes.
pub(super) fn written_bytes(block_size: u64, grown: Option<u64>, offset: u64, end: u64) -> u64 {
    let size = grown.unwrap_or(block_size).max(1);
    let covered = end.next_multiple_of(size) - offset / size * size;
    // The first block is rewritten wherever the data is.
    if grown.is_some() && offset >= size { covered + size } else { covered }
}

impl LiveFileSystem {
    /// The new size of the only block of a file of `size` bytes so that it reaches to `end`; `None`
    /// if it stays.
    ///
    /// # Errors
    /// The file system's cipher cannot encrypt such a block.
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
        // Incompressible contents must be encrypted at full size.
        let most = self.objset().key().map_or(record_size, |key| key.suite().max_block_size());
        let record_size = record_size.min(most);
        let grown = grown_block(block_size, record_size, end.max(size));
        grown.map(|size| self.check_storable(object, size)).transpose()?;
        Ok(grown)
    }

    /// Grows the only block of a file of `size` bytes to reach to `end`, as far as blocks grow.
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

    /// Whether a block of this size can be written with any contents.
    pub(super) fn can_store(&self, block_size: u64) -> bool {
        self.objset().key().is_none_or(|key| key.suite().can_encrypt(block_size))
    }

    /// Checks that blocks of this size can be written to a file with any contents.
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

    /// Resets the block of a file without contents to a writable size.
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

    /// Checks that the file's blocks can be written if something begins or ends inside them at
    /// these places.
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
