//! Keys on their way from whoever types them to the pool.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
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
