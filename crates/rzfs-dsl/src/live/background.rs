//! What goes on beside transactions and txgs: heartbeats, trimming, and sweeps of free space.

pub(crate) mod heartbeat;
pub(crate) mod sweep;
pub(crate) mod trim;
