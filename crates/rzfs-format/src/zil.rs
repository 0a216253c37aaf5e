//! The intent log (spec 05, section 10).
//!
//! ```text
//! objset block: ZilHeader --zh_log--> log block --next--> log block --next--> (not written)
//! log block, ZILOG2:  | chain (184)              | record | record | ... zeros |
//! log block, ZILOG:   | record | record | ...                    | chain (184) |
//! ```
//!
//! The log ends where a block's checksum does not verify: the next block is allocated before the
//! one that points to it is written. Whoever reads a chain must bound it and must visit no place
//! twice.

mod attributes;
mod block;
mod body;
mod encode;
mod header;
mod kind;
mod record;

pub use attributes::{ExtendedAttributes, XattrBits};
pub use block::{BlockForm, CHAIN_MAGIC, CHAIN_SIZE, Chain, Verifier};
pub use body::{
    AclRecord, Body, CloneRange, Create, CreateAcl, LogAce, NewObject, Rename, SetAttr, SetXattr,
    Whiteout, Write,
};
pub use encode::{WRITE_HEADER_SIZE, WriteHeader, stamp};
pub use header::{ZilFlags, ZilHeader};
pub use kind::RecordKind;
pub use record::{Record, Records};
