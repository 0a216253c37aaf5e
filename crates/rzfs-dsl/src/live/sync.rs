//! Syncing transaction groups, what is durable then, and what happens when syncing fails.

pub(crate) mod commit;
pub(crate) mod durable;
pub(crate) mod failure;
pub(crate) mod group;
mod mos_space;
pub(crate) mod requests;
pub(crate) mod state;
pub(crate) mod suspension;
pub(crate) mod thread;
pub(crate) mod view;
