//! The devices of a pool that changes: writing to them, what they have missed, and adding more.

pub(crate) mod all;
pub(crate) mod dirty_time;
pub(crate) mod growth;
pub(crate) mod writer;
