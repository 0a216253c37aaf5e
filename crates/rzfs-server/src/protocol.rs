//! Requests of commands to a running pool, and its answers.
//!
//! The same types serve the control socket of a mounted pool, a pool opened in process, and the
//! tests. On the socket a message is one line of JSON: an [`Envelope`] around a [`Request`] goes
//! in, an envelope around an [`Answer`] comes back; a connection carries any number of pairs, in
//! turn. A peer with another [`VERSION`] gets an error and is disconnected.
//!
//! Answers are plain data: numbers in bytes, seconds and counts, names as ZFS gives them. Their
//! formatting is up to the command that prints them.

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
    AddRequest, Change, ConcurrentSnapshots, EventDetail, EventReport, KeyRequest, MountManner,
    NewClone, NewFileSystem, Pair, PruneLimit, Purpose,
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

// Types of the engine used in messages.
pub use rzfs_dsl::live::SweepOrder;
pub use rzfs_dsl::pool::{Erratum, PoolStatus, ScanFunction, SweepKind, SweepState};
pub use rzfs_vdev::Health;

use serde::{Deserialize, Serialize};

/// Version of requests and answers; it changes whenever an older peer would misunderstand.
pub const VERSION: u32 = 14;

/// A message with its protocol version.
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

/// A request to one pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Name and guid of the pool; answered without I/O.
    Identify,
    /// State, vdevs and properties of the pool.
    Pool,
    /// The history of the pool.
    History,
    /// Properties of datasets.
    Datasets(DatasetQuery),
    /// The holds on these snapshots.
    Holds {
        /// Their names.
        names: Vec<String>,
    },
    /// The usage of a file system by users, groups or projects.
    Accounts(AccountQuery),
    /// The number of removed files of a file system that still occupy space.
    UnfreedFiles {
        /// Its name.
        file_system: String,
    },
    /// The space reclaimed by destroying runs of snapshots.
    Reclaimed {
        /// The first and the last one of each, of the same head.
        runs: Vec<(String, String)>,
    },
    /// The files that differ.
    Differences(DiffQuery),
    /// Send a snapshot: the stream comes in parts, followed by the answer.
    Send(SendRequest),
    /// The size of that stream, or of each of its streams.
    StreamSizes(SendRequest),
    /// Receive a snapshot, or several: the stream follows in parts. For each there is
    /// [`Answer::Receiving`] once its beginning is read, then [`Answer::Received`]; before and
    /// after all of them [`Answer::Adjusted`] for each change of a tree; finally [`Answer::Done`].
    Receive(ReceiveRequest),
    /// The mounts of the pool.
    Mounts,
    /// The events of the pool since it was opened, the oldest first.
    Events,
    /// Forget these events.
    ClearEvents,
    /// The counters since the pool was opened; answered without I/O.
    Stats,
    /// Change the pool; the answer comes when the change is on disk.
    Change {
        /// The change.
        change: Change,
        /// The line for the pool's history, if any.
        command: Option<String>,
    },
    /// The layout of the vdevs after an addition; nothing is changed.
    PlanAdd(AddRequest),
    /// End all mounts and close the devices; a pool open for writing is exported. The answer comes
    /// when that is done.
    Unmount {
        /// Detach mounts in use, too.
        force: bool,
        /// The line for the pool's history, if any.
        command: Option<String>,
    },
    /// As [`Request::Unmount`], but the pool is marked as destroyed.
    Destroy {
        /// Detach mounts in use, too.
        force: bool,
        /// The line for the pool's history.
        command: String,
    },
}

/// An answer of a pool.
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
    /// To [`Request::UnfreedFiles`]: 0 for a file system that is not in use, or read-only.
    UnfreedFiles(u64),
    /// To [`Request::Reclaimed`]: bytes.
    Reclaimed(u64),
    /// To [`Request::Differences`].
    Differences(DiffPart),
    /// To [`Request::StreamSizes`].
    StreamSizes(StreamSizes),
    /// To [`Request::Receive`]: the description of the stream.
    Receiving(ReceiveReport),
    /// To [`Request::Receive`]: it has arrived.
    Received {
        /// Bytes of the stream after its first record.
        bytes: u64,
        /// Secondary failures: mounts that were not made.
        complaints: Vec<String>,
        /// Parts of the stream that are not supported here, which is no failure: properties that
        /// the target rejects.
        warnings: Vec<String>,
    },
    /// To [`Request::Receive`]: a local dataset was adjusted to the sent tree.
    Adjusted(TreeReport),
    /// To [`Request::Mounts`], in the order of mounting.
    Mounts(Vec<MountReport>),
    /// To [`Request::Events`], the oldest event first.
    Events(Vec<EventReport>),
    /// To [`Request::ClearEvents`]: the number of cleared events.
    Cleared(u64),
    /// To [`Request::Stats`].
    Stats(Box<StatsReport>),
    /// To [`Request::Change`]: it is done. Secondary failures are reported line by line: mounts
    /// that were not made.
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

/// The identity of a pool's process.
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
    /// The kind, for commands to act on.
    pub kind: RefusalKind,
    /// The object and the reason, in OpenZFS's words: `cannot unmount '/x': pool or dataset is
    /// busy`.
    pub message: String,
}

/// The kind of a refusal, for commands to act on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalKind {
    /// The named dataset cannot be opened; it may not exist.
    Unopened,
    /// A mount cannot be ended.
    StillMounted,
    /// Anything else.
    #[default]
    Other,
}

impl Refusal {
    /// A refusal for a reason without a kind.
    pub fn new(message: impl Into<String>) -> Self {
        Self::of_kind(RefusalKind::Other, message)
    }

    /// A refusal of this kind.
    pub fn of_kind(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}
