//! Pools and datasets: import, configuration, snapshots, properties, encryption keys.
#![forbid(unsafe_code)]

pub mod accounting;
pub mod dataset;
pub mod import;
pub mod live;
pub mod pool;

pub use pool::{Pool, PoolError, ReadOnly};
