//! Keys on their way from whoever has them to the pool.

use crate::plain_file::{self, Accepted};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use zeroize::Zeroizing;

/// More than any key has, in bytes: a passphrase has at most 512.
pub const MAX_SECRET: usize = 4096;

/// What the user typed or what a key file holds. It is wiped when it is dropped and never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes the bytes over.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Reads to the end of what is shorter than a key may be; of what is longer, the beginning.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(mut input: impl Read) -> io::Result<Self> {
        // A place that never has to move: a copy left behind would not be wiped.
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

    /// What a key file holds that a property names: its word is nobody's but an attacker's. Files
    /// that say nothing of their size, as those of the kernel in `/proc`, count as empty: reading
    /// them may wait for ever, or take what is in them from others.
    ///
    /// # Errors
    /// It is no regular file, or cannot be read.
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

/// Takes the digits from where the message is: what has to be unescaped or read piece by piece
/// would leave a copy behind that nobody wipes, and is refused.
struct Digits;

impl<'de> de::Visitor<'de> for Digits {
    type Value = Secret;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key in hexadecimal digits")
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Secret, E> {
        // Not what was typed instead of a key: it may have been one.
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
