//! Types, values and strings of name-value lists (spec 01, section 2.3).

use super::{NvList, WHAT};
use crate::FormatError;
use std::borrow::Cow;
use std::fmt;

macro_rules! data_types {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal;)*) => {
        /// The type of a value by its on-disk number.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum DataType {
            $($(#[$doc])* $variant = $number,)*
        }

        impl DataType {
            /// The type with this number.
            pub(super) fn from_number(number: u32) -> Result<Self, FormatError> {
                Ok(match number {
                    $($number => Self::$variant,)*
                    _ => return Err(FormatError::field(WHAT, "type", number)),
                })
            }

            /// The on-disk number.
            #[must_use]
            pub const fn number(self) -> u8 {
                self as u8
            }

            /// The name, as `zdb` and events print it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

data_types! {
    /// A flag: the pair is there or not.
    Boolean = 1, "boolean";
    /// One byte.
    Byte = 2, "byte";
    /// Signed 16-bit number.
    Int16 = 3, "int16";
    /// Unsigned 16-bit number.
    UInt16 = 4, "uint16";
    /// Signed 32-bit number.
    Int32 = 5, "int32";
    /// Unsigned 32-bit number.
    UInt32 = 6, "uint32";
    /// Signed 64-bit number.
    Int64 = 7, "int64";
    /// Unsigned 64-bit number.
    UInt64 = 8, "uint64";
    /// Bytes without NUL.
    String = 9, "string";
    /// Bytes.
    ByteArray = 10, "byte array";
    /// Signed 16-bit numbers.
    Int16Array = 11, "int16 array";
    /// Unsigned 16-bit numbers.
    UInt16Array = 12, "uint16 array";
    /// Signed 32-bit numbers.
    Int32Array = 13, "int32 array";
    /// Unsigned 32-bit numbers.
    UInt32Array = 14, "uint32 array";
    /// Signed 64-bit numbers.
    Int64Array = 15, "int64 array";
    /// Unsigned 64-bit numbers.
    UInt64Array = 16, "uint64 array";
    /// Strings.
    StringArray = 17, "string array";
    /// Nanoseconds.
    HrTime = 18, "hrtime";
    /// A list.
    List = 19, "nvlist";
    /// Lists.
    ListArray = 20, "nvlist array";
    /// True or false.
    BooleanValue = 21, "boolean value";
    /// Signed 8-bit number.
    Int8 = 22, "int8";
    /// Unsigned 8-bit number.
    UInt8 = 23, "uint8";
    /// True or false, several times.
    BooleanArray = 24, "boolean array";
    /// Signed 8-bit numbers.
    Int8Array = 25, "int8 array";
    /// Unsigned 8-bit numbers.
    UInt8Array = 26, "uint8 array";
    /// A floating-point number; never on disk.
    Double = 27, "double";
}

impl DataType {
    /// Whether a pair of this type must state exactly this many elements.
    pub(super) const fn accepts_count(self, count: u32) -> bool {
        match self {
            Self::Boolean => count == 0,
            Self::ByteArray
            | Self::Int16Array
            | Self::UInt16Array
            | Self::Int32Array
            | Self::UInt32Array
            | Self::Int64Array
            | Self::UInt64Array
            | Self::StringArray
            | Self::ListArray
            | Self::BooleanArray
            | Self::Int8Array
            | Self::UInt8Array => count <= i32::MAX as u32,
            _ => count == 1,
        }
    }

    /// Whether XDR repeats the number of elements before them.
    pub(super) const fn has_xdr_count(self) -> bool {
        matches!(
            self,
            Self::Int16Array
                | Self::UInt16Array
                | Self::Int32Array
                | Self::UInt32Array
                | Self::Int64Array
                | Self::UInt64Array
                | Self::BooleanArray
                | Self::Int8Array
                | Self::UInt8Array
        )
    }
}

/// Bytes without NUL; usually text, but paths and attribute names can be anything.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NvString(Box<[u8]>);

impl NvString {
    /// A string of these bytes.
    ///
    /// # Errors
    /// [`FormatError::Invalid`] when there is a NUL among them.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, FormatError> {
        let bytes = bytes.as_ref();
        if bytes.contains(&0) {
            return Err(FormatError::invalid(WHAT, "string with a NUL inside"));
        }
        Ok(Self(bytes.into()))
    }

    /// The bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text; bytes that are no UTF-8 become U+FFFD.
    #[must_use]
    pub fn to_text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

impl std::ops::Deref for NvString {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for NvString {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl PartialEq<str> for NvString {
    fn eq(&self, other: &str) -> bool {
        *self.0 == *other.as_bytes()
    }
}

impl PartialEq<&str> for NvString {
    fn eq(&self, other: &&str) -> bool {
        *self == **other
    }
}

impl TryFrom<&str> for NvString {
    type Error = FormatError;
    fn try_from(text: &str) -> Result<Self, FormatError> {
        Self::new(text)
    }
}

impl fmt::Display for NvString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.to_text())
    }
}

impl fmt::Debug for NvString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_text())
    }
}

/// The value of a pair.
#[derive(Clone, PartialEq, Eq)]
pub enum NvValue {
    /// A flag: the pair is there.
    Boolean,
    /// One byte.
    Byte(u8),
    /// Signed 16-bit number.
    Int16(i16),
    /// Unsigned 16-bit number.
    UInt16(u16),
    /// Signed 32-bit number.
    Int32(i32),
    /// Unsigned 32-bit number.
    UInt32(u32),
    /// Signed 64-bit number.
    Int64(i64),
    /// Unsigned 64-bit number.
    UInt64(u64),
    /// Bytes without NUL.
    String(NvString),
    /// Bytes.
    ByteArray(Box<[u8]>),
    /// Signed 16-bit numbers.
    Int16Array(Box<[i16]>),
    /// Unsigned 16-bit numbers.
    UInt16Array(Box<[u16]>),
    /// Signed 32-bit numbers.
    Int32Array(Box<[i32]>),
    /// Unsigned 32-bit numbers.
    UInt32Array(Box<[u32]>),
    /// Signed 64-bit numbers.
    Int64Array(Box<[i64]>),
    /// Unsigned 64-bit numbers.
    UInt64Array(Box<[u64]>),
    /// Strings.
    StringArray(Box<[NvString]>),
    /// Nanoseconds.
    HrTime(i64),
    /// A list.
    List(Box<NvList>),
    /// Lists.
    ListArray(Box<[NvList]>),
    /// True or false.
    BooleanValue(bool),
    /// Signed 8-bit number.
    Int8(i8),
    /// Unsigned 8-bit number.
    UInt8(u8),
    /// True or false, several times.
    BooleanArray(Box<[bool]>),
    /// Signed 8-bit numbers.
    Int8Array(Box<[i8]>),
    /// Unsigned 8-bit numbers.
    UInt8Array(Box<[u8]>),
    /// The IEEE bits of a floating-point number.
    Double(u64),
}

impl NvValue {
    /// The type.
    #[must_use]
    pub const fn data_type(&self) -> DataType {
        match self {
            Self::Boolean => DataType::Boolean,
            Self::Byte(_) => DataType::Byte,
            Self::Int16(_) => DataType::Int16,
            Self::UInt16(_) => DataType::UInt16,
            Self::Int32(_) => DataType::Int32,
            Self::UInt32(_) => DataType::UInt32,
            Self::Int64(_) => DataType::Int64,
            Self::UInt64(_) => DataType::UInt64,
            Self::String(_) => DataType::String,
            Self::ByteArray(_) => DataType::ByteArray,
            Self::Int16Array(_) => DataType::Int16Array,
            Self::UInt16Array(_) => DataType::UInt16Array,
            Self::Int32Array(_) => DataType::Int32Array,
            Self::UInt32Array(_) => DataType::UInt32Array,
            Self::Int64Array(_) => DataType::Int64Array,
            Self::UInt64Array(_) => DataType::UInt64Array,
            Self::StringArray(_) => DataType::StringArray,
            Self::HrTime(_) => DataType::HrTime,
            Self::List(_) => DataType::List,
            Self::ListArray(_) => DataType::ListArray,
            Self::BooleanValue(_) => DataType::BooleanValue,
            Self::Int8(_) => DataType::Int8,
            Self::UInt8(_) => DataType::UInt8,
            Self::BooleanArray(_) => DataType::BooleanArray,
            Self::Int8Array(_) => DataType::Int8Array,
            Self::UInt8Array(_) => DataType::UInt8Array,
            Self::Double(_) => DataType::Double,
        }
    }

    /// Number of elements as the format counts them: 0 for a flag, 1 for one value.
    #[must_use]
    pub const fn count(&self) -> usize {
        match self {
            Self::Boolean => 0,
            Self::ByteArray(values) | Self::UInt8Array(values) => values.len(),
            Self::Int16Array(values) => values.len(),
            Self::UInt16Array(values) => values.len(),
            Self::Int32Array(values) => values.len(),
            Self::UInt32Array(values) => values.len(),
            Self::Int64Array(values) => values.len(),
            Self::UInt64Array(values) => values.len(),
            Self::StringArray(values) => values.len(),
            Self::ListArray(values) => values.len(),
            Self::BooleanArray(values) => values.len(),
            Self::Int8Array(values) => values.len(),
            _ => 1,
        }
    }

    /// Bytes of the value in a native pair, embedded lists not included.
    pub(super) fn native_size(&self) -> usize {
        let count = self.count();
        match self {
            Self::Boolean => 0,
            Self::Byte(_) | Self::Int8(_) | Self::UInt8(_) => 1,
            Self::Int16(_) | Self::UInt16(_) => 2,
            Self::Int32(_) | Self::UInt32(_) | Self::BooleanValue(_) => 4,
            Self::Int64(_) | Self::UInt64(_) | Self::HrTime(_) | Self::Double(_) => 8,
            Self::String(text) => text.len() + 1,
            Self::ByteArray(_) | Self::Int8Array(_) | Self::UInt8Array(_) => count,
            Self::Int16Array(_) | Self::UInt16Array(_) => count * 2,
            Self::Int32Array(_) | Self::UInt32Array(_) | Self::BooleanArray(_) => count * 4,
            Self::Int64Array(_) | Self::UInt64Array(_) => count * 8,
            Self::StringArray(texts) => {
                count * 8 + texts.iter().map(|text| text.len() + 1).sum::<usize>()
            }
            Self::List(_) => 24,
            Self::ListArray(_) => count * 32,
        }
    }
}

impl fmt::Debug for NvValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean => f.write_str("boolean"),
            Self::Byte(value) | Self::UInt8(value) => write!(f, "{value}"),
            Self::Int16(value) => write!(f, "{value}"),
            Self::UInt16(value) => write!(f, "{value}"),
            Self::Int32(value) => write!(f, "{value}"),
            Self::UInt32(value) => write!(f, "{value}"),
            Self::Int64(value) | Self::HrTime(value) => write!(f, "{value}"),
            Self::UInt64(value) => write!(f, "{value}"),
            Self::String(value) => write!(f, "{value:?}"),
            Self::ByteArray(values) | Self::UInt8Array(values) => write!(f, "{values:?}"),
            Self::Int16Array(values) => write!(f, "{values:?}"),
            Self::UInt16Array(values) => write!(f, "{values:?}"),
            Self::Int32Array(values) => write!(f, "{values:?}"),
            Self::UInt32Array(values) => write!(f, "{values:?}"),
            Self::Int64Array(values) => write!(f, "{values:?}"),
            Self::UInt64Array(values) => write!(f, "{values:?}"),
            Self::StringArray(values) => f.debug_list().entries(values).finish(),
            Self::List(value) => fmt::Debug::fmt(value, f),
            Self::ListArray(values) => f.debug_list().entries(values).finish(),
            Self::BooleanValue(value) => write!(f, "{value}"),
            Self::Int8(value) => write!(f, "{value}"),
            Self::BooleanArray(values) => write!(f, "{values:?}"),
            Self::Int8Array(values) => write!(f, "{values:?}"),
            Self::Double(bits) => write!(f, "{}", f64::from_bits(*bits)),
        }
    }
}

macro_rules! from {
    ($($type:ty => $variant:ident, $convert:expr;)*) => {$(
        impl From<$type> for NvValue {
            fn from(value: $type) -> Self {
                let convert: fn($type) -> _ = $convert;
                Self::$variant(convert(value))
            }
        }
    )*};
}

from! {
    u32 => UInt32, |value| value;
    i64 => Int64, |value| value;
    u64 => UInt64, |value| value;
    bool => BooleanValue, |value| value;
    NvString => String, |value| value;
    NvList => List, Box::new;
    Vec<u64> => UInt64Array, Vec::into_boxed_slice;
    Vec<NvString> => StringArray, Vec::into_boxed_slice;
    Vec<NvList> => ListArray, Vec::into_boxed_slice;
}
