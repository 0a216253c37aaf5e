//! Mounts that have ended here, but are still in use.

use rzfs_fuse::{MadeDirectory, Mount};
use rzfs_zpl::live::LiveFileSystem;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

/// A mount that has ended here, but is still in use: by processes that were in it when it was
/// detached, a bind mount, another namespace. Or its last changes are still being written.
#[derive(Debug)]
pub(super) struct LeftBehind {
    pub(super) mount: Option<Mount>,
    pub(super) directory: PathBuf,
    /// The directory if it was made for the mount. It is removed last: this would also detach
    /// mounts on it in other namespaces.
    pub(super) made: Option<MadeDirectory>,
    /// Its live file systems.
    pub(super) files: Vec<Weak<LiveFileSystem>>,
}

impl LeftBehind {
    pub(super) fn had(&self, files: &Arc<LiveFileSystem>) -> bool {
        self.files.iter().any(|one| std::ptr::eq(one.as_ptr(), Arc::as_ptr(files)))
    }

    /// Whether this file system can still be changed through it.
    pub(super) fn is_still_used_with(&self, files: &Arc<LiveFileSystem>) -> bool {
        self.had(files) && self.is_reachable()
    }

    pub(super) fn is_reachable(&self) -> bool {
        self.mount.as_ref().is_some_and(Mount::is_reachable)
    }

    pub(super) fn is_finished(&self) -> bool {
        self.mount.as_ref().is_none_or(Mount::is_finished)
    }
}

impl Drop for LeftBehind {
    fn drop(&mut self) {
        if let Some(mount) = self.mount.take() {
            mount.abandon();
        }
    }
}
