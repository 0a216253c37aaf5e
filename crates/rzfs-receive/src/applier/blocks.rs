//! Records of blocks: WRITE, WRITE_EMBEDDED, FREE and SPILL.

use super::Applier;
use crate::error::{ReceiveError, RecordProblem};
use rzfs_codec::compress::decompress;
use rzfs_dmu::live::{Extent, LiveObject};
use rzfs_format::BlockId;
use rzfs_format::compression::CompressionFunction;
use rzfs_format::stream::{FreeRange, Spill, SpillFlags, Write, WriteEmbedded};

impl Applier<'_> {
    pub(super) fn write(&mut self, write: &Write, payload: &[u8]) -> Result<(), ReceiveError> {
        let object = self.existing(write.object)?;
        if write.compression == 0 {
            return self.write_at(&object, write.offset, payload);
        }
        let contents = self.compressed(write.compression, payload)?;
        let data = |this: &Self, contents: &[u8]| this.write_at(&object, write.offset, contents);
        self.with_decompressed(contents, write.logical_size, data)
    }

    pub(super) fn write_embedded(
        &mut self,
        write: &WriteEmbedded,
        payload: &[u8],
    ) -> Result<(), ReceiveError> {
        let object = self.existing(write.object)?;
        let payload = payload.get(..write.physical_size as usize).unwrap_or(payload);
        let contents = self.compressed(write.compression, payload)?;
        let length = u64::from(write.logical_size);
        // An embedded spill block is sent like data, at the offset given by its number.
        if write.offset == BlockId::SPILL.0.wrapping_mul(write.length) {
            let spill = |this: &Self, contents: &[u8]| this.spill_into(&object, contents);
            return self.with_decompressed(contents, length, spill);
        }
        let data = |this: &Self, contents: &[u8]| this.write_at(&object, write.offset, contents);
        self.with_decompressed(contents, length, data)?;
        // The rest of the block is zeros.
        let rest = write.length.saturating_sub(length);
        if rest > 0 {
            let from = write.offset.saturating_add(length);
            self.make_hole(&object, from, Extent::Bytes(rest))?;
        }
        Ok(())
    }

    fn compressed<'p>(
        &self,
        function: u8,
        payload: &'p [u8],
    ) -> Result<(CompressionFunction, &'p [u8]), ReceiveError> {
        let function = CompressionFunction::from_number(function);
        Ok((function.map_err(|error| self.wrong(error))?, payload))
    }

    /// Calls a function with the `length` decompressed bytes of a block, no more than the largest
    /// block size: the reader has checked that.
    fn with_decompressed(
        &mut self,
        (function, payload): (CompressionFunction, &[u8]),
        length: u64,
        then: impl FnOnce(&Self, &[u8]) -> Result<(), ReceiveError>,
    ) -> Result<(), ReceiveError> {
        let mut contents = std::mem::take(&mut self.scratch);
        contents.resize(length as usize, 0);
        let result = match decompress(function, payload, &mut contents) {
            Ok(()) => then(self, &contents),
            Err(error) => Err(self.wrong(error)),
        };
        self.scratch = contents;
        result
    }

    fn write_at(
        &self,
        object: &LiveObject,
        offset: u64,
        contents: &[u8],
    ) -> Result<(), ReceiveError> {
        let failed = |error| self.failed(error);
        let block_size = u64::from(object.data_block_size().map_err(failed)?);
        let end = offset.saturating_add(contents.len() as u64);
        if !block_size.is_power_of_two() && end > block_size {
            return Err(self.wrong(RecordProblem::OddBlocks { object: object.id() }));
        }
        // Partly written blocks are rewritten as a whole.
        let blocks = end.div_ceil(block_size).saturating_sub(offset / block_size);
        let tx = self.begin(object, blocks.saturating_mul(block_size))?;
        object.write(&tx, offset, contents).map_err(failed)
    }

    pub(super) fn free_range(&mut self, range: &FreeRange) -> Result<(), ReceiveError> {
        let object = self.existing(range.object)?;
        let extent = match range.length {
            FreeRange::TO_THE_END => Extent::ToEnd,
            length => Extent::Bytes(length),
        };
        self.make_hole(&object, range.offset, extent)
    }

    pub(super) fn put_spill(&mut self, spill: &Spill, payload: &[u8]) -> Result<(), ReceiveError> {
        if self.traits.marks_spills && spill.flags.contains(SpillFlags::UNMODIFIED) {
            return Ok(());
        }
        let object = self.existing(spill.object)?;
        self.spill_into(&object, payload)
    }

    fn spill_into(&self, object: &LiveObject, contents: &[u8]) -> Result<(), ReceiveError> {
        let failed = |error| self.failed(error);
        let bonus = object.bonus().map_err(failed)?;
        self.require_room((object, bonus.len()), true)?;
        let tx = self.begin(object, contents.len() as u64)?;
        object.set_spill(&tx, contents).map_err(failed)
    }
}
