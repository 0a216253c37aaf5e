//! Strings of lists.

use super::limits::WHAT;
use crate::FormatError;
use std::borrow::Cow;
use std::fmt;

/// Bytes without NUL; usually text, but paths and attribute names can be anything.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NvString(Box<[u8]>);

impl NvString {
    /// A string of these bytes.
    ///
    /// # Errors
    /// [`FormatError::Invalid`] when there is a NUL among them.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, FormatError> {
        let bytes = bytes.as_ref();
        if bytes.contains(&0) {
            return Err(FormatError::invalid(WHAT, "string with a NUL inside"));
        }
        Ok(Self(bytes.into()))
    }

    /// The bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text; bytes that are no UTF-8 become U+FFFD.
    #[must_use]
    pub fn to_text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

impl std::ops::Deref for NvString {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for NvString {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl PartialEq<str> for NvString {
    fn eq(&self, other: &str) -> bool {
        *self.0 == *other.as_bytes()
    }
}

impl PartialEq<&str> for NvString {
    fn eq(&self, other: &&str) -> bool {
        *self == **other
    }
}

impl TryFrom<&str> for NvString {
    type Error = FormatError;
    fn try_from(text: &str) -> Result<Self, FormatError> {
        Self::new(text)
    }
}

impl fmt::Display for NvString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.to_text())
    }
}

impl fmt::Debug for NvString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_text())
    }
}
