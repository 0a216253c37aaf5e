//! State of an open pool that is not on its devices.

use rzfs::setting::CacheFile;
use rzfs_dsl::pool::FailMode;
use rzfs_format::Guid;
use serde::{Deserialize, Serialize};
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;

/// State of an open pool that is not on its devices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opening {
    /// What OpenZFS calls `load_guid`: another number every time a pool is opened.
    pub load_guid: u64,
    /// Its access mode.
    pub access: Access,
    /// The directory below which its file systems are mounted.
    pub alternate_root: Option<PathBuf>,
    /// Property `cachefile`; by default none with an alternate root.
    pub cache_file: Option<CacheFile>,
    /// The fate of writers while the pool waits for its devices, if it does.
    pub suspended: Option<FailMode>,
}

/// The access mode of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Access {
    /// Reading: nothing is written to its devices, ever.
    ReadOnly,
    /// Reading and writing.
    #[default]
    ReadWrite,
}

impl Opening {
    /// The state of a pool that was just opened.
    #[must_use]
    pub fn now(pool: Guid, access: Access) -> Self {
        let load_guid = RandomState::new().hash_one(pool.get());
        Self { load_guid, access, alternate_root: None, cache_file: None, suspended: None }
    }
}
