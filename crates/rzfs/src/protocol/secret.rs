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
        let digits = self.0.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]);
        let text: Zeroizing<String> = Zeroizing::new(digits.collect());
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Zeroizing::new(String::deserialize(deserializer)?);
        let invalid = || de::Error::custom("not a key in hexadecimal digits");
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
        Ok(Self(bytes))
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
        for bad in ["\"0\"", "\"zz\"", "\"+1\"", "7"] {
            assert!(serde_json::from_str::<Secret>(bad).is_err(), "{bad}");
        }
        let long = format!("\"{}\"", "00".repeat(MAX_SECRET + 1));
        assert!(serde_json::from_str::<Secret>(&long).is_err());
    }
}
