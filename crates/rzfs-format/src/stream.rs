//! Send streams: what `zfs send` writes and `zfs receive` reads (spec 08, sections 1 to 3).
//!
//! ```text
//! record   0 type  4 payload length, BEGIN only  8 fields of the type .. 280 checksum (32)  = 312
//! payload  as long as the record says, no padding; then the next record
//!
//! plain    BEGIN [nvlist] record .. END
//! package  BEGIN [nvlist] END   plain plain ..   END
//! ```
//!
//! All numbers are in the sender's byte order, which the magic number of the first BEGIN tells
//! ([`byte_order`]). A record is decoded as it is: numbers that the format does not allow stay what
//! they are, so that a debugger can show them, and whoever applies a record checks it first
//! (spec 08, section 11).

mod field;
mod flags;
mod layout;
mod record;
mod version;

pub use flags::{BeginFlags, ObjectFlags, RangeFlags, SpillFlags, StreamFeatures, WriteFlags};
pub use layout::{
    Begin, End, FreeObjects, FreeRange, Object, ObjectRange, Spill, StreamName, Write, WriteByRef,
    WriteEmbedded,
};
pub use record::{Record, RecordKind, byte_order, stamp, stored_checksum};
pub use version::{StreamKind, VersionInfo};

/// Bytes of a record without its payload.
pub const RECORD_SIZE: usize = 312;

/// Where the running checksum lies in every record but BEGIN.
pub const CHECKSUM_OFFSET: usize = 280;

/// What BEGIN has to prove that it is one, and in which byte order.
pub const MAGIC: u64 = 0x2_f5ba_cbac;

/// The longest payload of an embedded block, in bytes.
pub const MAX_EMBEDDED: u32 = 112;

#[cfg(test)]
mod tests;
