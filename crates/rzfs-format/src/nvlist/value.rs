//! Lists and the values in them, which can be lists again (spec 01, section 2.3).

use super::data_type::DataType;
use super::limits::{MAX_NAME_LEN, MAX_SIZE, WHAT};
use super::name_index::NameIndex;
use super::string::NvString;
use crate::FormatError;
use std::fmt;

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
    pub(super) const fn from_flags(flags: u32) -> Self {
        match (flags & 1, flags & 2) {
            (0, 0) => Self::Duplicates,
            (0, _) => Self::NameAndType,
            _ => Self::Name,
        }
    }

    pub(super) const fn flags(self) -> u32 {
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
    pub(super) name: NvString,
    pub(super) value: NvValue,
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
    pub(super) fn push(&mut self, pair: NvPair) -> Result<(), FormatError> {
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

    pub(super) fn typed<'a, T>(
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
