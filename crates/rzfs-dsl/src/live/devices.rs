//! The devices of a writable pool: writing to them, tracking what they missed, adding more, and
//! heartbeats.

pub(crate) mod current;
pub(crate) mod dirty_time;
pub(crate) mod growth;
pub(crate) mod heartbeat;
pub(crate) mod writer;
