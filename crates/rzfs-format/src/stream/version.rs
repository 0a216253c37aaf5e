//! The word of BEGIN that says what kind of stream follows, and what it takes to receive it
//! (spec 08, section 3.1).
//!
//! ```text
//! bits 0-1 kind   2-57 features   58-63 reserved
//! ```

use super::field::{Field, newtypes};
use super::flags::StreamFeatures;
use crate::FormatError;
use crate::endian::{Fields, FieldsMut};

const KIND_BITS: u32 = 2;
const KIND_MASK: u64 = (1 << KIND_BITS) - 1;
const FEATURES_MASK: u64 = (1 << 56) - 1;

/// What follows a BEGIN.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StreamKind {
    /// The records of one snapshot.
    Substream,
    /// A package: streams of snapshots, one after the other.
    Package,
}

/// Kind and features of a stream, in one word.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct VersionInfo(pub u64);

newtypes! { VersionInfo(u64); }

impl VersionInfo {
    /// The word of a stream of this kind.
    #[must_use]
    pub const fn new(kind: StreamKind, features: StreamFeatures) -> Self {
        let kind = match kind {
            StreamKind::Substream => 1,
            StreamKind::Package => 2,
        };
        Self(kind | (features.0 & FEATURES_MASK) << KIND_BITS)
    }

    /// The number of the kind, 0 to 3.
    #[must_use]
    pub const fn kind_number(self) -> u64 {
        self.0 & KIND_MASK
    }

    /// The kind; `None` for numbers that have no meaning.
    #[must_use]
    pub const fn kind(self) -> Option<StreamKind> {
        match self.kind_number() {
            1 => Some(StreamKind::Substream),
            2 => Some(StreamKind::Package),
            _ => None,
        }
    }

    /// The features.
    #[must_use]
    pub const fn features(self) -> StreamFeatures {
        StreamFeatures(self.0 >> KIND_BITS & FEATURES_MASK)
    }
}
