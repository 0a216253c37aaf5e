//! Pools that are open for writing.
//!
//! ```text
//! LivePool ── TxgEngine ── transactions of the files above
//!    │  └──── LiveDataset: object set, policy          (any thread)
//!    │
//! syncing thread ── SyncState: MOS, directories, features, lists of frees
//!                     passes until nothing is dirty, then labels and uberblock
//! ```
//! Everything in the MOS is changed by the one thread that syncs. Others read the MOS of the last
//! durable uberblock through [`crate::Pool`]'s types, and hand in tasks.

mod administration;
mod allocation;
mod bookmark_sums;
mod bpobj;
mod bptree;
mod budget;
mod clone_table;
mod commit;
mod config;
mod create;
mod deadlist;
mod dedup;
mod devices;
mod dir;
mod dirty_time;
mod environment;
mod error;
mod error_log;
mod export;
mod extensible;
mod failure;
mod features;
mod found;
mod frees;
mod growth;
mod head;
mod heads;
mod heartbeat;
mod history;
mod intent_log;
mod key_object;
mod keys;
mod ledger;
mod livelist;
mod log_claim;
mod log_space;
mod mos;
mod not_writable;
mod open;
mod options;
mod policy;
mod pool;
mod settings;
mod sharing;
mod space;
mod space_store;
mod suspension;
mod sweep;
mod sync;
mod trim;
mod values;
mod view;
mod vital;

pub use administration::{
    ChangeError, EncryptionProblem, Inherit, KeyChange, NewDataset, NewEncryption, NewRoot,
    PruneLimit, SuiteChoice,
};
pub use budget::HeadBudget;
pub use create::{NameLookup, NewContents};
pub use environment::{Environment, SystemEnvironment};
pub use error::{ContentsError, LiveError};
pub use export::NotExported;
pub use found::{NewPool, NotCreated, check_root_properties};
pub use growth::{AddedVdevs, SectorSizes};
pub use head::LiveDataset;
pub use heartbeat::HeartbeatOptions;
pub use history::Event;
pub use intent_log::{
    CommitScope, HeadLog, LogOrder, LogRecord, LoggedContents, LoggedPart, LoggedWrite,
    UnreadableWrite,
};
pub use ledger::{HeadSpace, SpaceClaim, SpaceShortage};
pub use log_claim::GivenUpLog;
pub use not_writable::NotWritable;
pub use options::LiveOptions;
pub use pool::LivePool;
pub use settings::{DatasetSettings, SettingsObserver};
pub(crate) use space::Deflation;
pub use sweep::{SweepNews, SweepObserver, SweepOrder};
