//! Writing blocks.
//!
//! ```text
//! contents ─> encode ─> space ─────> pointer
//!             │         │            │
//!             │ zeros?  │ rewrite?   └─> devices (through a WriteStream, not waited for)
//!             │ embed?  │ same block?
//!             │ compress└ gang if there is no piece of that size
//!             │ encrypt
//!             └ checksum
//! ```
//! [`BlockWriter`] is the only place that creates block pointers. A batch is encoded on all cores;
//! its pointers are final when [`BlockWriter::write`] returns, while the devices are still writing.
//! [`WriteStream::finish`] waits for them, before the flush that precedes the uberblock.

mod dedup;
mod deduplicating;
mod encode;
mod error;
mod gang;
mod policy;
mod sealing;
mod stream;
mod writer;

pub use dedup::{DedupCandidate, DedupIndex, DedupPlace, DedupWriter};
pub use encode::EncodeOptions;
pub(crate) use encode::is_zeros;
pub use error::{NoSpace, WriteError};
pub use policy::{BlockPolicy, DedupPolicy, DuplicateTest, ObjsetPolicy, Part, RedundantMetadata};
pub use sealing::Sealing;
pub(crate) use writer::HoleRequest;

pub use stream::{DeviceWrite, DeviceWriter, FailedWrite, WriteStream, write_again};
pub use writer::{
    BlockSpace, BlockWriter, Change, HoleBirth, SpacePart, SpaceRequest, SyncPasses, WriteContext,
    WriteInjector, WriteRequest,
};
