//! Where file systems are grafted.

use crate::grafts::GraftPoint;
use crate::mount_points::MountPath;
use fuser::INodeNo;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A file system that is grafted.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    /// From the root of the mount.
    pub(super) path: PathBuf,
    pub(super) file_system: usize,
    /// The file system that it is in.
    pub(super) within: usize,
    /// The directory of that one for which it stands, and which is known there as long as it does.
    pub(super) directory: INodeNo,
    /// What was made for it there.
    pub(super) way: MountPath,
}

/// The file systems that are grafted, by their paths.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<Vec<Placed>>);

impl Places {
    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<Placed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a file system was not grafted, and the name of which the kernel may know something that is
/// no more.
#[derive(Debug)]
pub(super) struct NotInserted {
    pub(super) error: io::Error,
    pub(super) changed: Option<GraftPoint>,
}

impl From<io::Error> for NotInserted {
    fn from(error: io::Error) -> Self {
        Self { error, changed: None }
    }
}
