//! Changes by commands of a pool that is imported for writing.

use super::{SweepRequest, Temporary};
use rzfs::Secret;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A property and its value, as typed.
pub type Pair = (String, String);

/// Treatment of snapshots that are taken while their dataset is being destroyed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConcurrentSnapshots {
    /// The dataset stays with them.
    Keep,
    /// They are destroyed with it.
    Destroy,
}

/// A change of a pool or of its datasets. Names are full names.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Create a file system.
    Create(NewFileSystem),
    /// Destroy file systems, volumes and snapshots, in this order: children and clones come first.
    Destroy {
        /// Their names.
        names: Vec<String>,
        /// Detach mounts in use.
        force: bool,
        /// Treatment of their snapshots that are not named.
        newcomers: ConcurrentSnapshots,
    },
    /// Take snapshots together: all of them, or none.
    Snapshot {
        /// Their names.
        names: Vec<String>,
        /// Properties of each.
        properties: Vec<Pair>,
    },
    /// Destroy snapshots together: all of them, or none.
    DestroySnapshots {
        /// Their names.
        names: Vec<String>,
        /// Destroy snapshots in use once they are no longer in use.
        defer: bool,
    },
    /// Rename snapshots: all of them, or none.
    RenameSnapshots {
        /// Their names.
        names: Vec<String>,
        /// Their new name, without the dataset.
        to: String,
    },
    /// Roll a file system or volume back to its last snapshot.
    Rollback {
        /// The snapshot; it is refused if there is a younger one.
        snapshot: String,
    },
    /// Upgrade the version of a file system.
    RaiseVersion {
        /// The file system.
        name: String,
        /// The version.
        version: u64,
    },
    /// Clone a snapshot to a file system or volume.
    Clone(NewClone),
    /// Destroy the partial state of an interrupted receive.
    AbandonReceive {
        /// Its target.
        name: String,
    },
    /// Promote a clone.
    Promote {
        /// The clone.
        name: String,
    },
    /// Hold snapshots.
    Hold {
        /// Their names.
        names: Vec<String>,
        /// The tag.
        tag: String,
    },
    /// Release holds of snapshots.
    Release {
        /// Their names.
        names: Vec<String>,
        /// The tag.
        tag: String,
    },
    /// Create a bookmark.
    Bookmark {
        /// Of this snapshot or bookmark.
        source: String,
        /// Its name.
        name: String,
    },
    /// Destroy a bookmark.
    DestroyBookmark {
        /// Its name.
        name: String,
    },
    /// Rename a dataset and all below it.
    Rename {
        /// Its name.
        from: String,
        /// Its new name.
        to: String,
        /// Create missing ancestors of the new name.
        ancestors: bool,
        /// Detach mounts in use.
        force: bool,
        /// Mounts stay where they are.
        leave_mounted: bool,
    },
    /// Set properties of a dataset, all or none of them.
    Set {
        /// The dataset.
        name: String,
        /// The properties.
        properties: Vec<Pair>,
        /// Mounts stay where they are.
        leave_mounted: bool,
    },
    /// Reset a property of a dataset to its inherited value.
    Inherit {
        /// The dataset.
        name: String,
        /// The property.
        property: String,
        /// To the received value, if there is one.
        received: bool,
    },
    /// Mount a file system.
    Mount {
        /// Its name.
        name: String,
        /// The options.
        manner: MountManner,
    },
    /// Mount everything that is mounted automatically.
    MountAll {
        /// The options.
        manner: MountManner,
    },
    /// Change the temporary options of a mount in use.
    Remount {
        /// Name of the file system.
        name: String,
        /// The options to change; the others stay.
        temporary: Temporary,
    },
    /// End a mount.
    Unmount {
        /// Name of the file system, or the directory.
        target: String,
        /// Detach it if it is in use.
        force: bool,
    },
    /// End all mounts; the pool stays.
    UnmountAll {
        /// Detach mounts in use.
        force: bool,
    },
    /// Load the key of an encryption root.
    LoadKey {
        /// The encryption root.
        name: String,
        /// Its key.
        key: Secret,
        /// Whether it is loaded, or only checked.
        purpose: Purpose,
    },
    /// Unload the key of an encryption root.
    UnloadKey {
        /// The encryption root.
        name: String,
    },
    /// Change the key of an encrypted dataset.
    ChangeKey {
        /// The dataset.
        name: String,
        /// The new key.
        request: KeyRequest,
    },
    /// Set a property of the pool.
    SetPool {
        /// The property and its value.
        property: Pair,
    },
    /// Add vdevs to the pool.
    Add(AddRequest),
    /// Enable all features that property `compatibility` allows.
    Upgrade,
    /// Clear device errors; a suspended pool retries failed I/O.
    Clear {
        /// Name, path or guid of a vdev; `None` for all.
        vdev: Option<String>,
    },
    /// Initialize or trim free space of devices, or stop that.
    Sweep(SweepRequest),
    /// Prune unique blocks from the dedup tables.
    PruneDedup(PruneLimit),
    /// Read the dedup tables into memory.
    PrefetchDedup,
    /// Change the guid of the pool.
    Reguid,
    /// Write all pending changes.
    Sync,
}

/// Options for mounting file systems.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct MountManner {
    /// The directory for a file system with mount point `legacy`; otherwise properties name it.
    pub directory: Option<PathBuf>,
    /// Temporary options.
    pub temporary: Temporary,
    /// Hide the contents of the directory, whatever property `overlay` says.
    pub overlay: bool,
}

/// Which entries to prune from dedup tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PruneLimit {
    /// Those older than this many seconds.
    Age(u64),
    /// This percentage of them, the oldest first.
    Percent(u64),
}

/// A file system to be created.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NewFileSystem {
    /// Its name.
    pub name: String,
    /// Its own properties.
    pub properties: Vec<Pair>,
    /// Create missing ancestors; it may exist itself.
    pub ancestors: bool,
    /// Do not mount it.
    pub leave_unmounted: bool,
    /// Its key, if it is to be an encryption root.
    pub key: Option<Secret>,
}

/// A file system or volume to be cloned from a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NewClone {
    /// Its name.
    pub name: String,
    /// The snapshot.
    pub origin: String,
    /// Its own properties.
    pub properties: Vec<Pair>,
    /// Create missing ancestors; it may exist itself.
    pub ancestors: bool,
}

/// The new key of an encrypted dataset.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyRequest {
    /// Its own key.
    New {
        /// Its format and location.
        properties: Vec<Pair>,
        /// The key.
        key: Secret,
    },
    /// That of the parent dataset.
    Inherit,
}

/// Whether to act or only to check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// Act.
    #[default]
    Change,
    /// Only check.
    DryRun,
}

/// Vdevs to be added.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AddRequest {
    /// The words of `zpool add`.
    pub vdevs: Vec<String>,
    /// log2 of their sector size, if it is given.
    pub ashift: Option<u64>,
    /// The size in bytes of files to be created.
    pub missing_file_size: Option<u64>,
    /// Accept devices that seem to be in use.
    pub allow_in_use: bool,
    /// Accept vdevs with another redundancy than the pool's.
    pub allow_replication_mismatch: bool,
    /// Accept vdevs with another sector size than the pool's.
    pub allow_ashift_mismatch: bool,
    /// Guids of the pools that the user has imported.
    pub imported: Vec<u64>,
    /// Guids of their spares and cache devices, with the names of the pools.
    pub auxiliary: Vec<(u64, String)>,
}

/// An event of a pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EventReport {
    /// Its class, as in `sysevent.fs.zfs.pool_import`.
    pub class: String,
    /// Seconds since 1970.
    pub seconds: u64,
    /// And nanoseconds.
    pub nanoseconds: u32,
    /// Its details, in order.
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
