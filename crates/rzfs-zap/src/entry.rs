//! Entries of a ZAP, and positions among them.

use rzfs_format::zap::HashBits;

/// A key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ZapKey {
    /// A name, without its NUL.
    Name(Vec<u8>),
    /// An array of words.
    Words(Vec<u64>),
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

    /// The words, if the key is an array of them.
    #[must_use]
    pub fn as_words(&self) -> Option<&[u64]> {
        match self {
            Self::Name(_) => None,
            Self::Words(words) => Some(words),
        }
    }
}

/// A value: an array of integers of 1, 2, 4 or 8 bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ZapValue {
    /// One integer of 8 bytes, by far the most common value.
    One(u64),
    /// Any other array.
    Array {
        /// Bytes of an integer.
        size: u8,
        /// The integers, big-endian.
        bytes: Vec<u8>,
    },
}

impl ZapValue {
    /// The value of integers of `size` bytes, big-endian.
    pub(crate) fn new(size: u8, bytes: Vec<u8>) -> Self {
        match (size, <[u8; 8]>::try_from(bytes.as_slice())) {
            (8, Ok(word)) => Self::One(u64::from_be_bytes(word)),
            _ => Self::Array { size, bytes },
        }
    }

    /// Bytes of an integer: 1, 2, 4 or 8.
    #[must_use]
    pub const fn integer_size(&self) -> usize {
        match self {
            Self::One(_) => 8,
            Self::Array { size, .. } => *size as usize,
        }
    }

    /// Number of integers.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Array { size, bytes } => bytes.len() / *size as usize,
        }
    }

    /// Whether there are no integers.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The integers, extended to 64 bits.
    #[must_use]
    pub fn integers(&self) -> Vec<u64> {
        match self {
            Self::One(value) => vec![*value],
            Self::Array { size, bytes } => {
                let widen = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
                bytes.chunks_exact(usize::from(*size)).map(|i| i.iter().fold(0, widen)).collect()
            }
        }
    }

    /// The first integer, if integers have 8 bytes and there is one.
    #[must_use]
    pub fn first_u64(&self) -> Option<u64> {
        match self {
            Self::One(value) => Some(*value),
            Self::Array { size: 8, bytes } => {
                bytes.first_chunk().map(|word| u64::from_be_bytes(*word))
            }
            Self::Array { .. } => None,
        }
    }

    /// The bytes, if integers have one byte: strings and opaque data.
    #[must_use]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Array { size: 1, bytes } => Some(bytes),
            _ => None,
        }
    }
}

/// A position in the order of hashes that can be kept for later, even over restarts and changes
/// of the ZAP (spec 03, section 12.9).
///
/// The number of an entry's cookie is at least 2^28 unless it is the start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Cookie(pub u64);

impl Cookie {
    /// Before the first entry.
    pub const START: Self = Self(0);
    /// Behind the last entry.
    pub const END: Self = Self(u64::MAX);
}

/// A place in the order of entries: by hash, then by collision differentiator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Position {
    pub(crate) hash: u64,
    pub(crate) differentiator: u32,
}

impl Position {
    /// The position of a cookie; `None` is the end.
    pub(crate) fn from_cookie(cookie: Cookie, bits: HashBits) -> Option<Self> {
        if cookie == Cookie::END {
            return None;
        }
        let differentiator = u32::try_from(cookie.0 >> bits.count()).unwrap_or(u32::MAX);
        let in_range = differentiator < bits.differentiator_limit();
        Some(Self {
            hash: cookie.0 << (64 - bits.count()),
            differentiator: if in_range { differentiator } else { 0 },
        })
    }

    /// The cookie of the position right behind this one.
    pub(crate) fn cookie_behind(self, bits: HashBits) -> Cookie {
        let differentiator = u64::from(self.differentiator) + 1;
        Cookie(self.hash >> (64 - bits.count()) | differentiator << bits.count())
    }
}

/// An entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZapEntry {
    /// The key.
    pub key: ZapKey,
    /// The value.
    pub value: ZapValue,
    /// The position right behind it.
    pub next: Cookie,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_those_of_the_spec() {
        let readme = Position { hash: 0x0fa5_1c10_0000_0000, differentiator: 0 };
        let cookie = readme.cookie_behind(HashBits::Bits28);
        assert_eq!(cookie, Cookie(0x10fa_51c1));
        let behind = Position { differentiator: 1, ..readme };
        assert_eq!(Position::from_cookie(cookie, HashBits::Bits28), Some(behind));
        assert_eq!(Position::from_cookie(Cookie::END, HashBits::Bits28), None);
    }

    #[test]
    fn integers_are_widened() {
        let value = ZapValue::new(2, vec![0, 5, 1, 0]);
        assert_eq!((value.len(), value.integers()), (2, vec![5, 256]));
        assert_eq!(value.first_u64(), None);
        assert_eq!(ZapValue::new(8, vec![0, 0, 0, 0, 0, 0, 0, 7]), ZapValue::One(7));
    }
}
