//! Converts a walk over an object set to the records of a stream (spec 08, sections 7.1 and 7.2).
//!
//! ```text
//! block of dnodes   OBJECT_RANGE, if the stream is raw
//!                   for each slot: OBJECT, FREE after its last block, [SPILL, if it is old]
//!                                  or FREEOBJECTS
//! data block        WRITE, WRITE_EMBEDDED or SPILL
//! hole              FREE; among the dnodes FREEOBJECTS
//! ```
//! Adjacent FREE or FREEOBJECTS records are merged.

use crate::batch::Batch;
use crate::raw;
use crate::{Form, SendError};
use rzfs_dmu::{DmuError, DnodeSlot, Visit, Visitor};
use rzfs_format::block_pointer::PointerKind;
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::compression::CompressionFunction;
use rzfs_format::dnode::{Dnode, SLOT_SIZE};
use rzfs_format::object_type::{ByteSwapClass, ObjectType};
use rzfs_format::stream::{
    FreeObjects, FreeRange, Object, ObjectFlags, ObjectRange, RangeFlags, Record, Spill,
    SpillFlags, StreamFeatures, Write, WriteEmbedded, WriteFlags,
};
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockId, BlockPointer, ByteOrder, Guid, Level, ObjectId, ObjsetId, Txg};
use std::ops::ControlFlow;

/// The largest block that every receiver accepts, in bytes.
pub(crate) const SMALL_BLOCK: u64 = 128 << 10;
/// Units of the sizes in [`Write::key_properties`].
const SECTOR: u64 = 512;

/// Parameters of a stream for its records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) objset: ObjsetId,
    pub(crate) to_guid: Guid,
    /// Blocks no younger than this are with the receiver.
    pub(crate) after: Txg,
    pub(crate) features: StreamFeatures,
    pub(crate) form: Form,
    /// The first object number that no dnode block reaches.
    pub(crate) end: ObjectId,
    /// The start of the walk; `None` for the first object.
    pub(crate) start: Option<Bookmark>,
    /// The last object, and the offset in it of the last block; `None` for all.
    pub(crate) last: Option<(ObjectId, u64)>,
}

impl Terms {
    /// Whether data at this offset of an object, and all that follow, are no longer sent.
    fn is_behind(&self, object: ObjectId, offset: u64) -> bool {
        self.last.is_some_and(|last| (object, offset) > last)
    }

    /// Whether blocks of this size are sent unsplit.
    pub(crate) const fn is_whole(&self, size: u64) -> bool {
        size <= SMALL_BLOCK || self.features.contains(StreamFeatures::LARGE_BLOCKS)
    }
}

/// A visitor that converts blocks to records, and passes these on in batches.
pub(crate) struct Records<Sink> {
    terms: Terms,
    batch: Batch,
    /// A free range that may still grow.
    free: Option<Free>,
    sink: Sink,
    error: Option<SendError>,
}

/// A free range.
#[derive(Clone, Copy)]
enum Free {
    Range { object: ObjectId, offset: u64, length: u64 },
    Objects { first: u64, count: u64 },
}

impl<Sink: FnMut(Batch) -> ControlFlow<()>> Records<Sink> {
    pub(crate) fn new(terms: Terms, sink: Sink) -> Self {
        Self { terms, batch: Batch::default(), free: None, sink, error: None }
    }

    /// Passes on the remaining records.
    pub(crate) fn finish(mut self) -> Result<(), SendError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        self.push_free();
        // If the receiver is gone, it knows why.
        let _ = (self.sink)(self.batch);
        Ok(())
    }

    fn push_free(&mut self) {
        let to_guid = self.terms.to_guid;
        let record = match self.free.take() {
            None => return,
            Some(Free::Range { object, offset, length }) => {
                Record::Free(FreeRange { object, offset, length, to_guid })
            }
            Some(Free::Objects { first, count }) => {
                Record::FreeObjects(FreeObjects { first: ObjectId(first), count, to_guid })
            }
        };
        self.batch.push(record, &[]);
    }

    /// The batch, for a record that follows a free range.
    fn next(&mut self) -> &mut Batch {
        self.push_free();
        &mut self.batch
    }

    fn fail(&mut self, error: SendError) -> ControlFlow<()> {
        self.error = Some(error);
        ControlFlow::Break(())
    }

    /// Passes on a full batch.
    fn flow(&mut self) -> ControlFlow<()> {
        if self.batch.is_full() {
            (self.sink)(std::mem::take(&mut self.batch))
        } else {
            ControlFlow::Continue(())
        }
    }

    fn free_objects(&mut self, first: u64, count: u64) {
        let end = first.saturating_add(count).min(self.terms.end.0);
        if first >= end {
            return;
        }
        if let Some(Free::Objects { first: known, count }) = &mut self.free
            && *known + *count == first
        {
            *count = end - *known;
            return;
        }
        self.push_free();
        self.free = Some(Free::Objects { first, count: end - first });
    }

    fn free_range(&mut self, object: ObjectId, offset: u64, length: u64) {
        if let Some(Free::Range { object: known, offset: from, length: so_far }) = &mut self.free
            && *known == object
            && from.checked_add(*so_far) == Some(offset)
            && length != FreeRange::TO_THE_END
        {
            *so_far += length;
            return;
        }
        self.push_free();
        self.free = Some(Free::Range { object, offset, length });
        if length == FreeRange::TO_THE_END {
            self.push_free();
        }
    }

    /// Adds the encryption parameters of a block of dnodes, whose objects follow.
    fn range(&mut self, bookmark: Bookmark, pointer: &BlockPointer) -> Result<(), SendError> {
        let params = raw::crypt_params(pointer).ok_or(SendError::NotSealed { bookmark })?;
        let slots = pointer.logical_size() / SLOT_SIZE as u64;
        let record = ObjectRange {
            first: ObjectId(bookmark.block.0.saturating_mul(slots)),
            slots,
            to_guid: self.terms.to_guid,
            salt: params.salt,
            iv: params.iv,
            mac: params.mac,
            flags: match is_foreign(pointer.order()) {
                true => RangeFlags::RAW_BYTESWAP,
                false => RangeFlags::NONE,
            },
        };
        self.next().push(Record::ObjectRange(record), &[]);
        Ok(())
    }

    fn object(&mut self, slot: &DnodeSlot<'_>, dnode: &Dnode) -> Result<(), SendError> {
        let object = slot.object;
        let to_guid = self.terms.to_guid;
        let bookmark =
            Bookmark { objset: self.terms.objset, object, level: Level::DATA, block: BlockId(0) };
        let is_raw = self.terms.form.raw;
        let is_swapped =
            is_foreign(dnode.order) && dnode.bonus_type.byte_swap_class() != ByteSwapClass::Uint8;
        if is_swapped && !dnode.bonus.is_empty() && !is_raw {
            return Err(SendError::ForeignOrder { bookmark });
        }
        let spill = dnode.spill.as_ref().filter(|spill| !spill.is_hole());
        let block_size = u64::from(dnode.data_block_size);
        let shown = if self.terms.is_whole(block_size) { block_size } else { SMALL_BLOCK };
        let mut record = Object {
            object,
            object_type: dnode.object_type.number().into(),
            bonus_type: dnode.bonus_type.number().into(),
            block_size: shown as u32,
            bonus_length: dnode.bonus.len() as u32,
            checksum: dnode.checksum,
            compression: dnode.compress,
            slots: dnode.slots,
            flags: if dnode.spill.is_some() { ObjectFlags::SPILL } else { ObjectFlags::NONE },
            to_guid,
            ..Object::default()
        };
        match is_raw {
            true => {
                let area = raw::bonus_area(dnode, slot.bytes);
                record.raw_bonus_length = area.len() as u32;
                // In stored form: a dnode without indirect blocks has their size, too.
                record.indirect_shift = slot.bytes.get(1).copied().unwrap_or_default();
                record.levels = dnode.levels;
                record.pointers = dnode.pointers.len() as u8;
                record.max_block_id = dnode.max_block_id.0;
                if is_foreign(dnode.order) {
                    record.flags = record.flags.with(ObjectFlags::RAW_BYTESWAP);
                }
                self.next().push(Record::Object(record), area);
            }
            false => self.next().push(Record::Object(record), &dnode.bonus),
        }
        let behind = dnode.max_block_id.0.checked_add(1);
        if let Some(offset) = behind.and_then(|blocks| blocks.checked_mul(block_size)) {
            self.free_range(object, offset, FreeRange::TO_THE_END);
        }
        match spill {
            Some(spill) if spill.logical_birth() <= self.terms.after => {
                let bookmark = Bookmark { block: BlockId::SPILL, ..bookmark };
                self.spill(bookmark, spill, SpillFlags::UNMODIFIED)
            }
            _ => Ok(()),
        }
    }

    fn spill(
        &mut self,
        bookmark: Bookmark,
        pointer: &BlockPointer,
        flags: SpillFlags,
    ) -> Result<(), SendError> {
        let (object, length) = (bookmark.object, pointer.logical_size());
        let mut record =
            Spill { object, length, to_guid: self.terms.to_guid, flags, ..Spill::default() };
        if self.terms.form.raw {
            let params = raw::crypt_params(pointer).ok_or(SendError::NotSealed { bookmark })?;
            let compression = pointer.compression();
            let compression =
                compression.map_err(|source| SendError::Pointer { bookmark, source })?;
            (record.salt, record.iv, record.mac) = (params.salt, params.iv, params.mac);
            record.compression = compression.number();
            record.compressed_size = pointer.physical_size();
            if is_foreign(pointer.order()) {
                record.flags = record.flags.with(SpillFlags::RAW_BYTESWAP);
            }
            self.next().push_stored(Record::Spill(record), (*pointer, bookmark));
            return Ok(());
        }
        if is_foreign(pointer.order()) {
            return Err(SendError::ForeignOrder { bookmark });
        }
        self.next().push_contents(Record::Spill(record), (*pointer, bookmark));
        Ok(())
    }

    fn data(
        &mut self,
        bookmark: Bookmark,
        dnode: &Dnode,
        pointer: &BlockPointer,
    ) -> Result<(), SendError> {
        let wrong = |source| SendError::Pointer { bookmark, source };
        let size = u64::from(dnode.data_block_size);
        // The blocks of an object have equal size; the walk has checked that.
        let Some(offset) = bookmark.block.0.checked_mul(size) else { return Ok(()) };
        let (object, to_guid) = (bookmark.object, self.terms.to_guid);
        let (compression, kind) = (pointer.compression().map_err(wrong)?, dnode.object_type);
        let is_embedded = pointer.kind() == PointerKind::Embedded;
        if is_embedded && self.is_sent_embedded(compression) {
            let (payload, length) = pointer.embedded_payload();
            let record = WriteEmbedded {
                object,
                offset,
                length: pointer.logical_size(),
                to_guid,
                compression: compression.number(),
                embedded_type: 0,
                logical_size: pointer.logical_size() as u32,
                physical_size: length as u32,
            };
            let payload = payload.get(..length).unwrap_or_default();
            self.next().push(Record::WriteEmbedded(record), payload);
            return Ok(());
        }
        let (is_foreign, is_raw) = (is_foreign(pointer.order()), self.terms.form.raw);
        if is_foreign && !is_raw && kind.byte_swap_class() != ByteSwapClass::Uint8 {
            return Err(SendError::ForeignOrder { bookmark });
        }
        let mut record = Write {
            object,
            object_type: kind.number().into(),
            offset,
            logical_size: size,
            to_guid,
            checksum: ChecksumFunction::Off.number(),
            ..Write::default()
        };
        // The checksum is meaningful only for blocks sent exactly as stored.
        let is_whole = self.terms.is_whole(size);
        if is_raw && !is_whole {
            return Err(SendError::NotSealed { bookmark });
        }
        if is_raw || is_whole && !is_embedded && !pointer.has_crypt_bit() {
            let function = pointer.checksum_function().map_err(wrong)?;
            record.checksum = function.number();
            record.key_checksum = pointer.checksum();
            record.key_properties = key_properties(pointer, compression);
            if function.is_dedup_safe() {
                record.flags = WriteFlags::CHECKSUM_DEDUP;
            }
            if is_raw {
                let params = raw::crypt_params(pointer).ok_or(SendError::NotSealed { bookmark })?;
                (record.salt, record.iv, record.mac) = (params.salt, params.iv, params.mac);
                if is_foreign {
                    record.flags = record.flags.with(WriteFlags::RAW_BYTESWAP);
                }
                record.compression = compression.number();
                record.compressed_size = pointer.physical_size();
                self.next().push_stored(Record::Write(record), (*pointer, bookmark));
                return Ok(());
            }
            let is_compressed = self.terms.form.compressed
                && compression != CompressionFunction::Off
                && !is_foreign
                && !kind.is_metadata();
            if is_compressed {
                record.compression = compression.number();
                record.compressed_size = pointer.physical_size();
                self.next().push_stored(Record::Write(record), (*pointer, bookmark));
                return Ok(());
            }
        }
        self.next().push_contents(Record::Write(record), (*pointer, bookmark));
        Ok(())
    }

    fn is_sent_embedded(&self, compression: CompressionFunction) -> bool {
        let has = |feature| self.terms.features.contains(feature);
        has(StreamFeatures::EMBED_DATA)
            && match compression {
                CompressionFunction::Lz4 => has(StreamFeatures::LZ4),
                CompressionFunction::Zstd => has(StreamFeatures::ZSTD),
                _ => true,
            }
    }
}

/// Whether the byte order differs from the stream's.
fn is_foreign(order: ByteOrder) -> bool {
    order != ByteOrder::NATIVE
}

/// Sizes and compression of a pointer, packed (spec 08, section 2.4).
fn key_properties(pointer: &BlockPointer, compression: CompressionFunction) -> u64 {
    let sectors = |bytes: u64| (bytes / SECTOR).saturating_sub(1) & 0xffff;
    sectors(pointer.logical_size())
        | sectors(pointer.physical_size()) << 16
        | u64::from(compression.number()) << 32
        | u64::from(pointer.has_crypt_bit()) << 39
}

impl<Sink: FnMut(Batch) -> ControlFlow<()>> Visitor for Records<Sink> {
    fn block(&mut self, visit: &Visit<'_>) -> ControlFlow<()> {
        let Visit { bookmark, pointer, dnode } = *visit;
        if bookmark.object == ObjectId::META_DNODE
            && bookmark.level == Level::DATA
            && self.terms.form.raw
        {
            return match self.range(bookmark, pointer) {
                Ok(()) => self.flow(),
                Err(error) => self.fail(error),
            };
        }
        let is_of_object =
            bookmark.object != ObjectId::META_DNODE && bookmark.object < ObjectId::END;
        let Some(dnode) = dnode.filter(|_| is_of_object && bookmark.level == Level::DATA) else {
            return ControlFlow::Continue(());
        };
        let offset = match bookmark.block {
            BlockId::SPILL => u64::MAX,
            block => block.0.saturating_mul(dnode.data_block_size.into()),
        };
        if self.terms.is_behind(bookmark.object, offset) {
            return ControlFlow::Break(());
        }
        let sent = match bookmark.block {
            BlockId::SPILL => self.spill(bookmark, pointer, SpillFlags::NONE),
            _ => self.data(bookmark, dnode, pointer),
        };
        match sent {
            Ok(()) => self.flow(),
            Err(error) => self.fail(error),
        }
    }

    fn slot(&mut self, slot: &DnodeSlot<'_>) -> ControlFlow<()> {
        let sent = match slot.dnode {
            _ if slot.object == ObjectId::META_DNODE => Ok(()),
            // Sent even after the last object, where it confirms earlier records.
            None => {
                self.free_objects(slot.object.0, 1);
                Ok(())
            }
            Some(_) if self.terms.is_behind(slot.object, 0) => return ControlFlow::Break(()),
            Some(dnode) => self.object(slot, dnode),
        };
        match sent {
            Ok(()) => self.flow(),
            Err(error) => self.fail(error),
        }
    }

    fn hole(&mut self, hole: &Visit<'_>) -> ControlFlow<()> {
        let (bookmark, Some(dnode)) = (hole.bookmark, hole.dnode) else {
            return ControlFlow::Continue(());
        };
        let level = u32::from(bookmark.level.0.max(0).unsigned_abs());
        let shift = level * dnode.pointers_shift();
        let blocks = |block: u64| block.checked_shl(shift).filter(|all| all >> shift == block);
        let unit = u64::from(dnode.data_block_size);
        let Some(first) = blocks(bookmark.block.0) else { return ControlFlow::Continue(()) };
        let count = blocks(1);
        if bookmark.object == ObjectId::META_DNODE {
            let slots = unit / SLOT_SIZE as u64;
            let count = count.map_or(u64::MAX, |count| count.saturating_mul(slots));
            self.free_objects(first.saturating_mul(slots), count);
        } else if bookmark.object < ObjectId::END && is_sent(dnode, first) {
            let Some(offset) = first.checked_mul(unit) else { return ControlFlow::Continue(()) };
            if self.terms.is_behind(bookmark.object, offset) {
                return ControlFlow::Break(());
            }
            let length = count.and_then(|count| count.checked_mul(unit));
            let length = length.filter(|length| offset.checked_add(*length).is_some());
            let length = length.unwrap_or(FreeRange::TO_THE_END);
            self.free_range(bookmark.object, offset, length);
        }
        self.flow()
    }

    fn damage(&mut self, error: DmuError) -> ControlFlow<()> {
        self.fail(SendError::Read(error))
    }
}

/// Whether a hole starting at this block is sent: one after the end of a file is not.
fn is_sent(dnode: &Dnode, first: u64) -> bool {
    let kind: ObjectType = dnode.object_type;
    kind.is_metadata() || first <= dnode.max_block_id.0
}
