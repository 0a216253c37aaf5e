//! Pools and datasets: import, configuration, snapshots, properties, encryption keys.
#![forbid(unsafe_code)]

pub mod dataset;
