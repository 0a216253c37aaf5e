//! Where file systems are grafted.

use crate::grafts::GraftPoint;
use crate::mount_points::MountPath;
use fuser::INodeNo;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A grafted file system.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    /// Its path from the root of the mount.
    pub(super) path: PathBuf,
    pub(super) file_system: usize,
    /// The enclosing file system.
    pub(super) within: usize,
    /// The directory there that it replaces, which stays known as long as the graft.
    pub(super) directory: INodeNo,
    /// The directories that were made for it there.
    pub(super) way: MountPath,
}

/// The grafted file systems, by their paths.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<Vec<Placed>>);

impl Places {
    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<Placed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reason why a file system was not grafted, and the name about which the kernel's knowledge
/// may be outdated.
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
