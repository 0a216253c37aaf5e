//! What commands ask a running pool, and what it answers.
//!
//! The same types serve the control socket of a mounted pool, a pool opened in process, and the
//! tests. On the socket a message is one line of JSON: an [`Envelope`] around a [`Request`] goes
//! in, an envelope around an [`Answer`] comes back; a connection carries any number of pairs, in
//! turn. A peer that speaks another [`VERSION`] is told so and sent away.
//!
//! Answers are plain data: numbers in bytes, seconds and counts, names as ZFS gives them. How they
//! are laid out is the business of whoever prints them.

mod accounts;
mod change;
mod dataset;
mod diff;
mod history;
mod layout;
mod parts;
mod pool;
mod receiving;
mod sending;
mod stats;
mod sweep;
mod temporary;
mod wire;

pub use accounts::{AccountOwner, AccountQuery, AccountReport, ShareReport};
pub use change::{
    AddRequest, Change, EventDetail, EventReport, KeyRequest, MountManner, NewClone, NewFileSystem,
    Newcomers, Pair, PruneLimit, Purpose,
};
pub use dataset::{
    DatasetFailure, DatasetKind, DatasetListing, DatasetQuery, DatasetReport, HoldReport,
    MountReport, PropertyReport, PropertySource, PropertyValue, Selection,
};
pub use diff::{DiffChange, DiffEntry, DiffPart, DiffPath, DiffQuery, UnnamedFile};
pub use history::{HistoryKind, HistoryReport};
pub use layout::{Layout, LayoutLine};
pub use parts::{PART, PartReader, PartWriter};
pub use pool::{
    CheckpointReport, DamagedFile, DedupReport, ExpansionReport, LoadReport, PoolReport,
    RemovalReport, ScanReport, ScanState, VdevReport, VdevRole, VdevStatistics,
};
pub use receiving::{
    ReceiveReport, ReceiveRequest, ReceiveTarget, Remains, StreamExtent, TreeChange, TreeReport,
};
pub use sending::{
    MissingSnapshots, Portion, SendRequest, SentProperties, SentTree, Steps, StreamSize,
    StreamSizes,
};
pub use stats::{KstatKind, KstatReport, ObjsetName, StatsReport, TxgReport};
pub use sweep::{Erasure, SweepReport, SweepRequest};
pub use temporary::Temporary;
pub use wire::{Incoming, MAX_ANSWER, MAX_REQUEST, WireError, decode, encode, receive, send};

// What messages say in the engine's own words.
pub use rzfs_dsl::live::SweepOrder;
pub use rzfs_dsl::pool::{Erratum, PoolStatus, ScanFunction, SweepKind, SweepState};
pub use rzfs_vdev::Health;

use serde::{Deserialize, Serialize};

/// Version of requests and answers; it changes whenever an older peer would misunderstand.
pub const VERSION: u32 = 14;

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
    /// Who keeps these snapshots from being destroyed.
    Holds {
        /// Their names.
        names: Vec<String>,
    },
    /// What users, groups or projects use of a file system.
    Accounts(AccountQuery),
    /// How many files of a file system have been removed and have their space still.
    UnfreedFiles {
        /// Its name.
        file_system: String,
    },
    /// How much comes back when runs of snapshots are destroyed.
    Reclaimed {
        /// The first and the last one of each, of one head.
        runs: Vec<(String, String)>,
    },
    /// Which files are not what they were.
    Differences(DiffQuery),
    /// Send a snapshot: the stream comes in parts, and what is said of it last.
    Send(SendRequest),
    /// How long that stream is, or each of its streams.
    StreamSizes(SendRequest),
    /// Receive a snapshot, or several: the stream follows in parts. The answers are, for each,
    /// [`Answer::Receiving`] as soon as its beginning is read and [`Answer::Received`]; before and after
    /// all of them [`Answer::Adjusted`] for each change of a tree; and at last [`Answer::Done`].
    Receive(ReceiveRequest),
    /// Where file systems of the pool are mounted.
    Mounts,
    /// What happened to the pool since it was opened, the oldest event first.
    Events,
    /// Forget these events.
    ClearEvents,
    /// What was counted since the pool was opened; answered without I/O.
    Stats,
    /// Change the pool; the answer comes when the change is on disk.
    Change {
        /// What is to change.
        change: Change,
        /// The line that the pool's history gets, if it is to get one.
        command: Option<String>,
    },
    /// How the vdevs would be if some were added; nothing is changed.
    PlanAdd(AddRequest),
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
    /// To [`Request::Holds`], in the order of the names.
    Holds(Vec<HoldReport>),
    /// To [`Request::Accounts`], by owner and number.
    Accounts(Vec<AccountReport>),
    /// To [`Request::UnfreedFiles`]: none of a file system that is not in use, or only read.
    UnfreedFiles(u64),
    /// To [`Request::Reclaimed`]: bytes.
    Reclaimed(u64),
    /// To [`Request::Differences`].
    Differences(DiffPart),
    /// To [`Request::StreamSizes`].
    StreamSizes(StreamSizes),
    /// To [`Request::Receive`]: what the stream is.
    Receiving(ReceiveReport),
    /// To [`Request::Receive`]: it is there.
    Received {
        /// Bytes of the stream behind its first record.
        bytes: u64,
        /// What could not be done besides: mounts that were not made.
        complaints: Vec<String>,
        /// What of the stream is not had here, and is no failure: properties that the target cannot
        /// have.
        warnings: Vec<String>,
    },
    /// To [`Request::Receive`]: what is here was to be brought into line with what was sent.
    Adjusted(TreeReport),
    /// To [`Request::Mounts`], in the order of mounting.
    Mounts(Vec<MountReport>),
    /// To [`Request::Events`], the oldest event first.
    Events(Vec<EventReport>),
    /// To [`Request::ClearEvents`]: how many were forgotten.
    Cleared(u64),
    /// To [`Request::Stats`].
    Stats(Box<StatsReport>),
    /// To [`Request::Change`]: it is done. What could not be done besides is told line by line:
    /// mounts that were not made.
    Done {
        /// The complaints.
        complaints: Vec<String>,
    },
    /// To [`Request::PlanAdd`].
    Layout(Layout),
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
    /// What commands go by.
    pub kind: RefusalKind,
    /// The object and the reason, as OpenZFS words it: `cannot unmount '/x': pool or dataset is
    /// busy`.
    pub message: String,
}

/// What commands go by when a request was not carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalKind {
    /// The dataset that was named cannot be opened; there may be none.
    Unopened,
    /// A mount cannot be ended.
    StillMounted,
    /// Anything else.
    #[default]
    Other,
}

impl Refusal {
    /// One for a reason of which commands make nothing.
    pub fn new(message: impl Into<String>) -> Self {
        Self::of_kind(RefusalKind::Other, message)
    }

    /// One for a reason of this kind.
    pub fn of_kind(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}
