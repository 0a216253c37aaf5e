//! Space accounting of an OpenZFS pool: range trees, space maps, metaslabs, log space maps.
#![forbid(unsafe_code)]

pub mod range_tree;

pub use range_tree::{RangeError, RangeTree};
