//! Prefetching dedup tables.

use super::attributes::Attributes;
use super::error::PoolError;
use super::{Pool, ReadOnly};
use rzfs_format::ddt::{self, DdtClass};

/// Bytes of a table requested at a time.
const PREFETCH: u64 = 4 << 20;

impl Pool<ReadOnly> {
    /// Reads all blocks of the dedup tables into the cache, as far as there is room.
    ///
    /// # Errors
    /// [`PoolError`]: a table cannot be read.
    pub fn prefetch_dedup_tables(&self) -> Result<(), PoolError> {
        for checksum in ddt::FUNCTIONS {
            let own = self.directory().object(&ddt::directory_name(checksum))?;
            let own = own.map(|own| Attributes::open(self.mos(), own)).transpose()?;
            let names = own.as_ref().unwrap_or_else(|| self.directory());
            for class in DdtClass::ALL {
                let Some(zap) = names.object(&ddt::object_name(checksum, class))? else { continue };
                let object = self.mos().object(zap)?;
                let size = u64::from(object.block_size()).max(1);
                let blocks = object.dnode().extent().div_ceil(size);
                let step = usize::try_from(PREFETCH / size).unwrap_or(1).max(1);
                for start in (0..blocks).step_by(step) {
                    let end = start.saturating_add(step as u64).min(blocks);
                    for block in object.read_blocks(start..end) {
                        block?;
                    }
                }
            }
        }
        Ok(())
    }
}
