//! Keys, values and entries of a ZAP.

use bytes::Bytes;
use rzfs_format::zap::leaf::Integers;
use rzfs_format::zap::{IntegerSize, ZapHash};

use crate::Cookie;

/// A key that is looked up or stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyRef<'a> {
    /// A string of bytes without NUL.
    Name(&'a [u8]),
    /// An array of 64-bit numbers.
    Words(&'a [u64]),
}

impl<'a> From<&'a str> for KeyRef<'a> {
    fn from(name: &'a str) -> Self {
        Self::Name(name.as_bytes())
    }
}

impl<'a> From<&'a String> for KeyRef<'a> {
    fn from(name: &'a String) -> Self {
        Self::Name(name.as_bytes())
    }
}

impl<'a> From<&'a [u8]> for KeyRef<'a> {
    fn from(name: &'a [u8]) -> Self {
        Self::Name(name)
    }
}

impl<'a> From<&'a [u64]> for KeyRef<'a> {
    fn from(words: &'a [u64]) -> Self {
        Self::Words(words)
    }
}

impl<'a> From<&'a ZapKey> for KeyRef<'a> {
    fn from(key: &'a ZapKey) -> Self {
        match key {
            ZapKey::Name(name) => Self::Name(name),
            ZapKey::Words(words) => Self::Words(words),
        }
    }
}

impl KeyRef<'_> {
    /// The size of the integers that it is stored as.
    pub(crate) const fn integer_size(self) -> IntegerSize {
        match self {
            Self::Name(_) => IntegerSize::One,
            Self::Words(_) => IntegerSize::Eight,
        }
    }

    /// The bytes as which a fat ZAP stores it.
    pub(crate) fn stored(self) -> Vec<u8> {
        match self {
            Self::Name(name) => name.iter().copied().chain([0]).collect(),
            Self::Words(words) => words.iter().flat_map(|word| word.to_be_bytes()).collect(),
        }
    }
}

/// The key of an entry.
///
/// The name of a microzap's entry shares the memory of its block: copy it to keep it for long.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ZapKey {
    /// A string of bytes without NUL.
    Name(Bytes),
    /// An array of 64-bit numbers; only fat ZAPs with the flag for it have such keys.
    Words(Box<[u64]>),
}

impl ZapKey {
    /// The name, if the key is one.
    #[must_use]
    pub fn as_name(&self) -> Option<&[u8]> {
        match self {
            Self::Name(name) => Some(name),
            Self::Words(_) => None,
        }
    }

    /// The numbers, if the key is an array of them.
    #[must_use]
    pub fn as_words(&self) -> Option<&[u64]> {
        match self {
            Self::Name(_) => None,
            Self::Words(words) => Some(words),
        }
    }
}

/// The value of an entry: an array of unsigned integers of one size.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ZapValue(Repr);

/// A single 64-bit number is always `One`, bytes are always `Bytes`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Repr {
    One(u64),
    Bytes(Box<[u8]>),
    Many(IntegerSize, Box<[u64]>),
}

impl ZapValue {
    /// A value of integers; each is cut to `size`.
    #[must_use]
    pub fn new(size: IntegerSize, integers: &[u64]) -> Self {
        match (size, integers) {
            (IntegerSize::Eight, [one]) => Self(Repr::One(*one)),
            (IntegerSize::One, _) => Self(Repr::Bytes(integers.iter().map(|&b| b as u8).collect())),
            _ => {
                let mask = u64::MAX >> (64 - 8 * size.bytes());
                Self(Repr::Many(size, integers.iter().map(|integer| integer & mask).collect()))
            }
        }
    }

    /// The value whose integers are stored big-endian in `bytes`.
    pub(crate) fn from_big_endian(size: IntegerSize, bytes: &[u8]) -> Self {
        if size == IntegerSize::One {
            return Self(Repr::Bytes(bytes.into()));
        }
        let integers = bytes.chunks_exact(size.bytes()).map(big_endian);
        match (size, bytes.len()) {
            (IntegerSize::Eight, 8) => Self(Repr::One(big_endian(bytes))),
            _ => Self(Repr::Many(size, integers.collect())),
        }
    }

    /// Hands out the value as it is stored in a fat ZAP.
    pub(crate) fn with_stored<R>(&self, read: impl FnOnce(Integers<'_>) -> R) -> R {
        let size = self.integer_size();
        match &self.0 {
            Repr::One(integer) => read(Integers { size, bytes: &integer.to_be_bytes() }),
            Repr::Bytes(bytes) => read(Integers { size, bytes }),
            Repr::Many(_, integers) => {
                let bytes = integers
                    .iter()
                    .flat_map(|integer| integer.to_be_bytes().into_iter().skip(8 - size.bytes()));
                read(Integers { size, bytes: &bytes.collect::<Vec<_>>() })
            }
        }
    }

    /// Size of each integer.
    #[must_use]
    pub const fn integer_size(&self) -> IntegerSize {
        match &self.0 {
            Repr::One(_) => IntegerSize::Eight,
            Repr::Bytes(_) => IntegerSize::One,
            Repr::Many(size, _) => *size,
        }
    }

    /// Number of integers.
    #[must_use]
    pub const fn len(&self) -> usize {
        match &self.0 {
            Repr::One(_) => 1,
            Repr::Bytes(bytes) => bytes.len(),
            Repr::Many(_, integers) => integers.len(),
        }
    }

    /// Whether there are no integers.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The integer at `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<u64> {
        match &self.0 {
            Repr::One(integer) => (index == 0).then_some(*integer),
            Repr::Bytes(bytes) => bytes.get(index).map(|&byte| byte.into()),
            Repr::Many(_, integers) => integers.get(index).copied(),
        }
    }

    /// The integers.
    pub fn integers(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// The first integer, if integers have 8 bytes and there is one.
    #[must_use]
    pub fn first_u64(&self) -> Option<u64> {
        if self.integer_size() == IntegerSize::Eight { self.get(0) } else { None }
    }

    /// The number, if the value is a single one.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        if self.len() == 1 { self.get(0) } else { None }
    }

    /// The number, if the value is a single 64-bit integer.
    pub(crate) const fn single_u64(&self) -> Option<u64> {
        match self.0 {
            Repr::One(integer) => Some(integer),
            _ => None,
        }
    }

    /// The bytes, if the integers are bytes.
    #[must_use]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match &self.0 {
            Repr::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The text before the closing NUL, if the value is a string in UTF-8.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        let text = self.as_bytes()?.split(|&byte| byte == 0).next()?;
        std::str::from_utf8(text).ok()
    }
}

impl From<u64> for ZapValue {
    fn from(integer: u64) -> Self {
        Self(Repr::One(integer))
    }
}

impl From<&str> for ZapValue {
    /// A string with its closing NUL.
    fn from(text: &str) -> Self {
        Self(Repr::Bytes(text.bytes().chain([0]).collect()))
    }
}

/// A big-endian number of at most 8 bytes.
pub(crate) fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// An entry of a ZAP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZapEntry {
    /// The key, as it was given when the entry was made.
    pub key: ZapKey,
    /// The value.
    pub value: ZapValue,
    /// The position right after it.
    pub next: Cookie,
    /// The hash of the key in its normalised form.
    pub hash: ZapHash,
    /// The collision differentiator, which tells entries with equal hashes apart.
    pub differentiator: u32,
}

impl ZapEntry {
    /// The name; empty when the key is an array of numbers.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.key.as_name().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_their_stored_form() {
        for value in [
            ZapValue::from(7),
            ZapValue::from("text"),
            ZapValue::new(IntegerSize::Two, &[1, 0x1_2345, 3]),
            ZapValue::new(IntegerSize::Eight, &[u64::MAX, 1]),
            ZapValue::new(IntegerSize::Four, &[]),
        ] {
            let stored = value.with_stored(|integers| integers.bytes.to_vec());
            assert_eq!(ZapValue::from_big_endian(value.integer_size(), &stored), value);
        }
        assert_eq!(ZapValue::new(IntegerSize::Two, &[0x1_2345]).as_u64(), Some(0x2345));
        assert_eq!(ZapValue::from("text").as_str(), Some("text"));
        assert_eq!(ZapValue::new(IntegerSize::Eight, &[1, 2]).as_u64(), None);
    }
}
