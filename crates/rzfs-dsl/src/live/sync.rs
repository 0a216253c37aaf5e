//! Syncing transaction groups, and what happens when that fails.

pub(crate) mod commit;
pub(crate) mod failure;
pub(crate) mod group;
pub(crate) mod state;
pub(crate) mod suspension;
