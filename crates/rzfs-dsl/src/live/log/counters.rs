//! Counters of intent logs: OpenZFS's `zil`.

use super::not_logged::NotLogged;
use rzfs_metaslab::allocator::ClassKind;
use std::sync::atomic::{AtomicU64, Ordering};

rzfs_kstat::kstat! {
    /// Counters of the intent logs of a pool at one moment, with the names of OpenZFS's kstat `zil`.
    /// Data is always copied at commit time, so there are no counters of data copied earlier.
    pub struct ZilStats = "zil", counted by pub(crate) struct ZilCounters {
        /// Commits with a waiter.
        zil_commit_count: Counter Count,
        /// Times records were written, for one or several commits together.
        zil_commit_writer_count: Counter Count,
        /// Commits that waited for their transaction group because of an error.
        zil_commit_error_count: Counter Count,
        /// Commits that waited for their transaction group for lack of space for log blocks.
        zil_commit_stall_count: Counter Count,
        /// Committed operations.
        zil_itx_count: Counter Count,
        /// Writes whose data went to its final place.
        zil_itx_indirect_count: Counter Count,
        /// Bytes of these.
        zil_itx_indirect_bytes: Counter Bytes,
        /// Writes whose data was copied into the log.
        zil_itx_needcopy_count: Counter Count,
        /// Bytes of these.
        zil_itx_needcopy_bytes: Counter Bytes,
        /// Log blocks written to ordinary devices.
        zil_itx_metaslab_normal_count: Counter Count,
        /// Bytes of records in these.
        zil_itx_metaslab_normal_bytes: Counter Bytes,
        /// Bytes written for these.
        zil_itx_metaslab_normal_write: Counter Bytes,
        /// Bytes allocated for these.
        zil_itx_metaslab_normal_alloc: Counter Bytes,
        /// Log blocks written to log devices.
        zil_itx_metaslab_slog_count: Counter Count,
        /// Bytes of records in these.
        zil_itx_metaslab_slog_bytes: Counter Bytes,
        /// Bytes written for these.
        zil_itx_metaslab_slog_write: Counter Bytes,
        /// Bytes allocated for these.
        zil_itx_metaslab_slog_alloc: Counter Bytes,
    }
}

/// A log block being written.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogBlock {
    /// Bytes of records in it.
    pub(super) records: u64,
    /// Bytes written.
    pub(super) written: u64,
    /// Bytes allocated.
    pub(super) allocated: u64,
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl ZilCounters {
    /// Counts a commit with a waiter.
    pub(super) fn count_commit(&self) {
        add(&self.zil_commit_count, 1);
    }

    /// Counts a write of this many operations for the waiters.
    pub(super) fn count_writing(&self, operations: usize) {
        add(&self.zil_commit_writer_count, 1);
        add(&self.zil_itx_count, operations as u64);
    }

    /// Counts a commit that waits for its group because of a lack or an error.
    pub(super) fn count_not_logged(&self, reason: &NotLogged) {
        match reason {
            NotLogged::NoSpace => add(&self.zil_commit_stall_count, 1),
            reason if reason.is_failure() => add(&self.zil_commit_error_count, 1),
            _ => {}
        }
    }

    /// Counts a part of a write whose data is at its final place.
    pub(super) fn count_placed(&self, bytes: u64) {
        add(&self.zil_itx_indirect_count, 1);
        add(&self.zil_itx_indirect_bytes, bytes);
    }

    /// Counts a part of a write whose data is copied.
    pub(super) fn count_copied(&self, bytes: u64) {
        add(&self.zil_itx_needcopy_count, 1);
        add(&self.zil_itx_needcopy_bytes, bytes);
    }

    /// Counts a log block written to a device of this class.
    pub(super) fn count_block(&self, class: ClassKind, block: LogBlock) {
        let [count, bytes, write, alloc] = match class {
            ClassKind::Log => [
                &self.zil_itx_metaslab_slog_count,
                &self.zil_itx_metaslab_slog_bytes,
                &self.zil_itx_metaslab_slog_write,
                &self.zil_itx_metaslab_slog_alloc,
            ],
            _ => [
                &self.zil_itx_metaslab_normal_count,
                &self.zil_itx_metaslab_normal_bytes,
                &self.zil_itx_metaslab_normal_write,
                &self.zil_itx_metaslab_normal_alloc,
            ],
        };
        add(count, 1);
        add(bytes, block.records);
        add(write, block.written);
        add(alloc, block.allocated);
    }
}
