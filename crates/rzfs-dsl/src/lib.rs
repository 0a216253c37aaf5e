//! Pools and datasets: import, configuration, snapshots, properties, encryption keys.
#![forbid(unsafe_code)]

pub mod accounting;
pub mod dataset;
pub mod import;
pub mod live;
mod memory;
mod mos;
pub mod pool;
pub mod walk;

pub use mos::error::MosError;
pub use pool::{Pool, PoolError, ReadOnly};
