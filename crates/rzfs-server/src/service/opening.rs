//! What is known of an open pool besides what is on its devices.

use rzfs::setting::CacheFile;
use rzfs_dsl::pool::FailMode;
use rzfs_format::Guid;
use serde::{Deserialize, Serialize};
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;

/// What is known of an open pool besides what is on its devices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opening {
    /// What OpenZFS calls `load_guid`: another number every time a pool is opened.
    pub load_guid: u64,
    /// What it is open for.
    pub access: Access,
    /// The directory below which its file systems are mounted.
    pub alternate_root: Option<PathBuf>,
    /// What property `cachefile` says; one that has an alternate root has none by itself.
    pub cache_file: Option<CacheFile>,
    /// If it waits for its devices: what becomes of writers meanwhile.
    pub suspended: Option<FailMode>,
}

/// What a pool is open for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Access {
    /// Reading: nothing is written to its devices, ever.
    ReadOnly,
    /// Reading and writing.
    #[default]
    ReadWrite,
}

impl Opening {
    /// A pool that was opened just now.
    #[must_use]
    pub fn now(pool: Guid, access: Access) -> Self {
        let load_guid = RandomState::new().hash_one(pool.get());
        Self { load_guid, access, alternate_root: None, cache_file: None, suspended: None }
    }
}
