//! The native encoding: the in-core pairs of the writer, in its byte order (spec 01, section 2.5).
//!
//! ```text
//! 0      4          6   8       12     16
//! | size | name len | 0 | count | type | name NUL, padded to 8 | value, padded to 8 |
//! ```
//! The pairs of an embedded list follow the pair that holds it; where the list itself would be
//! there is a header of 24 bytes with its version and flags. Four zero bytes end a list. OpenZFS
//! refuses lists of the other byte order; here they decode like any other.

use super::data_type::DataType;
use super::limits::{MAX_DECODE_DEPTH, MAX_ENCODE_DEPTH, MAX_NAME_LEN, WHAT};
use super::packed::{Cursor, native_pair_size, size_i32, value_offset};
use super::string::NvString;
use super::value::{NvList, NvPair, NvValue, Uniqueness};
use crate::{ByteOrder, FormatError};

/// Bytes of the header that stands for an embedded list.
const LIST_HEADER_SIZE: usize = 24;

/// Smallest contents of an embedded list: its end mark.
const MIN_CONTENT_SIZE: usize = 4;

pub(super) fn decode(cursor: &mut Cursor<'_>, order: ByteOrder) -> Result<NvList, FormatError> {
    let header = cursor.array::<8>()?;
    let list = empty_list(&header, order)?;
    Decoder { order }.pairs(cursor, list, 0)
}

/// The list of a version and flags.
fn empty_list(header: &[u8], order: ByteOrder) -> Result<NvList, FormatError> {
    let fields = crate::endian::Fields::new(WHAT, header, order);
    let version = fields.u32(0)?;
    if version != 0 {
        return Err(FormatError::field(WHAT, "version", version));
    }
    Ok(NvList::with_uniqueness(Uniqueness::from_flags(fields.u32(4)?)))
}

struct Decoder {
    order: ByteOrder,
}

impl Decoder {
    fn pairs(
        &self,
        cursor: &mut Cursor<'_>,
        mut list: NvList,
        depth: usize,
    ) -> Result<NvList, FormatError> {
        if depth > MAX_DECODE_DEPTH {
            return Err(FormatError::invalid(WHAT, "lists nested too deep"));
        }
        loop {
            let size = self.order.u32(cursor.array()?);
            if size == 0 {
                return Ok(list);
            }
            list.push(self.pair(cursor, size, depth)?)?;
        }
    }

    fn pair(
        &self,
        cursor: &mut Cursor<'_>,
        size: u32,
        depth: usize,
    ) -> Result<NvPair, FormatError> {
        let name_size = usize::from(self.order.u16(cursor.array()?));
        cursor.take(2)?;
        let count = self.order.u32(cursor.array()?);
        let data_type = DataType::from_number(self.order.u32(cursor.array()?))?;
        if !data_type.accepts_count(count) {
            return Err(FormatError::field(WHAT, "number of elements", count));
        }
        if name_size == 0 || name_size > MAX_NAME_LEN + 1 {
            return Err(FormatError::field(WHAT, "name length", name_size as u64));
        }
        let name = terminated(cursor.take(name_size)?)?;
        let value_at = value_offset(name.len());
        cursor.take(value_at - 16 - name_size)?;
        let value_size = (size as usize).checked_sub(value_at);
        let value_size = value_size.ok_or(FormatError::field(WHAT, "pair size", size))?;
        let mut value = Cursor { bytes: cursor.take(value_size)?, at: 0 };
        let value = self.value(&mut value, cursor, data_type, count as usize, depth)?;
        if native_pair_size(name.len(), &value) != size as usize {
            return Err(FormatError::field(WHAT, "pair size", size));
        }
        Ok(NvPair { name, value })
    }

    /// The value at `cursor`; embedded lists are read from `contents`, which is after the pair.
    fn value(
        &self,
        cursor: &mut Cursor<'_>,
        contents: &mut Cursor<'_>,
        data_type: DataType,
        count: usize,
        depth: usize,
    ) -> Result<NvValue, FormatError> {
        let order = self.order;
        Ok(match data_type {
            DataType::Boolean => NvValue::Boolean,
            DataType::Byte => NvValue::Byte(cursor.array::<1>()?[0]),
            DataType::Int8 => NvValue::Int8(cursor.array::<1>()?[0] as i8),
            DataType::UInt8 => NvValue::UInt8(cursor.array::<1>()?[0]),
            DataType::Int16 => NvValue::Int16(order.u16(cursor.array()?) as i16),
            DataType::UInt16 => NvValue::UInt16(order.u16(cursor.array()?)),
            DataType::Int32 => NvValue::Int32(order.u32(cursor.array()?) as i32),
            DataType::UInt32 => NvValue::UInt32(order.u32(cursor.array()?)),
            DataType::Int64 => NvValue::Int64(order.u64(cursor.array()?) as i64),
            DataType::UInt64 => NvValue::UInt64(order.u64(cursor.array()?)),
            DataType::HrTime => NvValue::HrTime(order.u64(cursor.array()?) as i64),
            DataType::Double => NvValue::Double(order.u64(cursor.array()?)),
            DataType::BooleanValue => NvValue::BooleanValue(self.boolean(cursor.array()?)?),
            DataType::String => {
                let rest = cursor.take(cursor.remaining())?;
                NvValue::String(until_nul(rest)?)
            }
            DataType::ByteArray => NvValue::ByteArray(cursor.take(count)?.into()),
            DataType::UInt8Array => NvValue::UInt8Array(cursor.take(count)?.into()),
            DataType::Int8Array => {
                NvValue::Int8Array(cursor.take(count)?.iter().map(|byte| *byte as i8).collect())
            }
            DataType::Int16Array => {
                NvValue::Int16Array(elements(cursor, count, |word| order.u16(word) as i16)?)
            }
            DataType::UInt16Array => {
                NvValue::UInt16Array(elements(cursor, count, |word| order.u16(word))?)
            }
            DataType::Int32Array => {
                NvValue::Int32Array(elements(cursor, count, |word| order.u32(word) as i32)?)
            }
            DataType::UInt32Array => {
                NvValue::UInt32Array(elements(cursor, count, |word| order.u32(word))?)
            }
            DataType::Int64Array => {
                NvValue::Int64Array(elements(cursor, count, |word| order.u64(word) as i64)?)
            }
            DataType::UInt64Array => {
                NvValue::UInt64Array(elements(cursor, count, |word| order.u64(word))?)
            }
            DataType::BooleanArray => {
                let values = elements(cursor, count, |word| self.boolean(word))?;
                NvValue::BooleanArray(values.into_iter().collect::<Result<_, _>>()?)
            }
            DataType::StringArray => NvValue::StringArray(strings(cursor, count)?),
            DataType::List => {
                let list = empty_list(cursor.take(LIST_HEADER_SIZE)?, order)?;
                NvValue::List(Box::new(self.pairs(contents, list, depth + 1)?))
            }
            DataType::ListArray => self.lists(cursor, contents, count, depth)?,
        })
    }

    fn boolean(&self, word: [u8; 4]) -> Result<bool, FormatError> {
        match self.order.u32(word) {
            0 => Ok(false),
            1 => Ok(true),
            word => Err(FormatError::field(WHAT, "boolean value", word)),
        }
    }

    fn lists(
        &self,
        cursor: &mut Cursor<'_>,
        contents: &mut Cursor<'_>,
        count: usize,
        depth: usize,
    ) -> Result<NvValue, FormatError> {
        cursor.take_elements(count, 8)?;
        let headers = cursor.take_elements(count, LIST_HEADER_SIZE)?;
        if count > contents.remaining() / MIN_CONTENT_SIZE {
            return Err(contents.truncated(count.saturating_mul(MIN_CONTENT_SIZE)));
        }
        let mut lists = Vec::with_capacity(count);
        for header in headers.chunks_exact(LIST_HEADER_SIZE) {
            let list = empty_list(header, self.order)?;
            lists.push(self.pairs(contents, list, depth + 1)?);
        }
        Ok(NvValue::ListArray(lists.into()))
    }
}

/// A string of exactly these bytes, the last of which is its NUL.
fn terminated(bytes: &[u8]) -> Result<NvString, FormatError> {
    match bytes.split_last() {
        Some((0, text)) => NvString::new(text),
        _ => Err(FormatError::invalid(WHAT, "string without its NUL")),
    }
}

/// The string up to the first NUL.
fn until_nul(bytes: &[u8]) -> Result<NvString, FormatError> {
    let len = bytes.iter().position(|byte| *byte == 0);
    let len = len.ok_or(FormatError::invalid(WHAT, "string without its NUL"))?;
    NvString::new(bytes.get(..len).unwrap_or_default())
}

fn strings(cursor: &mut Cursor<'_>, count: usize) -> Result<Box<[NvString]>, FormatError> {
    cursor.take_elements(count, 8)?;
    let mut texts = Vec::with_capacity(count);
    for _ in 0..count {
        let rest = cursor.bytes.get(cursor.at..).unwrap_or_default();
        let text = until_nul(rest)?;
        cursor.take(text.len() + 1)?;
        texts.push(text);
    }
    Ok(texts.into())
}

/// `count` numbers of `N` bytes.
fn elements<const N: usize, T>(
    cursor: &mut Cursor<'_>,
    count: usize,
    element: impl Fn([u8; N]) -> T,
) -> Result<Box<[T]>, FormatError> {
    let (words, _) = cursor.take_elements(count, N)?.as_chunks::<N>();
    Ok(words.iter().map(|word| element(*word)).collect())
}

pub(super) fn encode(
    list: &NvList,
    order: ByteOrder,
    out: &mut Vec<u8>,
) -> Result<(), FormatError> {
    out.extend(order.bytes32(0));
    out.extend(order.bytes32(list.uniqueness().flags()));
    Encoder { order, out }.pairs(list, 0)
}

struct Encoder<'a> {
    order: ByteOrder,
    out: &'a mut Vec<u8>,
}

impl Encoder<'_> {
    fn pairs(&mut self, list: &NvList, depth: usize) -> Result<(), FormatError> {
        if depth > MAX_ENCODE_DEPTH {
            return Err(FormatError::invalid(WHAT, "lists nested too deep"));
        }
        for pair in list.iter() {
            self.pair(pair, depth)?;
        }
        self.word(0);
        Ok(())
    }

    fn pair(&mut self, pair: &NvPair, depth: usize) -> Result<(), FormatError> {
        let start = self.out.len();
        let size = native_pair_size(pair.name.len(), &pair.value);
        self.word(size_i32(size)?);
        let name_size = u16::try_from(pair.name.len() + 1)
            .map_err(|_| FormatError::invalid(WHAT, "name is too long"))?;
        self.out.extend(self.order.bytes16(name_size));
        self.out.extend([0; 2]);
        self.word(size_i32(pair.value.count())?);
        self.word(u32::from(pair.value.data_type().number()));
        self.out.extend(&*pair.name);
        self.out.resize(start + value_offset(pair.name.len()), 0);
        self.value(&pair.value);
        self.out.resize(start + size, 0);
        match &pair.value {
            NvValue::List(list) => self.pairs(list, depth + 1),
            NvValue::ListArray(lists) => {
                lists.iter().try_for_each(|list| self.pairs(list, depth + 1))
            }
            _ => Ok(()),
        }
    }

    fn word(&mut self, word: u32) {
        self.out.extend(self.order.bytes32(word));
    }

    fn list_header(&mut self, list: &NvList) {
        self.word(0);
        self.word(list.uniqueness().flags());
        self.out.extend([0; 16]);
    }

    fn value(&mut self, value: &NvValue) {
        let order = self.order;
        match value {
            NvValue::Boolean => {}
            NvValue::Byte(value) | NvValue::UInt8(value) => self.out.push(*value),
            NvValue::Int8(value) => self.out.push(*value as u8),
            NvValue::Int16(value) => self.out.extend(order.bytes16(*value as u16)),
            NvValue::UInt16(value) => self.out.extend(order.bytes16(*value)),
            NvValue::Int32(value) => self.word(*value as u32),
            NvValue::UInt32(value) => self.word(*value),
            NvValue::BooleanValue(value) => self.word(u32::from(*value)),
            NvValue::Int64(value) | NvValue::HrTime(value) => {
                self.out.extend(order.bytes64(*value as u64));
            }
            NvValue::UInt64(value) | NvValue::Double(value) => {
                self.out.extend(order.bytes64(*value));
            }
            NvValue::String(text) => self.out.extend(&**text),
            NvValue::ByteArray(bytes) | NvValue::UInt8Array(bytes) => self.out.extend(bytes),
            NvValue::Int8Array(values) => self.out.extend(values.iter().map(|v| *v as u8)),
            NvValue::Int16Array(values) => {
                self.out.extend(values.iter().flat_map(|v| order.bytes16(*v as u16)));
            }
            NvValue::UInt16Array(values) => {
                self.out.extend(values.iter().flat_map(|v| order.bytes16(*v)));
            }
            NvValue::Int32Array(values) => values.iter().for_each(|v| self.word(*v as u32)),
            NvValue::UInt32Array(values) => values.iter().for_each(|v| self.word(*v)),
            NvValue::BooleanArray(values) => values.iter().for_each(|v| self.word(u32::from(*v))),
            NvValue::Int64Array(values) => {
                self.out.extend(values.iter().flat_map(|v| order.bytes64(*v as u64)));
            }
            NvValue::UInt64Array(values) => {
                self.out.extend(values.iter().flat_map(|v| order.bytes64(*v)));
            }
            NvValue::StringArray(texts) => {
                self.out.extend(std::iter::repeat_n(0, texts.len() * 8));
                for text in texts {
                    self.out.extend(&**text);
                    self.out.push(0);
                }
            }
            NvValue::List(list) => self.list_header(list),
            NvValue::ListArray(lists) => {
                self.out.extend(std::iter::repeat_n(0, lists.len() * 8));
                lists.iter().for_each(|list| self.list_header(list));
            }
        }
    }
}
