//! Access control lists (spec 05, sections 4.2 and 7).
//!
//! Every file has an NFSv4 list: of a version 0 or 1 in legacy znodes ([`ZnodeAcl`]), of version 1
//! as system attributes. POSIX lists are extended attributes ([`PosixAcl`]).

mod entry;
mod legacy;
mod mode;
mod posix;
mod trivial;

pub use entry::{AccessMask, Ace, AceFlags, AceKind, MAX_ENTRIES, ObjectTypes, Who};
pub use legacy::{AclStore, ZnodeAcl};
pub use mode::mode_of;
pub use posix::{PosixAcl, PosixEntry, PosixTag};
pub use trivial::trivial;
