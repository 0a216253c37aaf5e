//! The space of a pool: allocation, limits, sharing and freeing.

pub(crate) mod accounts;
pub(crate) mod allocation;
pub(crate) mod bptree;
pub(crate) mod clone_table;
pub(crate) mod dedup;
pub(crate) mod demand;
pub(crate) mod freer;
pub(crate) mod ledger;
pub(crate) mod limits;
pub(crate) mod sharing;
pub(crate) mod store;
