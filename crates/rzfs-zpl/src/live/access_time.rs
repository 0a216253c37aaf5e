//! Times of access (spec 05, section 9.5).
//!
//! A read of a held file records the time in memory; it is written to the object with the file's
//! next change, or when the file is released.

use super::admission::DNODE_BYTES;
use super::file_system::LiveFileSystem;
use super::node::LiveNode;
use super::node::NodeState;
use super::options::AccessTimes;
use super::values::Values;
use crate::error::ZplError;
use rzfs_dsl::live::SpaceDemand;
use rzfs_format::ObjectId;
use rzfs_format::sa::Schema;
use rzfs_format::znode::{FileFlags, Timestamp};

/// Age in seconds after which an access time is updated anyway.
const A_DAY: i64 = 24 * 60 * 60;

impl LiveFileSystem {
    /// Records a read of a file, if that changes its access time.
    ///
    /// # Errors
    /// The number is not that of a file.
    pub fn note_access(&self, object: ObjectId) -> Result<(), ZplError> {
        if self.options().access_times() == AccessTimes::Off || self.is_read_only() {
            return Ok(());
        }
        let node = self.node(object)?;
        let now = self.options().clock.now();
        if !self.is_stale(&node.state().read(), now) {
            return Ok(());
        }
        let mut state = node.write();
        state.pending_atime = Some(now);
        // A file that is not held may be dropped at any time.
        if node.is_held() { Ok(()) } else { self.update(&mut state, |_, _| {}) }
    }

    fn is_stale(&self, state: &NodeState, now: Timestamp) -> bool {
        let znode = state.znode();
        let atime = state.pending_atime.unwrap_or(znode.atime);
        if znode.flags.contains(FileFlags::IMMUTABLE) {
            return false;
        }
        match self.options().access_times() {
            AccessTimes::Off => false,
            AccessTimes::Always => atime < now,
            AccessTimes::Relative => {
                atime <= znode.mtime
                    || atime <= znode.ctime
                    || now.seconds.saturating_sub(atime.seconds) >= A_DAY
            }
        }
    }

    /// Writes a pending access time.
    pub(super) fn flush_access_time(&self, node: &LiveNode) -> Result<(), ZplError> {
        let is_noted = node.state().read().pending_atime.is_some();
        if !is_noted || node.is_gone() || self.is_read_only() {
            return Ok(());
        }
        let mut state = node.write();
        if state.pending_atime.is_some() {
            self.update(&mut state, |_, _| {})?;
        }
        Ok(())
    }

    /// Writes all pending access times: to be called before the file system is closed.
    ///
    /// # Errors
    /// One cannot be written.
    pub fn flush_access_times(&self) -> Result<(), ZplError> {
        self.source.nodes.all().iter().try_for_each(|node| self.flush_access_time(node))
    }

    /// Changes a file's attributes in a transaction of its own.
    pub(super) fn update(
        &self,
        state: &mut NodeState,
        change: impl FnOnce(&mut Values, &Schema),
    ) -> Result<(), ZplError> {
        let changed = self.prepare(state, change)?;
        let object = state.object().clone();
        let tx = self.begin(&[&object], SpaceDemand::Takes(DNODE_BYTES))?;
        changed.apply(&tx, state)
    }
}
