//! Syncing transaction groups.

pub(crate) mod commit;
pub(crate) mod group;
mod mos_space;
pub(crate) mod thread;
