//! The data management unit, for reading: the block pipeline, object sets and objects.
//!
//! ```text
//! Object::read_at ──> indirect tree ──> BlockPipeline::read_many ──> cache ──> vdevs
//!                     (pointers)        (copies, gang, embedded,
//!                                        checksum, decrypt, decompress)
//! ```
//!
//! [`BlockPipeline`] is the only place that follows block pointers: all readers (objects, zdb,
//! scans) pass pointers to it and get [`Block`]s, decrypted and decompressed.
//! [`Objset`] and [`Object`] are cheap handles that can be cloned and shared between threads.
#![forbid(unsafe_code)]

mod block;
mod contents;
mod damage;
mod error;
mod existence;
mod gang;
mod in_flight;
mod in_force;
mod injector;
pub mod intent_log;
pub mod live;
mod object;
mod objset;
mod patience;
mod pipeline;
mod source;
mod stored;
pub mod sync;
pub mod threads;
mod traverse;
mod tree;
pub mod txg;
pub mod write;

pub use block::Block;
pub use damage::{Damage, DamagedBlock};
pub use error::{BlockError, DmuError};
pub use existence::Existence;
pub use gang::MAX_GANG_DEPTH;
pub use injector::BlockInjector;
pub use object::{Object, ObjectRead};
pub use objset::{DnodeEntry, Objset, ObjsetChanges};
pub use patience::{DeviceWaiter, Patience, PatienceGuard};
pub use pipeline::{Batch, BlockPipeline, BlockRequest, PipelineOptions};
pub use source::{ObjectSource, SourceObject};
pub use traverse::{DnodeSlot, Traversal, Visit, Visitor};
