//! Types of values (spec 01, section 2.3).

use super::limits::WHAT;
use crate::FormatError;

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
