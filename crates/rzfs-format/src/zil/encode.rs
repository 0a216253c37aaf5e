//! Making log records (spec 05, section 10.5).
//!
//! A record is made when its operation happens; its sequence number is known when it goes into a
//! block. So the header is filled in last, by [`stamp`].
//!
//! ```text
//! 0 type  8 length  16 txg  24 sequence number   <- stamp
//! 32 numbers of the kind  .. attributes  .. strings, each with NUL  .. zeros up to 8
//! ```

use super::attributes::ExtendedAttributes;
use super::body::{Body, CloneRange, Create, NewObject, Rename, SetAttr, SetXattr, Write};
use super::kind::RecordKind;
use super::record::HEADER_SIZE;
use crate::FormatError;
use crate::block_pointer::BlockPointer;
use crate::endian::{ByteOrder, FieldsMut};
use crate::units::{ObjectId, Txg};

const WHAT: &str = "log record";
/// Records are multiples of this.
const ALIGNMENT: usize = 8;

/// Bytes of a write record before its data.
pub const WRITE_HEADER_SIZE: usize = 192;

/// A record under construction.
struct Builder {
    bytes: Vec<u8>,
    order: ByteOrder,
}

impl Builder {
    fn new(order: ByteOrder) -> Self {
        Self { bytes: vec![0; HEADER_SIZE], order }
    }

    fn words(&mut self, words: &[u64]) -> &mut Self {
        for word in words {
            self.bytes.extend(self.order.bytes64(*word));
        }
        self
    }

    fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Adds a string; one that contains a NUL would be another one when it is read.
    fn string(&mut self, string: &[u8]) -> Result<&mut Self, FormatError> {
        if string.contains(&0) {
            return Err(FormatError::invalid(WHAT, "a name with a NUL"));
        }
        Ok(self.raw(string).raw(&[0]))
    }

    fn strings(&mut self, strings: &[&[u8]]) -> Result<&mut Self, FormatError> {
        for string in strings {
            self.string(string)?;
        }
        Ok(self)
    }

    fn attributes(&mut self, attributes: Option<&ExtendedAttributes>) -> &mut Self {
        if let Some(attributes) = attributes {
            let section = attributes.encode(self.order);
            self.raw(&section);
        }
        self
    }

    fn new_object(&mut self, new: &NewObject) -> &mut Self {
        let [seconds, nanoseconds] = new.create_time.encode();
        let slots = u64::from(new.slots.saturating_sub(1)) << 56;
        self.words(&[
            new.object.0 | slots,
            new.mode,
            new.uid.0,
            new.gid.0,
            new.generation,
            seconds,
            nanoseconds,
            new.device.encode(),
        ])
    }

    fn finish(mut self, kind: RecordKind) -> Vec<u8> {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
        let length = self.bytes.len() as u64;
        let mut fields = FieldsMut::new(&mut self.bytes, self.order);
        fields.set_u64s(0, &[kind as u64, length]);
        self.bytes
    }
}

impl Body<'_> {
    /// The bytes of a record of this kind, whose header has type and length but neither txg nor
    /// sequence number: [`stamp`] adds these.
    ///
    /// # Errors
    /// The body is none of this kind, a name contains NUL, or it is one of the lists of access
    /// control entries that Linux does not log.
    pub fn encode(&self, kind: RecordKind, order: ByteOrder) -> Result<Vec<u8>, FormatError> {
        use RecordKind as Kind;
        let mut record = Builder::new(order);
        match (self, kind) {
            (
                Self::Create(create),
                Kind::Create
                | Kind::Mkdir
                | Kind::MkXattr
                | Kind::Symlink
                | Kind::CreateAttr
                | Kind::MkdirAttr,
            ) => encode_create(&mut record, kind, create)?,
            (Self::Remove { directory, name }, Kind::Remove | Kind::Rmdir) => {
                record.words(&[directory.0]).string(name)?;
            }
            (Self::Link { directory, object, name }, Kind::Link) => {
                record.words(&[directory.0, object.0]).string(name)?;
            }
            (Self::Rename(rename), Kind::Rename | Kind::RenameExchange | Kind::RenameWhiteout) => {
                encode_rename(&mut record, kind, rename)?;
            }
            (Self::Write(write), Kind::Write | Kind::Write2) => encode_write(&mut record, write)?,
            (Self::Truncate { object, offset, length }, Kind::Truncate) => {
                record.words(&[object.0, *offset, *length]);
            }
            (Self::SetAttr(set), Kind::SetAttr) => encode_set_attr(&mut record, set)?,
            (Self::SetXattr(set), Kind::SetXattr) => encode_set_xattr(&mut record, set)?,
            (Self::CloneRange(clone), Kind::CloneRange) => encode_clone(&mut record, clone),
            _ => return Err(FormatError::invalid(kind.name(), "a body of another kind")),
        }
        Ok(record.finish(kind))
    }
}

fn encode_create(
    record: &mut Builder,
    kind: RecordKind,
    create: &Create<'_>,
) -> Result<(), FormatError> {
    let has_attributes = matches!(kind, RecordKind::CreateAttr | RecordKind::MkdirAttr);
    if has_attributes != create.attributes.is_some() {
        return Err(FormatError::invalid(kind.name(), "attributes of another kind"));
    }
    record.words(&[create.directory.0]).new_object(&create.new);
    record.attributes(create.attributes.as_ref()).strings(&create.domains)?;
    record.string(create.name)?;
    if kind == RecordKind::Symlink {
        record.string(create.target)?;
    }
    Ok(())
}

fn encode_rename(
    record: &mut Builder,
    kind: RecordKind,
    rename: &Rename<'_>,
) -> Result<(), FormatError> {
    if (kind == RecordKind::RenameWhiteout) != rename.whiteout.is_some() {
        return Err(FormatError::invalid(kind.name(), "a whiteout of another kind"));
    }
    record.words(&[rename.from_directory.0, rename.to_directory.0]);
    if let Some(whiteout) = &rename.whiteout {
        record.new_object(&whiteout.0);
    }
    record.strings(&[rename.from, rename.to])?;
    Ok(())
}

fn encode_write(record: &mut Builder, write: &Write<'_>) -> Result<(), FormatError> {
    if !write.is_indirect() && write.data.len() as u64 != write.length {
        return Err(FormatError::field("TX_WRITE", "length", write.length));
    }
    record.words(&[write.object.0, write.offset, write.length, 0]);
    let pointer = write.pointer.encode(record.order);
    record.raw(&pointer).raw(write.data);
    Ok(())
}

fn encode_set_attr(record: &mut Builder, set: &SetAttr<'_>) -> Result<(), FormatError> {
    let says_attributes = set.mask & SetAttr::LINUX_XVATTR != 0;
    if says_attributes != set.attributes.is_some() {
        return Err(FormatError::field("TX_SETATTR", "mask", set.mask));
    }
    let [atime, mtime] = [set.atime.encode(), set.mtime.encode()];
    record
        .words(&[set.object.0, set.mask, set.mode, set.uid.0, set.gid.0, set.size])
        .words(&atime)
        .words(&mtime)
        .attributes(set.attributes.as_ref())
        .strings(&set.domains)?;
    Ok(())
}

fn encode_set_xattr(record: &mut Builder, set: &SetXattr<'_>) -> Result<(), FormatError> {
    let value = set.value.unwrap_or_default();
    record.words(&[set.object.0, value.len() as u64]).string(set.name)?.raw(value);
    if record.bytes.len() < RecordKind::SetXattr.minimum_length() {
        record.raw(&[0]);
    }
    Ok(())
}

fn encode_clone(record: &mut Builder, clone: &CloneRange) {
    let count = clone.pointers.len() as u64;
    record.words(&[clone.object.0, clone.offset, clone.length, clone.block_size, count]);
    for pointer in &clone.pointers {
        let bytes = pointer.encode(record.order);
        record.raw(&bytes);
    }
}

/// Fills in what is known last about a record: its txg and its sequence number.
///
/// # Panics
/// When `record` is shorter than a record's header, which no encoder makes.
pub fn stamp(record: &mut [u8], txg: Txg, seq: u64, order: ByteOrder) {
    FieldsMut::new(record, order).set_u64s(16, &[txg.get(), seq]);
}

/// A write whose data lies in its record, which is made in place: the data is not copied twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteHeader {
    /// The file.
    pub object: ObjectId,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

impl WriteHeader {
    /// Bytes of the record with its data.
    #[must_use]
    pub const fn record_size(length: usize) -> usize {
        WRITE_HEADER_SIZE + length.next_multiple_of(ALIGNMENT)
    }

    /// Writes everything before the data into a record of zeros that has its final length.
    ///
    /// # Panics
    /// When `record` has no room for it: its owner makes it of [`WriteHeader::record_size`].
    pub fn encode(&self, record: &mut [u8], order: ByteOrder) {
        let size = record.len() as u64;
        let mut fields = FieldsMut::new(record, order);
        fields.set_u64s(0, &[RecordKind::Write as u64, size]);
        fields.set_u64s(HEADER_SIZE, &[self.object.0, self.offset, self.length, 0]);
        fields.set_bytes(64, &BlockPointer::HOLE.encode(order));
    }
}

#[cfg(test)]
mod tests;
