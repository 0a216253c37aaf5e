//! Live file systems: their state in memory, on disk after a sync as seen by the read-only file
//! system, and compared with OpenZFS's result of the same operations.

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
