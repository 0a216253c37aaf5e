//! The property `keyformat`.

use rzfs_format::FormatError;

/// How the user gives a key: the property `keyformat`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KeyFormat {
    /// 32 bytes.
    Raw,
    /// 64 hexadecimal digits.
    Hex,
    /// 8 to 512 bytes, from which PBKDF2 derives the key.
    Passphrase,
}

impl KeyFormat {
    /// The format with this number in the key object.
    ///
    /// # Errors
    /// There is no such format.
    pub fn from_number(number: u64) -> Result<Self, FormatError> {
        Ok(match number {
            1 => Self::Raw,
            2 => Self::Hex,
            3 => Self::Passphrase,
            _ => return Err(FormatError::field("crypto key", "keyformat", number)),
        })
    }

    /// The on-disk number.
    #[must_use]
    pub const fn number(self) -> u64 {
        match self {
            Self::Raw => 1,
            Self::Hex => 2,
            Self::Passphrase => 3,
        }
    }

    /// The name as the property spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Hex => "hex",
            Self::Passphrase => "passphrase",
        }
    }

    /// What of a key file's contents, or of what was typed, is the key: of text the first line.
    #[must_use]
    pub fn key_in(self, input: &[u8]) -> &[u8] {
        match self {
            Self::Raw => input,
            Self::Hex | Self::Passphrase => {
                input.split(|byte| *byte == b'\n').next().unwrap_or_default()
            }
        }
    }
}
