//! The starter of a process that serves a pool.

use crate::error::{KeyError, NotMounted};
use rzfs::Secret;
use rzfs_codec::crypto::KeyFormat;
use rzfs_dsl::live::DroppedLog;
use rzfs_format::Txg;
use rzfs_format::features::Feature;
use std::io;

/// The starter of a process that serves a pool: it exists until everything is mounted.
pub trait Starter {
    /// Receives a notice of a problem that need not be fatal.
    fn hear(&mut self, notice: Notice<'_>);

    /// Returns a key; `None` to give up.
    ///
    /// # Errors
    /// There is no way to ask.
    fn key(&mut self, wanted: &WantedKey<'_>) -> io::Result<Option<Secret>>;
}

/// A key that is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WantedKey<'a> {
    /// The encryption root.
    pub root: &'a str,
    /// Its format.
    pub format: KeyFormat,
    /// Its source.
    pub source: KeySource,
}

/// The source of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeySource {
    /// The user at the terminal.
    Terminal,
    /// Standard input.
    Input,
}

/// A problem that need not be fatal.
#[derive(Clone, Copy, Debug)]
pub enum Notice<'a> {
    /// A device, or a place to search for devices, cannot be opened.
    Unopened(&'a rzfs_blockdev::OpenError),
    /// Intent logs were not replayed, as the pool is open read-only.
    UnreplayedLogs {
        /// The pool.
        pool: &'a str,
        /// The txg of the visible state.
        txg: Txg,
    },
    /// An intent log was given up.
    DroppedLog(&'a DroppedLog),
    /// A feature of a new pool is not in the set that its property `compatibility` names.
    Incompatible(&'a Feature),
    /// A key does not fit.
    Key(&'a KeyError),
    /// A file system is omitted, as its key is not loaded.
    LeftOut(&'a str),
    /// A file system is not mounted.
    NotMounted(&'a NotMounted),
    /// This user lacks permission for a directory named by properties.
    MountPointsDenied,
}
