//! Block devices with batched, asynchronous I/O.
//!
//! A [`BlockDevice`] takes batches of requests and completes them on a [`CompletionQueue`], in any
//! order, each completion carrying the token of its request. For a plain blocking read there is
//! [`read_exact_at`]; fast code submits many requests and waits once. A single request that is
//! waited for is performed in the calling thread ([`BlockDevice::perform`], [`submit_awaited`]):
//! waking another one and being woken takes longer than many a request.
//!
//! # Devices
//! * [`FileDevice`]: a disk, partition or regular file, through an [`IoEngine`]: one io_uring, or
//!   a small pool of threads where the kernel offers none, for any number of devices.
//! * [`MemoryDevice`]: a piece of memory.
//! * [`SimulatedDevice`]: a device for tests on which anything can go wrong, repeatably.
//!
//! # Ordering and durability
//! Requests of one batch, and of different batches that are in flight together, may run in any
//! order. A write is durable only after a [`IoOperation::Flush`] that was *submitted* after the
//! write had *completed*. Until then a crash may lose it, keep it, or keep any of its sectors.

mod access;
mod buffer;
mod completion;
mod controls;
mod device;
mod engine;
mod error;
mod file;
mod identity;
mod made_file;
mod memory;
mod open_file;
mod pages;
mod pool;
mod project;
mod reply;
pub mod simulated;

pub use access::Access;
pub use buffer::IoBuffer;
pub use completion::{CompletionQueue, IoCompletion};
pub use controls::without_controls;
pub use device::{
    Batch, BlockDevice, DeviceGeometry, IoOperation, IoRequest, read_exact_at, submit_awaited,
};
pub use engine::{BACKEND_VARIABLE, Backend, EngineOptions, IoEngine};
pub use error::{DeviceError, without_number};
pub use file::{CachedReads, FileDevice, OpenOptions};
pub use identity::FileIdentity;
pub use made_file::MadeFile;
pub use memory::MemoryDevice;
pub use open_file::{Caching, Holder, OpenError};
pub use pages::BUFFER_ALIGNMENT;
pub use project::FileProject;
pub use simulated::{SimulatedDevice, Simulation};
