//! Images that are deleted while their pool is open.

use rzfs::WritablePool;
use rzfs_blockdev::without_controls;
use std::fmt;

/// An image that has no name any more, and that its pool needs. The pool goes on using it, and it
/// disappears with the process.
#[derive(Debug)]
pub(super) struct DeletedImage(String);

impl DeletedImage {
    /// The first deleted image that a pool needs; dispensable ones are given up. Data written so
    /// far are in the image afterwards, unless the pool is suspended.
    pub(super) fn of(pool: &WritablePool) -> Option<Self> {
        let vdevs = pool.live().vdevs();
        let leaf = vdevs.give_up_deleted()?;
        if !pool.live().is_suspended()
            && let Err(error) = pool.sync()
        {
            tracing::warn!(%error, "a deleted image lacks what was written last");
        }
        // A name must not start lines of its own.
        let shown = without_controls(leaf.name().as_bytes(), b"");
        Some(Self(String::from_utf8_lossy(&shown).into_owned()))
    }
}

impl fmt::Display for DeletedImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let process = std::process::id();
        write!(
            f,
            "{0} was deleted while the pool is using it\n\
             What the pool has is in the deleted file until it is exported. While nobody writes, \
             copy that ('ls -l /proc/{process}/fd | grep deleted' shows it), then use \
             'zpool export -f' and import the copy.",
            self.0
        )
    }
}
