//! Pools that are open for writing.
//!
//! ```text
//! LivePool ── TxgEngine ── transactions of the files above
//!    │  └──── LiveDataset: object set, policy          (any thread)
//!    │
//! syncing thread ── SyncState: MOS, directories, features, lists of frees
//!                     passes until nothing is dirty, then labels and uberblock
//! ```
//! Everything in the MOS is changed by the syncing thread only. Other threads read the MOS of the
//! last durable uberblock through [`crate::Pool`]'s types, and submit tasks.
//!
//! A pool is made of parts. Each is handed the lower parts it uses, and none is handed the pool:
//!
//! ```text
//! pool                             the face: LivePool
//! opening, creating ─> building    puts the parts together, starts the threads
//! sync                             passes over what is dirty, the commit
//! background, administration       sweeps and trimming; tasks
//! log, devices                     intent logs; vdevs, growth, heartbeats
//! datasets                         heads, directories, lists of their blocks
//! durable, suspension, requests    what is on disk; waiting for devices; what is asked of syncing
//! space                            allocator, accounts, sharing, freeing
//! ```

mod administration;
pub(crate) mod amounts;
mod background;
mod building;
mod change_error;
mod creating;
mod datasets;
mod devices;
mod durable;
mod environment;
pub(crate) mod error;
mod log;
mod not_writable;
mod opening;
mod options;
mod pool;
mod requests;
mod space;
mod suspension;
mod sync;
mod sync_state;
mod view;
mod vital;

pub use crate::mos::history::Event;
pub use crate::mos::resume::ResumePoint;
pub use administration::{
    Continuation, Destruction, EarlierValues, Inherit, Interruption, KeyChange, LocalChanges,
    NewBookmark, NewClone, NewDataset, NewEncryption, NewReceive, NewRoot, NewSnapshots,
    PropertyRecord, PruneLimit, ReceivedProperties, SuiteChoice, check_received_name,
};
pub use background::sweep::{SweepEvent, SweepObserver, SweepOrder};
pub use change_error::{ChangeError, EncryptionProblem, ReceiveProblem};
pub use creating::{CreatePoolError, NewPool, check_root_properties};
pub use datasets::budget::HeadBudget;
pub use datasets::creation::{NameLookup, NewContents};
pub use datasets::generation::Generation;
pub use datasets::head::LiveDataset;
pub use datasets::settings::{DatasetSettings, SettingsObserver};
pub use devices::growth::{AddedVdevs, SectorSizes};
pub use environment::{Environment, SystemEnvironment};
pub use error::{ContentsError, LiveError};
pub use log::claim::DroppedLog;
pub use log::{
    CommitScope, HeadLog, LogOrder, LogRecord, LoggedContents, LoggedPart, LoggedWrite,
    UnreadableWrite, ZilStats,
};
pub use not_writable::NotWritable;
pub use options::{Attendance, LiveOptions};
pub use pool::{LivePool, NotExported, Receiving};
pub use space::demand::{SpaceDemand, SpaceRefusal, SpaceUse};
