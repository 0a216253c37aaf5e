//! Flags of streams and of their records (spec 08, sections 2 and 3).

use super::field::{Field, newtypes};
use crate::FormatError;
use crate::endian::{Fields, FieldsMut};

macro_rules! flags {
    ($(
        $(#[$doc:meta])* $name:ident($number:ty) {
            $($(#[$flag_doc:meta])* $flag:ident = $value:literal;)*
        }
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
        pub struct $name(pub $number);

        impl $name {
            $($(#[$flag_doc])* pub const $flag: Self = Self($value);)*

            /// No flag.
            pub const NONE: Self = Self(0);

            /// Whether all flags of `other` are set.
            #[must_use]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// These flags and those of `other`.
            #[must_use]
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// These flags without those of `other`.
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }
        }

        newtypes! { $name($number); }
    )*};
}

flags! {
    /// What a receiver has to understand to receive a stream, as bits of the feature number.
    StreamFeatures(u64) {
        /// Repeated blocks are references: streams of old senders, not receivable.
        DEDUP = 0x1;
        /// The same with properties of blocks.
        DEDUP_PROPERTIES = 0x2;
        /// A file system with system attributes, which can have spill blocks.
        SA_SPILL = 0x4;
        /// Embedded blocks are sent as such.
        EMBED_DATA = 0x1_0000;
        /// Payloads compressed with LZ4.
        LZ4 = 0x2_0000;
        /// Blocks beyond 128 KiB.
        LARGE_BLOCKS = 0x8_0000;
        /// The stream begins in the middle, where an earlier one was interrupted.
        RESUMING = 0x10_0000;
        /// A redacted stream.
        REDACTED = 0x20_0000;
        /// Blocks are sent compressed.
        COMPRESSED = 0x40_0000;
        /// Dnodes of more than one slot.
        LARGE_DNODE = 0x80_0000;
        /// Blocks are sent encrypted.
        RAW = 0x100_0000;
        /// Payloads compressed with zstd.
        ZSTD = 0x200_0000;
        /// The package contains holds of snapshots.
        HOLDS = 0x400_0000;
        /// A sender that goes over to large blocks.
        SWITCH_TO_LARGE_BLOCKS = 0x800_0000;
        /// Names beyond 255 bytes.
        LONGNAME = 0x1000_0000;
        /// Microzaps beyond 128 KiB.
        LARGE_MICROZAP = 0x2000_0000;
        /// All that can be received.
        KNOWN = 0x3ffb_0004;
    }

    /// Flags of BEGIN. Unknown ones are ignored.
    BeginFlags(u32) {
        /// The source of the increment is in another file system: what is received is a clone.
        CLONE = 0x1;
        /// Names do not distinguish case.
        CI_DATA = 0x2;
        /// All that is free is said, so a full stream can be received as a clone.
        FREERECORDS = 0x4;
        /// [`ObjectFlags::SPILL`] and [`SpillFlags::UNMODIFIED`] mean something.
        SPILL_BLOCK = 0x8;
    }

    /// Flags of OBJECT.
    ObjectFlags(u8) {
        /// The raw bonus is in the other byte order than the stream.
        RAW_BYTESWAP = 0x2;
        /// The object has a spill block.
        SPILL = 0x4;
    }

    /// Flags of WRITE and of references to blocks.
    WriteFlags(u8) {
        /// The checksum is strong enough for dedup.
        CHECKSUM_DEDUP = 0x1;
        /// The raw block is in the other byte order than the stream.
        RAW_BYTESWAP = 0x2;
    }

    /// Flags of SPILL.
    SpillFlags(u8) {
        /// The raw block is in the other byte order than the stream.
        RAW_BYTESWAP = 0x2;
        /// The block is older than the source of the increment.
        UNMODIFIED = 0x4;
    }

    /// Flags of OBJECT_RANGE.
    RangeFlags(u8) {
        /// The raw dnodes are in the other byte order than the stream.
        RAW_BYTESWAP = 0x2;
    }
}
