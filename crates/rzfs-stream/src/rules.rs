//! The validity of records of a stream (spec 08, section 11): everything is checked before a record
//! causes an allocation or any other action.
//!
//! The existence of the objects in a record, and the enabled features of the pool, are checked by
//! the receiver.

use crate::error::Problem;
use rzfs_format::ObjectId;
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::compression::CompressionFunction;
use rzfs_format::object_type::ObjectType;
use rzfs_format::stream::{
    Begin, BeginFlags, FreeObjects, FreeRange, MAX_EMBEDDED, Object, ObjectFlags, ObjectRange,
    Record, RecordKind, Spill, StreamFeatures, StreamKind, Write, WriteEmbedded,
};
use rzfs_format::units::{MAX_BLOCK_SIZE, SECTOR_SIZE};

/// The longest packed list after a BEGIN, in bytes.
pub const MAX_NVLIST: u64 = 64 << 20;

/// The longest payload of any other record, in bytes.
pub const MAX_PAYLOAD: u64 = MAX_BLOCK_SIZE;

/// Payloads are whole words of the running checksum.
const WORD: u64 = 4;
/// Larger blocks require a feature.
const LARGE_BLOCK: u64 = 128 << 10;
/// Bytes of a dnode before its bonus area, with one block pointer.
const DNODE_HEAD: u64 = 192;
/// Bytes of a block pointer.
const POINTER: u64 = 128;
const MAX_SLOTS: u64 = 32;
const MAX_LEVELS: u8 = 12;
const MAX_POINTERS: u64 = 3;
/// Dnodes in a block of dnodes.
const RANGE_SLOTS: u64 = 32;
const FILE_SYSTEM: u32 = 2;
const VOLUME: u32 = 3;
/// Metadata of 64-bit numbers, which may have an empty bonus.
const UINT64_METADATA: u32 = 0xc3;

/// The limits of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes of the largest block.
    pub max_block: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_block: MAX_BLOCK_SIZE }
    }
}

/// The rules for records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rules {
    /// Only those needed to find the next record: for debuggers, which show invalid fields too.
    Framing,
    /// All that a receiver relies on.
    Receive(Limits),
}

impl Default for Rules {
    fn default() -> Self {
        Self::Receive(Limits::default())
    }
}

/// The state of a stream for checking its next record.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Substream {
    features: StreamFeatures,
    flags: BeginFlags,
    /// Object and offset of the last WRITE.
    written: (ObjectId, u64),
    /// The first object of the last OBJECT_RANGE.
    range: Option<ObjectId>,
}

impl Substream {
    pub(crate) fn new(begin: &Begin) -> Self {
        Self { features: begin.version.features(), flags: begin.flags, ..Self::default() }
    }

    fn has(&self, feature: StreamFeatures) -> bool {
        self.features.contains(feature)
    }

    fn is_raw(&self) -> bool {
        self.has(StreamFeatures::RAW)
    }
}

/// Length of a record's payload: bounded, and a multiple of words.
pub(crate) fn payload_length(record: &Record) -> Result<u64, Problem> {
    let (kind, value) = (record.kind(), record.payload_length());
    let limit = if kind == RecordKind::Begin { MAX_NVLIST } else { MAX_PAYLOAD };
    if value > limit {
        return Err(Problem::TooLarge { kind, field: "payload length", value, limit });
    }
    if !value.is_multiple_of(WORD) {
        return Err(Problem::Field { kind, field: "payload length", value });
    }
    Ok(value)
}

impl Rules {
    /// Checks a record of a stream, and updates the state for the next one.
    pub(crate) fn check(self, record: &Record, substream: &mut Substream) -> Result<(), Problem> {
        let Self::Receive(limits) = self else { return Ok(()) };
        let judge = Judge { kind: record.kind(), limits, substream: *substream };
        match record {
            Record::Begin(begin) => judge.begin(begin),
            Record::Object(object) => judge.object(object),
            Record::FreeObjects(free) => judge.free_objects(free),
            Record::Write(write) => {
                judge.write(write)?;
                substream.written = (write.object, write.offset);
                Ok(())
            }
            Record::Free(range) | Record::Redact(range) => judge.free(range),
            Record::End(_) => Ok(()),
            Record::WriteByRef(_) => Err(Problem::Deprecated { feature: "dedup" }),
            Record::Spill(spill) => judge.spill(spill),
            Record::WriteEmbedded(write) => judge.write_embedded(write),
            Record::ObjectRange(range) => {
                judge.object_range(range)?;
                substream.range = Some(range.first);
                Ok(())
            }
        }
    }
}

/// Checks one record.
struct Judge {
    kind: RecordKind,
    limits: Limits,
    substream: Substream,
}

impl Judge {
    fn wrong(&self, field: &'static str, value: impl Into<u64>) -> Problem {
        Problem::Field { kind: self.kind, field, value: value.into() }
    }

    fn require(
        &self,
        right: bool,
        field: &'static str,
        value: impl Into<u64>,
    ) -> Result<(), Problem> {
        if right { Ok(()) } else { Err(self.wrong(field, value)) }
    }

    fn needs(&self, met: bool, problem: &'static str) -> Result<(), Problem> {
        if met { Ok(()) } else { Err(Problem::Feature { kind: self.kind, problem }) }
    }

    fn at_most(&self, field: &'static str, value: u64, limit: u64) -> Result<(), Problem> {
        let kind = self.kind;
        if value > limit { Err(Problem::TooLarge { kind, field, value, limit }) } else { Ok(()) }
    }

    fn object_number(&self, object: ObjectId) -> Result<(), Problem> {
        let right = object.get() != 0 && object < ObjectId::END;
        self.require(right, "object", object.get())
    }

    fn object_type(&self, field: &'static str, number: u32) -> Result<(), Problem> {
        let known = u8::try_from(number).is_ok_and(|n| ObjectType::from_number(n).is_ok());
        self.require(known, field, number)
    }

    /// Checks a block: at least a sector, and large only if the stream has large blocks.
    fn block_size(&self, field: &'static str, size: u64) -> Result<(), Problem> {
        self.require(size >= SECTOR_SIZE, field, size)?;
        self.at_most(field, size, self.limits.max_block)?;
        let large = self.substream.has(StreamFeatures::LARGE_BLOCKS);
        self.needs(size <= LARGE_BLOCK || large, "a large block in a stream without large blocks")
    }

    fn extent(&self, offset: u64, length: u64) -> Result<(), Problem> {
        self.require(offset.checked_add(length).is_some(), "offset", offset)
    }

    fn begin(&self, begin: &Begin) -> Result<(), Problem> {
        let features = begin.version.features();
        if features.contains(StreamFeatures::DEDUP)
            || features.contains(StreamFeatures::DEDUP_PROPERTIES)
        {
            return Err(Problem::Deprecated { feature: "dedup" });
        }
        let unknown = features.without(StreamFeatures::KNOWN);
        if unknown != StreamFeatures::NONE {
            return Err(Problem::UnknownFeatures { features, unknown });
        }
        let name = begin.to_name.as_bytes()?;
        let mut parts = name.split(|byte| *byte == b'@');
        let named = [parts.next(), parts.next()].map(|part| part.is_some_and(|p| !p.is_empty()));
        self.needs(named == [true; 2] && parts.next().is_none(), "a name that is no snapshot's")?;
        if begin.version.kind() == Some(StreamKind::Package) {
            return Ok(());
        }
        let known = [FILE_SYSTEM, VOLUME].contains(&begin.objset_type);
        self.require(known, "type", begin.objset_type)?;
        if features.contains(StreamFeatures::RAW) {
            let spill = begin.flags.contains(BeginFlags::SPILL_BLOCK);
            self.needs(spill, "a raw stream without the flag for spill blocks")?;
            let embedded = features.contains(StreamFeatures::EMBED_DATA);
            self.needs(!embedded, "a raw stream with embedded blocks")?;
        }
        Ok(())
    }

    fn object(&self, object: &Object) -> Result<(), Problem> {
        self.object_number(object.object)?;
        self.object_type("type", object.object_type)?;
        self.require(object.object_type != 0, "type", object.object_type)?;
        self.object_type("bonus type", object.bonus_type)?;
        let bonus = u64::from(object.bonus_length);
        let may_be_empty = [u32::from(ObjectType::SA.number()), UINT64_METADATA];
        let right = match object.bonus_type {
            0 => bonus == 0,
            kind => bonus != 0 || may_be_empty.contains(&kind),
        };
        self.require(right, "bonus length", bonus)?;
        let size = u64::from(object.block_size);
        self.block_size("block size", size)?;
        self.require(size.is_multiple_of(SECTOR_SIZE), "block size", size)?;
        let slots = u64::from(object.slot_count());
        self.at_most("slots", slots, MAX_SLOTS)?;
        let large = self.substream.has(StreamFeatures::LARGE_DNODE);
        self.needs(slots == 1 || large, "a large dnode in a stream without large dnodes")?;
        self.require(object.object.get() + slots <= ObjectId::END.get(), "slots", slots)?;
        let capacity = slots * SECTOR_SIZE - DNODE_HEAD;
        self.at_most("bonus length", bonus, capacity)?;
        let checksum = ChecksumFunction::from_number(object.checksum);
        self.require(checksum.is_ok(), "checksum", object.checksum)?;
        let compression = CompressionFunction::from_number(object.compression);
        self.require(compression.is_ok(), "compression function", object.compression)?;
        let spills = object.flags.contains(ObjectFlags::SPILL);
        let told = self.substream.flags.contains(BeginFlags::SPILL_BLOCK);
        self.needs(!spills || told, "a spill block in a stream without the flag for it")?;
        if self.substream.is_raw() {
            return self.raw_object(object, capacity);
        }
        let flags = object.flags.without(ObjectFlags::SPILL);
        self.require(flags == ObjectFlags::NONE, "flags", object.flags.0)?;
        self.require(object.raw_bonus_length == 0, "raw bonus length", object.raw_bonus_length)?;
        self.require(object.indirect_shift == 0, "indirect shift", object.indirect_shift)?;
        self.require(object.levels == 0, "levels", object.levels)?;
        self.require(object.pointers == 0, "block pointers", object.pointers)
    }

    /// Checks a dnode of which the receiver makes an exact copy.
    fn raw_object(&self, object: &Object, capacity: u64) -> Result<(), Problem> {
        let known = ObjectFlags::SPILL.with(ObjectFlags::RAW_BYTESWAP);
        let flags = object.flags.without(known);
        self.require(flags == ObjectFlags::NONE, "flags", object.flags.0)?;
        let (bonus, raw) = (u64::from(object.bonus_length), u64::from(object.raw_bonus_length));
        let pointers = u64::from(object.pointers);
        let derived = if object.bonus_type == u32::from(ObjectType::SA.number()) {
            1
        } else {
            MAX_POINTERS.min(1 + (capacity - bonus) / POINTER)
        };
        self.require(pointers == derived, "block pointers", pointers)?;
        let spill = if object.flags.contains(ObjectFlags::SPILL) { POINTER } else { 0 };
        let taken = (pointers - 1) * POINTER + spill;
        self.at_most("raw bonus length", raw, capacity.saturating_sub(taken))?;
        self.require(raw >= bonus, "raw bonus length", raw)?;
        let shift = object.indirect_shift;
        self.require(matches!(shift, 0 | 12..=17), "indirect shift", shift)?;
        let levels = object.levels;
        self.require(matches!(levels, 1..=MAX_LEVELS), "levels", levels)?;
        let (number, last) =
            (object.object.get(), object.object.get() + u64::from(object.slot_count()));
        let inside = self
            .substream
            .range
            .is_some_and(|first| number >= first.get() && last <= first.get() + RANGE_SLOTS);
        self.needs(inside, "an object outside of the last range")
    }

    fn free_objects(&self, free: &FreeObjects) -> Result<(), Problem> {
        let right = free.first.get().checked_add(free.count).is_some();
        self.require(right, "number of objects", free.count)
    }

    fn write(&self, write: &Write) -> Result<(), Problem> {
        self.object_number(write.object)?;
        self.object_type("type", write.object_type)?;
        self.block_size("logical size", write.logical_size)?;
        self.extent(write.offset, write.logical_size)?;
        self.at_most("compressed size", write.compressed_size, self.limits.max_block)?;
        let compression = CompressionFunction::from_number(write.compression)
            .map_err(|_| self.wrong("compression function", write.compression))?;
        if self.substream.is_raw() {
            let right = write.compressed_size != 0;
            self.require(right, "compressed size", write.compressed_size)?;
        } else if write.compression == 0 {
            let right = write.compressed_size == 0;
            self.require(right, "compressed size", write.compressed_size)?;
        } else {
            let right = (1..=write.logical_size).contains(&write.compressed_size);
            self.require(right, "compressed size", write.compressed_size)?;
            let compressed = self.substream.has(StreamFeatures::COMPRESSED);
            self.needs(compressed, "a compressed block in a stream without them")?;
            self.compression(compression)?;
        }
        let right = (write.object, write.offset) >= self.substream.written;
        self.needs(right, "a block before the last one")
    }

    /// The newer functions require features.
    fn compression(&self, function: CompressionFunction) -> Result<(), Problem> {
        let feature = match function {
            CompressionFunction::Zstd => StreamFeatures::ZSTD,
            CompressionFunction::Lz4 => StreamFeatures::LZ4,
            _ => StreamFeatures::NONE,
        };
        self.needs(self.substream.has(feature), "a block compressed as the stream does not tell")
    }

    fn free(&self, range: &FreeRange) -> Result<(), Problem> {
        self.object_number(range.object)?;
        if range.length == FreeRange::TO_THE_END {
            return Ok(());
        }
        self.extent(range.offset, range.length)
    }

    fn spill(&self, spill: &Spill) -> Result<(), Problem> {
        self.object_number(spill.object)?;
        self.object_type("type", spill.object_type)?;
        self.require(spill.length >= SECTOR_SIZE, "length", spill.length)?;
        self.at_most("length", spill.length, self.limits.max_block)?;
        let (size, compression) = (spill.compressed_size, spill.compression);
        if self.substream.is_raw() {
            self.require((1..=spill.length).contains(&size), "compressed size", size)?;
            let known = CompressionFunction::from_number(compression).is_ok();
            self.require(known, "compression function", compression)
        } else {
            self.require(size == 0, "compressed size", size)?;
            self.require(compression == 0, "compression function", compression)
        }
    }

    fn write_embedded(&self, write: &WriteEmbedded) -> Result<(), Problem> {
        self.needs(!self.substream.is_raw(), "an embedded block in a raw stream")?;
        let embedded = self.substream.has(StreamFeatures::EMBED_DATA);
        self.needs(embedded, "an embedded block in a stream without them")?;
        self.object_number(write.object)?;
        self.at_most("length", write.length, self.limits.max_block)?;
        let large = self.substream.has(StreamFeatures::LARGE_BLOCKS);
        let right = write.length <= LARGE_BLOCK || large;
        self.needs(right, "a large block in a stream without large blocks")?;
        self.extent(write.offset, write.length)?;
        let (logical, physical) = (write.logical_size, write.physical_size);
        self.at_most("physical size", physical.into(), MAX_EMBEDDED.into())?;
        self.at_most("logical size", logical.into(), write.length)?;
        let function = CompressionFunction::from_number(write.compression)
            .map_err(|_| self.wrong("compression function", write.compression))?;
        let right = match function {
            CompressionFunction::Off => logical == physical,
            _ => logical >= physical,
        };
        self.require(right, "logical size", logical)?;
        self.require(write.embedded_type == 0, "embedded type", write.embedded_type)
    }

    fn object_range(&self, range: &ObjectRange) -> Result<(), Problem> {
        self.needs(self.substream.is_raw(), "a range in a stream that is not raw")?;
        self.require(range.slots == RANGE_SLOTS, "slots", range.slots)?;
        let first = range.first.get();
        let right = first.is_multiple_of(RANGE_SLOTS) && first <= ObjectId::END.get() - RANGE_SLOTS;
        self.require(right, "first object", first)
    }
}

#[cfg(test)]
mod tests;
