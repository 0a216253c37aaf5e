//! The devices of a pool that changes: writing to them, what they have missed, adding
//! more, and showing on them that the pool is in use.

pub(crate) mod current;
pub(crate) mod dirty_time;
pub(crate) mod growth;
pub(crate) mod heartbeat;
pub(crate) mod writer;
