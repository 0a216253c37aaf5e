//! What the kernel keeps, and is told to forget.
//!
//! The kernel learns of most changes by the answers to what it asked for. Here is the rest:
//!
//! ```text
//! attributes that change with contents (set-user-id, set-group-id)   before the answer
//! times that change with flags                                       before the answer
//! ```

use fuser::{INodeNo, Notifier};
use std::sync::{Arc, OnceLock};

/// Says "attributes only" where the beginning of a range of contents is expected.
const ATTRIBUTES: i64 = -1;

/// The caches of the kernel that has the mount.
#[derive(Clone, Debug, Default)]
pub(crate) struct KernelCache {
    notifier: Arc<OnceLock<Notifier>>,
}

impl KernelCache {
    /// The way to the kernel, once there is one: before the first request.
    pub(crate) fn connect(&self, notifier: Notifier) {
        let _ = self.notifier.set(notifier);
    }

    /// Has the kernel ask for the attributes of a file, and for its list of access rights, when it
    /// needs them the next time.
    pub(crate) fn forget_attributes(&self, inode: INodeNo) {
        let Some(notifier) = self.notifier.get() else { return };
        // It fails when the mount is ending, and nobody keeps anything.
        if let Err(error) = notifier.inval_inode(inode, ATTRIBUTES, 0) {
            tracing::debug!(%error, %inode, "the kernel keeps old attributes");
        }
    }
}
