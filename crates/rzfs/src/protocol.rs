//! What commands ask a running pool, and what it answers.
//!
//! The same types serve the control socket of a mounted pool, a pool opened in process, and the
//! tests. On the socket a message is one line of JSON: an [`Envelope`] around a [`Request`] goes
//! in, an envelope around an [`Answer`] comes back; a connection carries any number of pairs, in
//! turn. A peer that speaks another [`VERSION`] is told so and sent away.
//!
//! Answers are plain data: numbers in bytes, seconds and counts, names as ZFS gives them. How they
//! are laid out is the business of whoever prints them.

mod change;
mod condition;
mod dataset;
mod history;
mod pool;
mod secret;
mod sweep;
mod wire;

pub use change::{
    AddRequest, Change, EventDetail, EventReport, KeyRequest, NewFileSystem, Pair, PruneLimit,
    Purpose,
};
pub use condition::Condition;
pub use dataset::{
    DatasetFailure, DatasetKind, DatasetListing, DatasetQuery, DatasetReport, MountReport,
    PropertyReport, PropertySource, PropertyValue, Selection,
};
pub use history::{HistoryKind, HistoryReport};
pub use pool::{
    CheckpointReport, DamagedFile, DedupReport, ExpansionReport, LoadReport, PoolReport,
    RemovalReport, ScanFunction, ScanReport, ScanState, VdevReport, VdevRole, VdevStatistics,
};
pub use secret::{MAX_SECRET, Secret};
pub use sweep::{Erasure, SweepKind, SweepOrder, SweepReport, SweepRequest, SweepState};
pub use wire::{Incoming, MAX_ANSWER, MAX_REQUEST, WireError, decode, encode, receive, send};

use serde::{Deserialize, Serialize};

/// Version of requests and answers; it changes whenever an older peer would misunderstand.
pub const VERSION: u32 = 4;

/// A message and the version of the language that it is in.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Envelope<T> {
    /// [`VERSION`] of the sender.
    pub version: u32,
    /// The message.
    pub body: T,
}

impl<T> Envelope<T> {
    /// Wraps a message in this version.
    pub const fn new(body: T) -> Self {
        Self { version: VERSION, body }
    }
}

/// A question to one pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Name and guid of the pool; answered without I/O.
    Identify,
    /// State, vdevs and properties of the pool.
    Pool,
    /// What was done to the pool.
    History,
    /// Properties of datasets.
    Datasets(DatasetQuery),
    /// Where file systems of the pool are mounted.
    Mounts,
    /// What happened to the pool since it was opened, the oldest event first.
    Events,
    /// Forget these events.
    ClearEvents,
    /// Change the pool; the answer comes when the change is on disk.
    Change {
        /// What is to change.
        change: Change,
        /// The line that the pool's history gets, if it is to get one.
        command: Option<String>,
    },
    /// End all mounts and let go of the devices; a pool that is open for writing is exported. The
    /// answer comes when that is done.
    Unmount {
        /// Detach mounts that are in use as well.
        force: bool,
        /// The line that the pool's history gets, if it is to get one.
        command: Option<String>,
    },
    /// As [`Request::Unmount`], but the pool is marked as destroyed.
    Destroy {
        /// Detach mounts that are in use as well.
        force: bool,
        /// The line that the pool's history gets.
        command: String,
    },
}

/// What a pool answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// To [`Request::Identify`].
    Identity(Identity),
    /// To [`Request::Pool`].
    Pool(Box<PoolReport>),
    /// To [`Request::History`], the oldest record first.
    History(Vec<HistoryReport>),
    /// To [`Request::Datasets`].
    Datasets(DatasetListing),
    /// To [`Request::Mounts`], in the order of mounting.
    Mounts(Vec<MountReport>),
    /// To [`Request::Events`], the oldest event first.
    Events(Vec<EventReport>),
    /// To [`Request::ClearEvents`]: how many were forgotten.
    Cleared(u64),
    /// To [`Request::Change`]: it is done. What could not be done besides is told line by line:
    /// mounts that were not made.
    Done {
        /// The complaints.
        complaints: Vec<String>,
    },
    /// To [`Request::Unmount`] and [`Request::Destroy`]: the devices are closed.
    Unmounted,
    /// The request could not be carried out.
    Failed(Refusal),
}

/// Who answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Identity {
    /// Name of the pool.
    pub pool: String,
    /// Guid of the pool.
    pub guid: u64,
    /// Process that has it open.
    pub process: u32,
    /// Whether it is open for writing.
    #[serde(default)]
    pub is_writable: bool,
}

/// Why a request was not carried out, in words for the user.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The object and the reason, as OpenZFS words it: `cannot unmount '/x': pool or dataset is
    /// busy`.
    pub message: String,
}
