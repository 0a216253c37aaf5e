//! Compression functions as block pointers name them (spec 02, section 5.1).

use crate::FormatError;

/// A compression function by its on-disk number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CompressionFunction {
    /// Property only: take the parent's.
    Inherit,
    /// Property only: the pool's default.
    On,
    /// Stored as it is.
    Off,
    /// lzjb.
    Lzjb,
    /// Policy only: detect zeros, else store as it is.
    Empty,
    /// A zlib stream of this level, 1 to 9.
    Gzip(u8),
    /// Zero-length encoding.
    Zle,
    /// LZ4 with a big-endian length in front.
    Lz4,
    /// Zstandard with a header in front; the level is in the header.
    Zstd,
}

impl CompressionFunction {
    /// The function with this on-disk number.
    pub fn from_number(number: u8) -> Result<Self, FormatError> {
        Ok(match number {
            0 => Self::Inherit,
            1 => Self::On,
            2 => Self::Off,
            3 => Self::Lzjb,
            4 => Self::Empty,
            5..=13 => Self::Gzip(number - 4),
            14 => Self::Zle,
            15 => Self::Lz4,
            16 => Self::Zstd,
            _ => return Err(FormatError::field("block pointer", "compression function", number)),
        })
    }

    /// The on-disk number.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Inherit => 0,
            Self::On => 1,
            Self::Off => 2,
            Self::Lzjb => 3,
            Self::Empty => 4,
            Self::Gzip(level) => 4 + level,
            Self::Zle => 14,
            Self::Lz4 => 15,
            Self::Zstd => 16,
        }
    }

    /// The name as `zdb` prints it for a block pointer.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inherit => "inherit",
            Self::On => "on",
            Self::Off => "uncompressed",
            Self::Lzjb => "lzjb",
            Self::Empty => "empty",
            Self::Gzip(1) => "gzip-1",
            Self::Gzip(2) => "gzip-2",
            Self::Gzip(3) => "gzip-3",
            Self::Gzip(4) => "gzip-4",
            Self::Gzip(5) => "gzip-5",
            Self::Gzip(6) => "gzip-6",
            Self::Gzip(7) => "gzip-7",
            Self::Gzip(8) => "gzip-8",
            Self::Gzip(_) => "gzip-9",
            Self::Zle => "zle",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}
