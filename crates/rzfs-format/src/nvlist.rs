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

mod data_type;
mod indented;
mod limits;
mod name_index;
mod native;
mod packed;
mod printed;
mod string;
mod value;
mod xdr;

pub use data_type::DataType;
pub use indented::Indented;
pub use limits::{MAX_DECODE_DEPTH, MAX_ENCODE_DEPTH, MAX_NAME_LEN};
pub use printed::Printed;
pub use string::NvString;
pub use value::{NvList, NvPair, NvValue, Uniqueness};

use crate::{ByteOrder, FormatError};
use limits::{HEADER_SIZE, MAX_SIZE, WHAT};
use packed::Cursor;

/// How a list is packed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Encoding {
    /// Machine format in one of the byte orders: history, cache file, send streams.
    Native(ByteOrder),
    /// XDR, always big-endian inside: labels and objects of the MOS.
    Xdr,
}

impl NvList {
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

#[cfg(test)]
mod tests;
