//! The key of an encryption root, and how users supply it (spec 04, sections 19.2 and 19.4).

use rzfs_codec::crypto::{CryptoError, KeyFormat, Pbkdf2, WrappingKey};

/// Minimum number of iterations a user may request (`pbkdf2iters`).
pub const MIN_ITERATIONS: u64 = 100_000;
/// Default number of iterations.
pub const DEFAULT_ITERATIONS: u64 = 350_000;

/// The key of an encryption root, and how the user supplies it. Wiped on drop.
#[derive(Clone, Debug)]
pub struct RootKey {
    pub(crate) wrapping: WrappingKey,
    pub(crate) format: KeyFormat,
    pub(crate) derivation: Pbkdf2,
}

impl RootKey {
    /// Derives the key from typed input or the contents of a key file. `derivation` applies to
    /// passphrases only, where it takes a fraction of a second.
    ///
    /// # Errors
    /// [`CryptoError::KeyInput`].
    pub fn from_input(
        format: KeyFormat,
        input: &[u8],
        derivation: Pbkdf2,
    ) -> Result<Self, CryptoError> {
        let derivation = match format {
            KeyFormat::Passphrase => derivation,
            KeyFormat::Raw | KeyFormat::Hex => Pbkdf2::default(),
        };
        let wrapping = WrappingKey::from_input(format, input, derivation)?;
        Ok(Self { wrapping, format, derivation })
    }
}

/// Whether this is a valid value of the property `keylocation` of an encryption root.
#[must_use]
pub fn is_key_location(value: &str) -> bool {
    let is_file = value.strip_prefix("file://").is_some_and(|path| path.starts_with('/'));
    let is_url = ["https://", "http://"].iter().any(|scheme| value.starts_with(scheme));
    value == "prompt" || is_file || is_url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_somewhere() {
        for place in ["prompt", "file:///etc/key", "https://example.org/key"] {
            assert!(is_key_location(place), "{place}");
        }
        for nowhere in ["none", "", "file://key", "/etc/key", "Prompt"] {
            assert!(!is_key_location(nowhere), "{nowhere}");
        }
    }

    #[test]
    fn only_passphrases_are_derived() {
        let derivation = Pbkdf2 { salt: 7, iterations: 1 };
        let raw = RootKey::from_input(KeyFormat::Raw, &[1; 32], derivation).unwrap();
        assert_eq!(raw.derivation, Pbkdf2::default());
        let typed = RootKey::from_input(KeyFormat::Passphrase, b"long enough", derivation).unwrap();
        assert_eq!(typed.derivation, derivation);
        RootKey::from_input(KeyFormat::Passphrase, b"short", derivation).unwrap_err();
    }
}
