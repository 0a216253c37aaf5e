//! Damage left by old software.

use serde::{Deserialize, Serialize};

/// An on-disk incompatibility caused by old software.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Erratum {
    /// 1: a scrub by old software left a larger state behind.
    Scrub,
    /// 2: a background destroy by old software left a flag behind.
    AsyncDestroy,
    /// 3: encrypted datasets written by development versions.
    EncryptionFormat,
    /// 4: encrypted snapshots without IV set guids, which raw receives need for verification.
    EncryptionIvSets,
}

impl Erratum {
    /// All of them by number.
    pub const ALL: [Self; 4] =
        [Self::Scrub, Self::AsyncDestroy, Self::EncryptionFormat, Self::EncryptionIvSets];

    /// The number shown by tools.
    #[must_use]
    pub const fn number(self) -> u64 {
        match self {
            Self::Scrub => 1,
            Self::AsyncDestroy => 2,
            Self::EncryptionFormat => 3,
            Self::EncryptionIvSets => 4,
        }
    }

    pub(super) const fn from_number(number: u64) -> Option<Self> {
        match number {
            1 => Some(Self::Scrub),
            2 => Some(Self::AsyncDestroy),
            3 => Some(Self::EncryptionFormat),
            4 => Some(Self::EncryptionIvSets),
            _ => None,
        }
    }
}
