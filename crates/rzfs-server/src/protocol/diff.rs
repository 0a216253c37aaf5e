//! Differences between two states of a file system, as `zfs diff` shows them.

use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// A query for a part of the differences.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DiffQuery {
    /// The earlier snapshot.
    pub from: String,
    /// The later one, or the file system.
    pub to: String,
    /// The first object to compare: 0, or the position from the previous part.
    pub first: u64,
}

/// A part of the differences.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DiffPart {
    /// Where the file system is mounted.
    pub mountpoint: Option<String>,
    /// The files.
    pub entries: Vec<DiffEntry>,
    /// The first file that is omitted, as its path is too long.
    pub too_deep: Option<UnnamedFile>,
    /// The start of the next part, if there may be one.
    pub next: Option<u64>,
}

/// A file whose path cannot be shown.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UnnamedFile {
    /// Its number.
    pub object: u64,
    /// The snapshot or file system that it is in.
    pub dataset: String,
}

/// A file that differs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DiffEntry {
    /// The character that `-F` shows.
    pub kind: char,
    /// When it was changed: seconds of the epoch and nanoseconds.
    pub changed: (i64, u32),
    /// The change.
    pub change: DiffChange,
}

/// The change of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiffChange {
    /// It is gone.
    Removed(DiffPath),
    /// It is new.
    Added(DiffPath),
    /// Contents or attributes differ.
    Modified {
        /// Its path.
        path: DiffPath,
        /// The difference in its number of links.
        links: i64,
    },
    /// Its path has changed.
    Renamed {
        /// The one before.
        from: DiffPath,
        /// The one now.
        to: DiffPath,
    },
}

/// A path from the root of the file system, as `zfs diff` shows it: unprintable bytes and `\`
/// become `\` and four octal digits.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DiffPath(String);

impl DiffPath {
    /// The path of these bytes.
    #[must_use]
    pub fn new(path: &[u8]) -> Self {
        let mut text = String::with_capacity(path.len());
        for byte in path {
            match byte {
                b'\\' | 0..=b' ' | 0x7f.. => {
                    let _ = write!(text, "\\{byte:04o}");
                }
                byte => text.push(char::from(*byte)),
            }
        }
        Self(text)
    }

    /// The displayed form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The original bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let (mut bytes, mut rest) = (Vec::with_capacity(self.0.len()), self.0.as_bytes());
        while let Some((first, after)) = rest.split_first() {
            let escaped = after.get(..4).filter(|_| *first == b'\\');
            let code = escaped.and_then(|digits| std::str::from_utf8(digits).ok());
            match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
                Some(byte) => {
                    bytes.push(byte);
                    rest = after.get(4..).unwrap_or_default();
                }
                None => {
                    bytes.push(*first);
                    rest = after;
                }
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_shown_and_understood_again() {
        let path = DiffPath::new(b"/a b\tc\\d\xff~\x7f");
        assert_eq!(path.as_str(), "/a\\0040b\\0011c\\0134d\\0377~\\0177");
        for byte in 0..=255 {
            let bytes = [b'/', byte, b'0', b'0', b'4', b'0'];
            assert_eq!(DiffPath::new(&bytes).to_bytes(), bytes);
        }
    }
}
