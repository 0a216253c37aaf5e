//! Datasets: heads open for changes, and their records in the MOS.

pub(crate) mod bookmark_sums;
pub(crate) mod budget;
pub(crate) mod creation;
pub(crate) mod dir;
pub(crate) mod free_lists;
pub(crate) mod generation;
pub(crate) mod head;
pub(crate) mod heads;
pub(crate) mod livelist;
pub(crate) mod policy;
mod progress;
pub(crate) mod settings;
pub(crate) mod values;
