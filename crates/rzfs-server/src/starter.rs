//! Whoever started a process that serves a pool.

use crate::error::{KeyError, NotMounted};
use rzfs::Secret;
use rzfs_codec::crypto::KeyFormat;
use rzfs_dsl::live::GivenUpLog;
use rzfs_format::Txg;
use rzfs_format::features::Feature;
use std::io;

/// Whoever started a process that serves a pool: is there until everything is mounted.
pub trait Starter {
    /// Hears of something that went wrong, though the pool may be served.
    fn hear(&mut self, notice: Notice<'_>);

    /// Gives a key; nothing to give up.
    ///
    /// # Errors
    /// Nobody can be asked.
    fn key(&mut self, wanted: &WantedKey<'_>) -> io::Result<Option<Secret>>;
}

/// A key that somebody is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WantedKey<'a> {
    /// The encryption root.
    pub root: &'a str,
    /// How it is given.
    pub format: KeyFormat,
    /// Who is asked.
    pub source: KeySource,
}

/// Who is asked for a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeySource {
    /// Somebody at the terminal.
    Terminal,
    /// Whoever writes to standard input.
    Input,
}

/// Something that went wrong, though the pool may be served.
#[derive(Clone, Copy, Debug)]
pub enum Notice<'a> {
    /// A device, or a place to search for devices, cannot be opened.
    Unopened(&'a rzfs_blockdev::OpenError),
    /// Intent logs were not replayed, as the pool is only read.
    UnreplayedLogs {
        /// The pool.
        pool: &'a str,
        /// The pool is seen as of this txg.
        txg: Txg,
    },
    /// An intent log was given up.
    GivenUpLog(&'a GivenUpLog),
    /// A feature of a new pool is not in the set that its property `compatibility` names.
    Incompatible(&'a Feature),
    /// A key that was found does not do.
    Key(&'a KeyError),
    /// A file system is left out, as its key is not loaded.
    LeftOut(&'a str),
    /// A file system is not mounted.
    NotMounted(&'a NotMounted),
    /// This user may not have a directory that properties name.
    MountPointsDenied,
}
