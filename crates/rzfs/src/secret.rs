//! Keys on their way from their source to the pool.

use crate::plain_file::{self, Accepted};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use zeroize::Zeroizing;

/// Longer than any key, in bytes: a passphrase has at most 512.
pub const MAX_SECRET: usize = 4096;

/// A typed key or the contents of a key file. It is wiped on drop and never displayed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes ownership of the bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Reads the whole input if it is no longer than a key may be, otherwise its beginning.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(mut input: impl Read) -> io::Result<Self> {
        // A buffer that is never reallocated: a copy left behind would not be wiped.
        let mut bytes = Zeroizing::new(vec![0; MAX_SECRET]);
        let mut filled = 0;
        while let Some(room) = bytes.get_mut(filled..).filter(|room| !room.is_empty()) {
            match input.read(room) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self::new(bytes.get(..filled).unwrap_or_default().to_vec()))
    }

    /// Reads a key file named by a property, which may be an attacker's. Files without a size, such
    /// as the kernel's in `/proc`, count as empty: reading them may block for ever, or consume
    /// their contents.
    ///
    /// # Errors
    /// It is not a regular file, or cannot be read.
    pub fn read_file(path: &Path) -> io::Result<Self> {
        let file = plain_file::open(path, Accepted::Files)?;
        let size = file.metadata()?.len();
        Self::read(file.take(size))
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
        let mut text = Zeroizing::new(String::with_capacity(self.0.len() * 2));
        for byte in self.0.iter() {
            text.push(digit(byte >> 4));
            text.push(digit(*byte));
        }
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Digits)
    }
}

/// Takes the digits directly from the message: text that needs unescaping or is read in pieces
/// would leave an unwiped copy behind, and is refused.
struct Digits;

impl<'de> de::Visitor<'de> for Digits {
    type Value = Secret;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key in hexadecimal digits")
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Secret, E> {
        // Does not show the input: it may have been a key.
        let invalid = || E::custom("not a key in hexadecimal digits");
        let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return Err(invalid()) };
        if pairs.len() > MAX_SECRET {
            return Err(invalid());
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(pairs.len()));
        for pair in pairs {
            let [high, low] = pair.map(|byte| char::from(byte).to_digit(16));
            let (high, low) = high.zip(low).ok_or_else(invalid)?;
            bytes.push((high << 4 | low) as u8);
        }
        Ok(Secret(bytes))
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<Secret, E> {
        Err(E::custom("not a key in hexadecimal digits, as they are"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_makes_up_is_no_key() {
        let status = Path::new("/proc/self/status");
        assert!(std::fs::read(status).is_ok_and(|text| !text.is_empty()));
        assert_eq!(Secret::read_file(status).unwrap().bytes(), b"");
    }

    #[test]
    fn what_is_too_long_for_a_key_is_cut() {
        assert_eq!(Secret::read(&b"no end"[..]).unwrap().bytes(), b"no end");
        assert_eq!(Secret::read(io::repeat(7).take(9999)).unwrap().bytes(), [7; MAX_SECRET]);
    }

    #[test]
    fn secrets_travel_and_are_not_shown() {
        let secret = Secret::new((0..=255).collect());
        let text = serde_json::to_string(&secret).unwrap();
        assert_eq!(serde_json::from_str::<Secret>(&text).unwrap(), secret);
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        for bad in ["\"0\"", "\"zz\"", "\"+1\"", "\"\\u0030\\u0030\"", "7"] {
            let error = serde_json::from_str::<Secret>(bad).unwrap_err().to_string();
            assert!(!error.contains("zz"), "{error}");
        }
        let long = format!("\"{}\"", "00".repeat(MAX_SECRET + 1));
        assert!(serde_json::from_str::<Secret>(&long).is_err());
    }
}
