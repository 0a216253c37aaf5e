//! New ZAPs.

use bytes::Bytes;
use rzfs_format::BlockId;
use rzfs_format::zap::fat::{Geometry, ZapFlags};

use crate::fat::Fat;
use crate::micro::Micro;
use crate::{Normalization, ZapBlocksMut, ZapError};

/// Bytes of a new microzap.
const MICRO_SIZE: usize = 512;
/// Largest block of a fat ZAP that OpenZFS makes.
const FAT_MAX_BLOCK_SIZE: usize = 128 << 10;

/// What a new ZAP is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewZap {
    salt: u64,
    normalization: Normalization,
    fat: Option<(ZapFlags, usize)>,
}

impl NewZap {
    /// A microzap without entries. Its salt is the given random number, made odd so that it is
    /// not zero; it stays the same for as long as the ZAP exists.
    #[must_use]
    pub const fn new(random: u64) -> Self {
        Self { salt: random | 1, normalization: Normalization::NONE, fat: None }
    }

    /// A ZAP that normalises names in this way.
    #[must_use]
    pub const fn normalization(self, normalization: Normalization) -> Self {
        Self { normalization, ..self }
    }

    /// A ZAP that is fat from the start, with these flags and blocks of this size in bytes: a
    /// power of two from 512 to 128 KiB.
    #[must_use]
    pub const fn fat(self, flags: ZapFlags, block_size: usize) -> Self {
        Self { fat: Some((flags, block_size)), ..self }
    }

    /// Writes it to an object that has one block at most.
    pub fn write_to<B: ZapBlocksMut>(&self, blocks: &mut B) -> Result<(), ZapError<B::Error>> {
        let contents = match self.fat {
            None => vec![Micro::encode_empty(MICRO_SIZE, self.salt, self.normalization)],
            Some((flags, block_size)) => {
                if flags.0 > 7 {
                    return Err(ZapError::UnknownFlags(flags.0));
                }
                let size = block_size.min(FAT_MAX_BLOCK_SIZE + 1);
                let geometry = Geometry::of_block_size(size).map_err(ZapError::BadShape)?;
                let empty = Fat::encode_empty(geometry, self.salt, self.normalization, flags);
                empty.map_err(ZapError::BadShape)?.into()
            }
        };
        let size = contents.first().map_or(MICRO_SIZE, Vec::len);
        blocks.set_block_size(size).map_err(ZapError::Blocks)?;
        for (id, block) in (0..).map(BlockId).zip(contents) {
            blocks.write_block(id, Bytes::from(block)).map_err(ZapError::Blocks)?;
        }
        Ok(())
    }
}
