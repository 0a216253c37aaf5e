//! What commands have changed of a pool that is imported for writing.

use super::{SweepRequest, Temporary};
use rzfs::Secret;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A property and its value, as typed.
pub type Pair = (String, String);

/// What becomes of snapshots that somebody takes of a dataset while it is being destroyed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Newcomers {
    /// The dataset stays with them.
    Keep,
    /// They are destroyed with it.
    Destroy,
}

/// A change of a pool or of its datasets. Names are full names.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// A new file system.
    Create(NewFileSystem),
    /// File systems, volumes and snapshots are destroyed, in this order: what is below others, or was
    /// made of them, comes first.
    Destroy {
        /// Their names.
        names: Vec<String>,
        /// Detach mounts that are in use.
        force: bool,
        /// What becomes of snapshots of theirs that are not named.
        newcomers: Newcomers,
    },
    /// Snapshots are taken together: all of them, or none.
    Snapshot {
        /// Their names.
        names: Vec<String>,
        /// Properties that each gets.
        properties: Vec<Pair>,
    },
    /// Snapshots are destroyed together: all of them, or none.
    DestroySnapshots {
        /// Their names.
        names: Vec<String>,
        /// Those that somebody needs are destroyed when nobody does any more.
        defer: bool,
    },
    /// Snapshots get another name: all of them, or none.
    RenameSnapshots {
        /// Their names.
        names: Vec<String>,
        /// Their new name, without what they are of.
        to: String,
    },
    /// A file system or volume becomes again what its last snapshot is.
    Rollback {
        /// The snapshot; it is refused if there is a younger one.
        snapshot: String,
    },
    /// A file system gets a newer version.
    RaiseVersion {
        /// The file system.
        name: String,
        /// The version.
        version: u64,
    },
    /// A file system or volume is made of a snapshot.
    Clone(NewClone),
    /// What has arrived of a stream that broke off is destroyed.
    AbandonReceive {
        /// Where it was to be received.
        name: String,
    },
    /// A clone and what it is a clone of change places.
    Promote {
        /// The clone.
        name: String,
    },
    /// Snapshots are kept from being destroyed.
    Hold {
        /// Their names.
        names: Vec<String>,
        /// By whom.
        tag: String,
    },
    /// They are not any more.
    Release {
        /// Their names.
        names: Vec<String>,
        /// By whom they were kept.
        tag: String,
    },
    /// A bookmark is made.
    Bookmark {
        /// Of this snapshot or bookmark.
        source: String,
        /// Its name.
        name: String,
    },
    /// A bookmark is removed.
    DestroyBookmark {
        /// Its name.
        name: String,
    },
    /// A dataset and all below it get another name.
    Rename {
        /// Its name.
        from: String,
        /// Its new name.
        to: String,
        /// Make the datasets above the new name that are missing.
        ancestors: bool,
        /// Detach mounts that are in use.
        force: bool,
        /// Mounts stay where they are.
        leave_mounted: bool,
    },
    /// Properties of a dataset are set, all or none of them.
    Set {
        /// The dataset.
        name: String,
        /// The properties.
        properties: Vec<Pair>,
        /// Mounts stay where they are.
        leave_mounted: bool,
    },
    /// A property of a dataset gets its inherited value.
    Inherit {
        /// The dataset.
        name: String,
        /// The property.
        property: String,
        /// That of a send stream, if there is one.
        received: bool,
    },
    /// A file system is mounted.
    Mount {
        /// Its name.
        name: String,
        /// How.
        manner: MountManner,
    },
    /// Everything is mounted that is mounted by itself.
    MountAll {
        /// How.
        manner: MountManner,
    },
    /// What a mount does otherwise than properties say is changed while it is used.
    Remount {
        /// Name of the file system.
        name: String,
        /// What is to be otherwise from now on; the rest stays as it is.
        temporary: Temporary,
    },
    /// A mount is ended.
    Unmount {
        /// Name of the file system, or the directory.
        target: String,
        /// Detach it if it is in use.
        force: bool,
    },
    /// All mounts are ended; the pool stays.
    UnmountAll {
        /// Detach what is in use.
        force: bool,
    },
    /// The key of an encryption root is loaded.
    LoadKey {
        /// The encryption root.
        name: String,
        /// Its key.
        key: Secret,
        /// Whether it is loaded, or only checked.
        purpose: Purpose,
    },
    /// The key of an encryption root is forgotten.
    UnloadKey {
        /// The encryption root.
        name: String,
    },
    /// An encrypted dataset gets another key.
    ChangeKey {
        /// The dataset.
        name: String,
        /// Which one.
        request: KeyRequest,
    },
    /// A property of the pool is set.
    SetPool {
        /// The property and its value.
        property: Pair,
    },
    /// Vdevs are added to the pool.
    Add(AddRequest),
    /// All features are enabled that the property `compatibility` allows.
    Upgrade,
    /// Errors of devices are forgotten, and a suspended pool tries again what failed.
    Clear {
        /// Name, path or guid of a vdev; all of them otherwise.
        vdev: Option<String>,
    },
    /// Free space of devices is initialized or trimmed, or that ends.
    Sweep(SweepRequest),
    /// Blocks that there are once only are forgotten by the dedup tables.
    PruneDedup(PruneLimit),
    /// The dedup tables are read into memory.
    PrefetchDedup,
    /// The pool gets another guid.
    Reguid,
    /// Everything that was changed so far is written.
    Sync,
}

/// How file systems are mounted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct MountManner {
    /// The directory for one whose mount point is `legacy`; else properties name it.
    pub directory: Option<PathBuf>,
    /// What is otherwise than properties say.
    pub temporary: Temporary,
    /// Hide what is in the directory, whatever property `overlay` says.
    pub overlay: bool,
}

/// Which entries dedup tables forget.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PruneLimit {
    /// Those that are older than so many seconds.
    Age(u64),
    /// So much of them in percent, the oldest.
    Percent(u64),
}

/// A file system that is to be made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NewFileSystem {
    /// Its name.
    pub name: String,
    /// Its own properties.
    pub properties: Vec<Pair>,
    /// Make the file systems above it that are missing; it may exist itself.
    pub ancestors: bool,
    /// Do not mount it.
    pub leave_unmounted: bool,
    /// Its key, if it is to be an encryption root.
    pub key: Option<Secret>,
}

/// A file system or volume that is to be made of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NewClone {
    /// Its name.
    pub name: String,
    /// The snapshot.
    pub origin: String,
    /// Its own properties.
    pub properties: Vec<Pair>,
    /// Make the file systems above it that are missing; it may exist itself.
    pub ancestors: bool,
}

/// The key that an encrypted dataset is to have.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyRequest {
    /// Its own.
    New {
        /// How it is given, and where it is.
        properties: Vec<Pair>,
        /// The key.
        key: Secret,
    },
    /// That of the dataset above.
    Inherit,
}

/// Whether something is done or only shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// It is done.
    #[default]
    Change,
    /// It is checked.
    DryRun,
}

/// Vdevs that are to be added.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AddRequest {
    /// The words of `zpool add`.
    pub vdevs: Vec<String>,
    /// log2 of their sector size, if it is given.
    pub ashift: Option<u64>,
    /// The size in bytes of files that are to be made.
    pub missing_file_size: Option<u64>,
    /// Take devices that seem to hold something else.
    pub allow_in_use: bool,
    /// Take vdevs of another redundancy than the pool's.
    pub allow_replication_mismatch: bool,
    /// Take vdevs of another sector size than the pool's.
    pub allow_ashift_mismatch: bool,
    /// Guids of the pools that the user has imported.
    pub imported: Vec<u64>,
    /// Guids of their spares and cache devices, with the names of the pools.
    pub auxiliary: Vec<(u64, String)>,
}

/// Something that happened to a pool since it was opened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EventReport {
    /// Its class, as in `sysevent.fs.zfs.pool_import`.
    pub class: String,
    /// Seconds since 1970.
    pub seconds: u64,
    /// And nanoseconds.
    pub nanoseconds: u32,
    /// What is known about it, in order.
    pub details: Vec<(String, EventDetail)>,
}

/// A detail of an event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventDetail {
    /// A text.
    Text(String),
    /// A number.
    Number(u64),
}
