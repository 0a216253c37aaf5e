//! OpenZFS's on-disk structures as typed values: decode and encode, both byte orders.
//!
//! Every module is one structure of the format, with its layout as a table in the documentation,
//! and no I/O. Structures are decoded from hostile bytes: a decoder checks every length and range
//! that it uses and answers with a [`FormatError`]; it never panics and never allocates more than
//! the input's own size suggests.
//!
//! Blocks are not byte-swapped when they are read. A block travels with its [`ByteOrder`], and the
//! decoder of a structure takes that order (spec 02, section 2.11).
#![forbid(unsafe_code)]

pub mod acl;
pub mod block_pointer;
pub mod bookmark;
pub mod bpobj;
pub mod brt;
pub mod cache_device;
pub mod checksum;
pub mod compression;
pub mod config;
pub mod ddt;
pub mod deadlist;
pub mod dirent;
pub mod dnode;
pub mod dsl;
pub mod encryption;
pub mod endian;
mod error;
pub mod features;
pub mod fuid;
pub mod gang;
pub mod indirect;
pub mod label;
pub mod nvlist;
pub mod object_type;
pub mod objset;
pub mod pool_state;
pub mod property;
pub mod sa;
pub mod space_map;
pub mod stream;
pub mod uberblock;
pub mod units;
pub mod xattr;
pub mod zap;
pub mod zil;
pub mod znode;

pub use block_pointer::{BlockPointer, Dva};
pub use endian::ByteOrder;
pub use error::FormatError;
pub use units::{BlockId, Guid, Level, ObjectId, ObjsetId, Txg, VdevId};
