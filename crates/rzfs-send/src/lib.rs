//! Sending snapshots: full and incremental streams (spec 08, section 7).
//!
//! ```text
//! Traversal ──> Records ══batches══> reader ══batches══> StreamWriter ──> sink
//!  pointers,     records,            blocks, past         checksums
//!  dnodes        blocks to read      the cache
//! ```
//! The three run concurrently, each a few batches ahead of the next, which keeps the devices busy
//! while the sink is slow or the walk reads indirect blocks.
#![forbid(unsafe_code)]

mod batch;
mod error;
mod flow;
mod form;
mod raw;
mod records;
mod send;
mod source;

pub use error::SendError;
pub use form::Form;
pub use send::{Send, Sent};
pub use source::Source;
