//! Name-value lists: the configuration language of pools (spec 01, section 2).
//!
//! ```text
//! byte 0        1        2     4
//! | encoding    | endian | 0 0 | version 0 | flags | pair | pair | ... | end mark |
//! | 0 nat 1 XDR |        |     |
//! ```
//!
//! A list keeps its pairs in order, each once more in a hash table over the names (xxh3), so that
//! a look-up by name and the replacement of a pair do not depend on the number of pairs. Order and
//! packed bytes depend on the pairs alone, never on the table.
//!
//! Decoding takes hostile bytes: nesting is bounded by [`MAX_DECODE_DEPTH`], every count is checked
//! against the bytes that are left before anything is allocated for it, and a decoded list never
//! takes more than about sixteen times the memory of its packed form.

mod name_index;
mod native;
mod value;
mod xdr;

use crate::{ByteOrder, FormatError};
use name_index::NameIndex;
pub use value::{DataType, NvString, NvValue};

/// Deepest nesting that is decoded (OpenZFS's user-space tools have the same bound).
pub const MAX_DECODE_DEPTH: usize = 100;

/// Deepest nesting that is encoded: what OpenZFS's kernel module still reads.
pub const MAX_ENCODE_DEPTH: usize = 20;

/// Longest name in bytes, so that it and its NUL fit the native format's 16-bit length.
pub const MAX_NAME_LEN: usize = 32_766;

/// No packed list, pair or value is longer: the format's sizes are signed 32-bit numbers.
const MAX_SIZE: usize = i32::MAX as usize;

/// Bytes of the header of a packed list.
const HEADER_SIZE: usize = 4;

const WHAT: &str = "nvlist";

/// How a list is packed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Encoding {
    /// Machine format in one of the byte orders: history, cache file, send streams.
    Native(ByteOrder),
    /// XDR, always big-endian inside: labels and objects of the MOS.
    Xdr,
}

/// What a list does with a second pair of the same name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Uniqueness {
    /// Both stay.
    Duplicates,
    /// The new pair replaces the old one (`NV_UNIQUE_NAME`).
    #[default]
    Name,
    /// The new pair replaces the old one of the same type (`NV_UNIQUE_NAME_TYPE`).
    NameAndType,
}

impl Uniqueness {
    const fn from_flags(flags: u32) -> Self {
        match (flags & 1, flags & 2) {
            (0, 0) => Self::Duplicates,
            (0, _) => Self::NameAndType,
            _ => Self::Name,
        }
    }

    const fn flags(self) -> u32 {
        match self {
            Self::Duplicates => 0,
            Self::Name => 1,
            Self::NameAndType => 2,
        }
    }
}

/// A name with its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NvPair {
    name: NvString,
    value: NvValue,
}

impl NvPair {
    /// The name.
    #[must_use]
    pub const fn name(&self) -> &NvString {
        &self.name
    }

    /// The value.
    #[must_use]
    pub const fn value(&self) -> &NvValue {
        &self.value
    }
}

/// An ordered list of pairs with look-up by name.
///
/// Names hold no NUL and are at most [`MAX_NAME_LEN`] bytes. Two lists are equal when their pairs
/// are, in the same order, and they treat duplicates alike.
#[derive(Clone, Default)]
pub struct NvList {
    uniqueness: Uniqueness,
    /// `None` where a pair was removed; compacted when the gaps outnumber the pairs.
    slots: Vec<Option<NvPair>>,
    len: usize,
    index: NameIndex,
}

impl PartialEq for NvList {
    fn eq(&self, other: &Self) -> bool {
        self.uniqueness == other.uniqueness && self.iter().eq(other.iter())
    }
}

impl Eq for NvList {}

impl std::fmt::Debug for NvList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter().map(|pair| (&pair.name, &pair.value))).finish()
    }
}

impl NvList {
    /// An empty list in which names are unique.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty list.
    #[must_use]
    pub fn with_uniqueness(uniqueness: Uniqueness) -> Self {
        Self { uniqueness, ..Self::default() }
    }

    /// What the list does with a second pair of the same name.
    #[must_use]
    pub const fn uniqueness(&self) -> Uniqueness {
        self.uniqueness
    }

    /// Number of pairs.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no pairs.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pairs in order.
    pub fn iter(&self) -> impl Iterator<Item = &NvPair> {
        self.slots.iter().flatten()
    }

    /// Decodes a packed list; what follows its end mark is ignored, as labels and MOS objects are
    /// padded with zeros.
    ///
    /// # Errors
    /// [`FormatError`] when the bytes are no list, nest deeper than [`MAX_DECODE_DEPTH`], or hold
    /// a type that the format does not know (it could not be skipped).
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        Ok(Self::decode_with_encoding(bytes)?.0)
    }

    /// Like [`NvList::decode`], and says how the list was packed.
    ///
    /// # Errors
    /// As [`NvList::decode`].
    pub fn decode_with_encoding(bytes: &[u8]) -> Result<(Self, Encoding), FormatError> {
        let mut cursor = Cursor { bytes, at: 0 };
        let header = cursor.take(HEADER_SIZE)?;
        let encoding = match header {
            [0, 0, ..] => Encoding::Native(ByteOrder::Big),
            [0, 1, ..] => Encoding::Native(ByteOrder::Little),
            [0, endian, ..] => return Err(FormatError::field(WHAT, "endian", *endian)),
            [1, ..] => Encoding::Xdr,
            [encoding, ..] => return Err(FormatError::field(WHAT, "encoding", *encoding)),
            [] => return Err(cursor.truncated(HEADER_SIZE)),
        };
        let list = match encoding {
            Encoding::Native(order) => native::decode(&mut cursor, order)?,
            Encoding::Xdr => xdr::decode(&mut cursor, 0)?,
        };
        Ok((list, encoding))
    }

    /// The packed bytes, as OpenZFS would pack the same pairs.
    ///
    /// # Errors
    /// [`FormatError::Invalid`] when lists nest deeper than [`MAX_ENCODE_DEPTH`] or a size exceeds
    /// what the format's 31-bit sizes hold.
    pub fn encode(&self, encoding: Encoding) -> Result<Vec<u8>, FormatError> {
        let mut out = Vec::new();
        match encoding {
            Encoding::Native(order) => {
                out.extend([0, u8::from(order == ByteOrder::Little), 0, 0]);
                native::encode(self, order, &mut out)?;
            }
            Encoding::Xdr => {
                out.extend([1, u8::from(ByteOrder::NATIVE == ByteOrder::Little), 0, 0]);
                xdr::encode(self, 0, &mut out)?;
            }
        }
        if out.len() > MAX_SIZE {
            return Err(FormatError::invalid(WHAT, "packed list beyond 2 GiB"));
        }
        Ok(out)
    }

    /// Adds a pair at the end; in a list with unique names it replaces an earlier pair.
    ///
    /// # Errors
    /// [`FormatError::Invalid`] when the name holds a NUL or is too long.
    pub fn insert(
        &mut self,
        name: impl AsRef<[u8]>,
        value: impl Into<NvValue>,
    ) -> Result<(), FormatError> {
        let name = NvString::new(name.as_ref())?;
        if name.len() > MAX_NAME_LEN {
            return Err(FormatError::invalid(WHAT, "name is too long"));
        }
        let value = value.into();
        match self.uniqueness {
            Uniqueness::Duplicates => {}
            Uniqueness::Name => while self.remove(&name).is_some() {},
            Uniqueness::NameAndType => {
                let data_type = value.data_type();
                while self.remove_where(&name, |old| old.data_type() == data_type).is_some() {}
            }
        }
        self.push(NvPair { name, value })
    }

    /// Removes the latest pair of this name.
    pub fn remove(&mut self, name: impl AsRef<[u8]>) -> Option<NvPair> {
        self.remove_where(name.as_ref(), |_| true)
    }

    /// The latest value of this name.
    #[must_use]
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<&NvValue> {
        self.find(name.as_ref(), |_| true).and_then(|slot| self.value_at(slot))
    }

    /// Whether there is a pair of this name; the way flags without a value are asked for.
    #[must_use]
    pub fn contains(&self, name: impl AsRef<[u8]>) -> bool {
        self.get(name).is_some()
    }

    /// Adds a pair at the end whatever pairs there are, the way a decoder does.
    fn push(&mut self, pair: NvPair) -> Result<(), FormatError> {
        if self.slots.len() >= MAX_SIZE {
            return Err(FormatError::invalid(WHAT, "too many pairs"));
        }
        self.index.insert(&pair.name);
        self.slots.push(Some(pair));
        self.len += 1;
        Ok(())
    }

    fn value_at(&self, slot: usize) -> Option<&NvValue> {
        self.slots.get(slot)?.as_ref().map(|pair| &pair.value)
    }

    fn find(&self, name: &[u8], accept: impl Fn(&NvValue) -> bool) -> Option<usize> {
        self.index.candidates(name).find(|slot| {
            let pair = self.slots.get(*slot).and_then(Option::as_ref);
            pair.is_some_and(|pair| *pair.name == *name && accept(&pair.value))
        })
    }

    fn remove_where(&mut self, name: &[u8], accept: impl Fn(&NvValue) -> bool) -> Option<NvPair> {
        let slot = self.find(name, accept)?;
        let pair = self.slots.get_mut(slot)?.take()?;
        self.index.remove(name, slot);
        self.len -= 1;
        if self.slots.len() > 16 && self.len < self.slots.len() / 2 {
            self.slots.retain(Option::is_some);
            self.index = NameIndex::default();
            for pair in self.slots.iter().flatten() {
                self.index.insert(&pair.name);
            }
        }
        Some(pair)
    }

    fn typed<'a, T>(
        &'a self,
        name: &str,
        wanted: DataType,
        get: impl Fn(&'a NvValue) -> Option<T>,
    ) -> Result<Option<T>, FormatError> {
        let same_type = self.find(name.as_bytes(), |value| value.data_type() == wanted);
        if let Some(value) = same_type.and_then(|slot| self.value_at(slot)) {
            return Ok(get(value));
        }
        match self.get(name) {
            None => Ok(None),
            Some(other) => Err(FormatError::WrongType {
                name: name.into(),
                found: other.data_type().name(),
                wanted: wanted.name(),
            }),
        }
    }
}

macro_rules! getters {
    ($($(#[$doc:meta])* $find:ident, $get:ident: $variant:ident => $type:ty, $value:pat => $result:expr;)*) => {
        impl NvList {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// [`FormatError::WrongType`] when the pair has another type.
            pub fn $find(&self, name: &str) -> Result<Option<$type>, FormatError> {
                self.typed(name, DataType::$variant, |value| match value {
                    $value => Some($result),
                    _ => None,
                })
            }

            $(#[$doc])*
            ///
            /// # Errors
            /// [`FormatError::MissingName`] without a pair of this name,
            /// [`FormatError::WrongType`] when it has another type.
            pub fn $get(&self, name: &str) -> Result<$type, FormatError> {
                self.$find(name)?.ok_or_else(|| FormatError::MissingName { name: name.into() })
            }
        )*}
    };
}

getters! {
    /// The unsigned 64-bit number of this name.
    find_u64, u64: UInt64 => u64, NvValue::UInt64(value) => *value;
    /// The signed 64-bit number of this name.
    find_i64, i64: Int64 => i64, NvValue::Int64(value) => *value;
    /// The unsigned 32-bit number of this name.
    find_u32, u32: UInt32 => u32, NvValue::UInt32(value) => *value;
    /// The truth value of this name (not the flag without a value; see [`NvList::contains`]).
    find_bool, bool: BooleanValue => bool, NvValue::BooleanValue(value) => *value;
    /// The string of this name.
    find_string, string: String => &NvString, NvValue::String(value) => value;
    /// The strings of this name.
    find_strings, strings: StringArray => &[NvString], NvValue::StringArray(value) => &**value;
    /// The numbers of this name.
    find_u64s, u64s: UInt64Array => &[u64], NvValue::UInt64Array(value) => &**value;
    /// The bytes of this name.
    find_bytes, bytes: ByteArray => &[u8], NvValue::ByteArray(value) => &**value;
    /// The 8-bit numbers of this name.
    find_u8s, u8s: UInt8Array => &[u8], NvValue::UInt8Array(value) => &**value;
    /// The list of this name.
    find_list, list: List => &NvList, NvValue::List(value) => &**value;
    /// The lists of this name.
    find_lists, lists: ListArray => &[NvList], NvValue::ListArray(value) => &**value;
}

/// Bytes of a packed list with a position in them.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn remaining(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    fn truncated(&self, len: usize) -> FormatError {
        let need = self.at.saturating_add(len);
        FormatError::Truncated { what: WHAT, need, have: self.bytes.len() }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], FormatError> {
        let end = self.at.checked_add(len).ok_or_else(|| self.truncated(len))?;
        let taken = self.bytes.get(self.at..end).ok_or_else(|| self.truncated(len))?;
        self.at = end;
        Ok(taken)
    }

    /// The bytes of `count` elements of `width` bytes.
    fn take_elements(&mut self, count: usize, width: usize) -> Result<&'a [u8], FormatError> {
        let len = count.checked_mul(width).ok_or_else(|| self.truncated(usize::MAX))?;
        self.take(len)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }
}

/// The pair's size in the native format without embedded lists; XDR pairs state it too.
fn native_pair_size(name_len: usize, value: &NvValue) -> usize {
    value_offset(name_len) + value.native_size().next_multiple_of(8)
}

/// Where the value starts in a native pair, given the length of the name without NUL.
const fn value_offset(name_len: usize) -> usize {
    (16 + name_len + 1).next_multiple_of(8)
}

/// A size as the format stores it.
fn size_i32(size: usize) -> Result<u32, FormatError> {
    if size > MAX_SIZE {
        return Err(FormatError::invalid(WHAT, "size beyond 2 GiB"));
    }
    u32::try_from(size).map_err(|_| FormatError::invalid(WHAT, "size beyond 2 GiB"))
}

#[cfg(test)]
mod tests;
