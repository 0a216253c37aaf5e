//! Checksum functions and values as block pointers name them (spec 02, section 4.1).

use crate::FormatError;
use std::fmt;

/// A checksum function by its on-disk number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ChecksumFunction {
    /// Property only: take the parent's.
    Inherit = 0,
    /// Property only: fletcher4.
    On = 1,
    /// No checksum; always verifies.
    Off = 2,
    /// SHA-256 embedded in a label, its verifier the offset on the leaf.
    Label = 3,
    /// SHA-256 embedded in a gang header.
    GangHeader = 4,
    /// fletcher2 embedded in an intent-log block.
    Zilog = 5,
    /// fletcher2.
    Fletcher2 = 6,
    /// fletcher4.
    Fletcher4 = 7,
    /// SHA-256.
    Sha256 = 8,
    /// fletcher4 embedded in an intent-log block.
    Zilog2 = 9,
    /// Like off.
    NoParity = 10,
    /// SHA-512/256.
    Sha512 = 11,
    /// Skein-512-256 with the pool's salt as key.
    Skein = 12,
    /// Edon-R 512 with the pool's salt as prefix, truncated.
    EdonR = 13,
    /// BLAKE3 keyed with the pool's salt.
    Blake3 = 14,
}

impl ChecksumFunction {
    /// All functions by number.
    pub const ALL: [Self; 15] = [
        Self::Inherit,
        Self::On,
        Self::Off,
        Self::Label,
        Self::GangHeader,
        Self::Zilog,
        Self::Fletcher2,
        Self::Fletcher4,
        Self::Sha256,
        Self::Zilog2,
        Self::NoParity,
        Self::Sha512,
        Self::Skein,
        Self::EdonR,
        Self::Blake3,
    ];

    /// The function with this on-disk number.
    pub fn from_number(number: u8) -> Result<Self, FormatError> {
        Self::ALL.get(usize::from(number)).copied().ok_or(FormatError::field(
            "block pointer",
            "checksum function",
            number,
        ))
    }

    /// The on-disk number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The name as properties, `zdb` and dedup-table objects spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inherit => "inherit",
            Self::On => "on",
            Self::Off => "off",
            Self::Label => "label",
            Self::GangHeader => "gang_header",
            Self::Zilog => "zilog",
            Self::Fletcher2 => "fletcher2",
            Self::Fletcher4 => "fletcher4",
            Self::Sha256 => "sha256",
            Self::Zilog2 => "zilog2",
            Self::NoParity => "noparity",
            Self::Sha512 => "sha512",
            Self::Skein => "skein",
            Self::EdonR => "edonr",
            Self::Blake3 => "blake3",
        }
    }

    /// Whether the value lives in a trailer of the block itself instead of the block pointer.
    #[must_use]
    pub const fn is_embedded(self) -> bool {
        matches!(self, Self::Label | Self::GangHeader | Self::Zilog | Self::Zilog2)
    }

    /// Whether the function is strong enough to identify a block by its checksum.
    ///
    /// A MAC in the checksum words replaces words 2 and 3 of such a function; those of the others
    /// are folded (spec 02, section 4.12).
    #[must_use]
    pub const fn is_dedup_safe(self) -> bool {
        matches!(self, Self::Sha256 | Self::Sha512 | Self::Skein | Self::Blake3)
    }

    /// Whether the function is keyed with the pool's salt.
    #[must_use]
    pub const fn is_salted(self) -> bool {
        matches!(self, Self::Skein | Self::EdonR | Self::Blake3)
    }
}

/// A 256-bit checksum: four 64-bit words as the block pointer holds them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ChecksumValue(pub [u64; 4]);

impl fmt::Display for ChecksumValue {
    /// zdb's notation: four words in hex, joined by colons.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.0;
        write!(f, "{a:016x}:{b:016x}:{c:016x}:{d:016x}")
    }
}

impl fmt::Debug for ChecksumValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChecksumValue({self})")
    }
}
