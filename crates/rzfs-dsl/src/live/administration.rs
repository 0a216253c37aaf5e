//! Administrative changes: datasets, their properties, and those of the pool.
//!
//! ```text
//! LivePool::create_dataset, ...   any thread: hands in a task, waits for its txg
//!   task in the first sync pass   check: refuses, nothing has changed
//!                                 change: an error ends the txg, and the pool's writing
//! ```
//! A task sees the state of its txg, earlier tasks included; so its checks still hold when it makes
//! its changes.

mod bookmarks;
mod cloning;
mod counts;
mod creation;
mod destruction;
mod encryption;
mod guid;
mod key_unloading;
mod place;
mod pool_property;
mod promotion;
mod property;
mod property_record;
mod property_rules;
mod pruning;
mod received_properties;
mod receiving;
mod renaming;
mod rollback;
mod scan;
mod snapshots;
mod task;
mod upgrade;

pub use bookmarks::NewBookmark;
pub use cloning::NewClone;
pub use creation::NewDataset;
pub(crate) use destruction::Outcome;
pub use encryption::{KeyChange, NewEncryption, NewRoot, SuiteChoice};
pub(crate) use key_unloading::unload_key;
pub use property::Inherit;
pub(crate) use property::PropertyChange;
pub use property_record::PropertyRecord;
pub use pruning::PruneLimit;
pub(crate) use pruning::prune_dedup;
pub use received_properties::{EarlierValues, ReceivedProperties};
pub(crate) use receiving::{Begun, Destination};
pub use receiving::{Continuation, Interruption, LocalChanges, NewReceive, check_received_name};
pub use snapshots::{Destruction, NewSnapshots};
pub(crate) use task::{TaskContext, TaskEnvironment, TaskError, Tasks};
