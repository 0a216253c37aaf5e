//! The XDR encoding (spec 01, section 2.4).
//!
//! ```text
//! list: version | flags | pair ... | 0 | 0
//! pair: encoded size | decoded size | name length | name, padded | type | count | value, padded
//! ```
//! All words are big-endian. The decoded size is that of the same pair in the native format; a
//! pair without one ends the list. The encoded size is not looked at, as OpenZFS overstates it for
//! empty arrays.

use super::data_type::DataType;
use super::limits::{MAX_DECODE_DEPTH, MAX_ENCODE_DEPTH, MAX_NAME_LEN, WHAT};
use super::packed::{Cursor, native_pair_size, size_i32};
use super::string::NvString;
use super::value::{NvList, NvPair, NvValue, Uniqueness};
use crate::FormatError;

/// Smallest embedded list: version, flags and end mark.
const MIN_LIST_SIZE: usize = 16;

pub(super) fn decode(cursor: &mut Cursor<'_>, depth: usize) -> Result<NvList, FormatError> {
    if depth > MAX_DECODE_DEPTH {
        return Err(FormatError::invalid(WHAT, "lists nested too deep"));
    }
    let version = word(cursor)?;
    if version != 0 {
        return Err(FormatError::field(WHAT, "version", version));
    }
    let mut list = NvList::with_uniqueness(Uniqueness::from_flags(word(cursor)?));
    loop {
        let _encoded_size = word(cursor)?;
        let decoded_size = word(cursor)?;
        if decoded_size == 0 {
            return Ok(list);
        }
        let name = string(cursor)?;
        if name.len() > MAX_NAME_LEN {
            return Err(FormatError::invalid(WHAT, "name is too long"));
        }
        let data_type = DataType::from_number(word(cursor)?)?;
        let count = word(cursor)?;
        if !data_type.accepts_count(count) {
            return Err(FormatError::field(WHAT, "number of elements", count));
        }
        let value = value(cursor, data_type, count as usize, depth)?;
        if native_pair_size(name.len(), &value) != decoded_size as usize {
            return Err(FormatError::field(WHAT, "decoded size", decoded_size));
        }
        list.push(NvPair { name, value })?;
    }
}

fn word(cursor: &mut Cursor<'_>) -> Result<u32, FormatError> {
    Ok(u32::from_be_bytes(cursor.array()?))
}

fn double_word(cursor: &mut Cursor<'_>) -> Result<u64, FormatError> {
    Ok(u64::from_be_bytes(cursor.array()?))
}

fn opaque<'a>(cursor: &mut Cursor<'a>, len: usize) -> Result<&'a [u8], FormatError> {
    let bytes = cursor.take(len)?;
    cursor.take(len.next_multiple_of(4) - len)?;
    Ok(bytes)
}

fn string(cursor: &mut Cursor<'_>) -> Result<NvString, FormatError> {
    let len = word(cursor)? as usize;
    if len > cursor.remaining() {
        return Err(cursor.truncated(len));
    }
    NvString::new(opaque(cursor, len)?)
}

fn boolean(word: u32) -> Result<bool, FormatError> {
    match word {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(FormatError::field(WHAT, "boolean value", word)),
    }
}

/// `count` words of four bytes, each made an element.
fn words<T>(
    cursor: &mut Cursor<'_>,
    count: usize,
    element: impl Fn(u32) -> T,
) -> Result<Box<[T]>, FormatError> {
    let (words, _) = cursor.take_elements(count, 4)?.as_chunks::<4>();
    Ok(words.iter().map(|word| element(u32::from_be_bytes(*word))).collect())
}

fn double_words<T>(
    cursor: &mut Cursor<'_>,
    count: usize,
    element: impl Fn(u64) -> T,
) -> Result<Box<[T]>, FormatError> {
    let (words, _) = cursor.take_elements(count, 8)?.as_chunks::<8>();
    Ok(words.iter().map(|word| element(u64::from_be_bytes(*word))).collect())
}

fn value(
    cursor: &mut Cursor<'_>,
    data_type: DataType,
    count: usize,
    depth: usize,
) -> Result<NvValue, FormatError> {
    if data_type.has_xdr_count() && count != 0 && word(cursor)? as usize != count {
        return Err(FormatError::invalid(WHAT, "two different counts of an array"));
    }
    Ok(match data_type {
        DataType::Boolean => NvValue::Boolean,
        DataType::Byte => NvValue::Byte(word(cursor)? as u8),
        DataType::Int8 => NvValue::Int8(word(cursor)? as i8),
        DataType::UInt8 => NvValue::UInt8(word(cursor)? as u8),
        DataType::Int16 => NvValue::Int16(word(cursor)? as i16),
        DataType::UInt16 => NvValue::UInt16(word(cursor)? as u16),
        DataType::Int32 => NvValue::Int32(word(cursor)? as i32),
        DataType::UInt32 => NvValue::UInt32(word(cursor)?),
        DataType::Int64 => NvValue::Int64(double_word(cursor)? as i64),
        DataType::UInt64 => NvValue::UInt64(double_word(cursor)?),
        DataType::HrTime => NvValue::HrTime(double_word(cursor)? as i64),
        DataType::Double => NvValue::Double(double_word(cursor)?),
        DataType::BooleanValue => NvValue::BooleanValue(boolean(word(cursor)?)?),
        DataType::String => NvValue::String(string(cursor)?),
        DataType::ByteArray => NvValue::ByteArray(opaque(cursor, count)?.into()),
        DataType::Int8Array => NvValue::Int8Array(words(cursor, count, |word| word as i8)?),
        DataType::UInt8Array => NvValue::UInt8Array(words(cursor, count, |word| word as u8)?),
        DataType::Int16Array => NvValue::Int16Array(words(cursor, count, |word| word as i16)?),
        DataType::UInt16Array => NvValue::UInt16Array(words(cursor, count, |word| word as u16)?),
        DataType::Int32Array => NvValue::Int32Array(words(cursor, count, |word| word as i32)?),
        DataType::UInt32Array => NvValue::UInt32Array(words(cursor, count, |word| word)?),
        DataType::BooleanArray => {
            let values = words(cursor, count, boolean)?;
            NvValue::BooleanArray(values.into_iter().collect::<Result<_, _>>()?)
        }
        DataType::Int64Array => {
            NvValue::Int64Array(double_words(cursor, count, |word| word as i64)?)
        }
        DataType::UInt64Array => NvValue::UInt64Array(double_words(cursor, count, |word| word)?),
        DataType::StringArray => {
            let texts = bounded(cursor, count, 4, string)?;
            NvValue::StringArray(texts.into())
        }
        DataType::List => NvValue::List(Box::new(decode(cursor, depth + 1)?)),
        DataType::ListArray => {
            let list = |cursor: &mut Cursor<'_>| decode(cursor, depth + 1);
            NvValue::ListArray(bounded(cursor, count, MIN_LIST_SIZE, list)?.into())
        }
    })
}

/// `count` elements that take at least `min_size` bytes each.
fn bounded<'a, T>(
    cursor: &mut Cursor<'a>,
    count: usize,
    min_size: usize,
    element: impl Fn(&mut Cursor<'a>) -> Result<T, FormatError>,
) -> Result<Vec<T>, FormatError> {
    if count > cursor.remaining() / min_size {
        return Err(cursor.truncated(count.saturating_mul(min_size)));
    }
    let mut elements = Vec::with_capacity(count);
    for _ in 0..count {
        elements.push(element(cursor)?);
    }
    Ok(elements)
}

pub(super) fn encode(list: &NvList, depth: usize, out: &mut Vec<u8>) -> Result<(), FormatError> {
    if depth > MAX_ENCODE_DEPTH {
        return Err(FormatError::invalid(WHAT, "lists nested too deep"));
    }
    put(out, 0);
    put(out, list.uniqueness().flags());
    for pair in list.iter() {
        let start = out.len();
        put(out, 0);
        put(out, size_i32(native_pair_size(pair.name.len(), &pair.value))?);
        put_string(out, &pair.name)?;
        let data_type = pair.value.data_type();
        put(out, u32::from(data_type.number()));
        let count = size_i32(pair.value.count())?;
        put(out, count);
        if data_type.has_xdr_count() && count != 0 {
            put(out, count);
        }
        put_value(&pair.value, depth, out)?;
        let missing_count = if data_type.has_xdr_count() && count == 0 { 4 } else { 0 };
        let size = size_i32(out.len() - start + missing_count)?;
        out[start..start + 4].copy_from_slice(&size.to_be_bytes());
    }
    put(out, 0);
    put(out, 0);
    Ok(())
}

fn put(out: &mut Vec<u8>, word: u32) {
    out.extend(word.to_be_bytes());
}

fn put_opaque(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(bytes);
    out.extend(std::iter::repeat_n(0, bytes.len().next_multiple_of(4) - bytes.len()));
}

fn put_string(out: &mut Vec<u8>, text: &NvString) -> Result<(), FormatError> {
    put(out, size_i32(text.len())?);
    put_opaque(out, text);
    Ok(())
}

fn put_value(value: &NvValue, depth: usize, out: &mut Vec<u8>) -> Result<(), FormatError> {
    match value {
        NvValue::Boolean => {}
        NvValue::Byte(value) | NvValue::UInt8(value) => put(out, u32::from(*value)),
        NvValue::Int8(value) => put(out, u32::from(*value as u8)),
        NvValue::Int16(value) => put(out, u32::from(*value as u16)),
        NvValue::UInt16(value) => put(out, u32::from(*value)),
        NvValue::Int32(value) => put(out, *value as u32),
        NvValue::UInt32(value) => put(out, *value),
        NvValue::BooleanValue(value) => put(out, u32::from(*value)),
        NvValue::Int64(value) | NvValue::HrTime(value) => out.extend(value.to_be_bytes()),
        NvValue::UInt64(value) | NvValue::Double(value) => out.extend(value.to_be_bytes()),
        NvValue::String(text) => put_string(out, text)?,
        NvValue::ByteArray(bytes) => put_opaque(out, bytes),
        NvValue::Int8Array(values) => {
            values.iter().for_each(|value| put(out, u32::from(*value as u8)));
        }
        NvValue::UInt8Array(values) => values.iter().for_each(|value| put(out, u32::from(*value))),
        NvValue::Int16Array(values) => {
            values.iter().for_each(|value| put(out, u32::from(*value as u16)));
        }
        NvValue::UInt16Array(values) => values.iter().for_each(|value| put(out, u32::from(*value))),
        NvValue::Int32Array(values) => values.iter().for_each(|value| put(out, *value as u32)),
        NvValue::UInt32Array(values) => values.iter().for_each(|value| put(out, *value)),
        NvValue::BooleanArray(values) => {
            values.iter().for_each(|value| put(out, u32::from(*value)));
        }
        NvValue::Int64Array(values) => out.extend(values.iter().flat_map(|v| v.to_be_bytes())),
        NvValue::UInt64Array(values) => out.extend(values.iter().flat_map(|v| v.to_be_bytes())),
        NvValue::StringArray(texts) => {
            for text in texts {
                put_string(out, text)?;
            }
        }
        NvValue::List(list) => encode(list, depth + 1, out)?,
        NvValue::ListArray(lists) => {
            for list in lists {
                encode(list, depth + 1, out)?;
            }
        }
    }
    Ok(())
}
