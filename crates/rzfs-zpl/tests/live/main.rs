//! File systems that change: what they are in memory, what is on disk after a sync as the
//! read-only file system sees it, and what OpenZFS made of the same operations.

mod attributes;
mod faults;
mod frees;
mod golden_shapes;
mod limits;
mod model;
mod names;
mod one_reading;
mod operations;
mod oracle;
mod pool;
mod unnamed;
