//! Counters of a dataset: OpenZFS's `objset-0x...`.

use std::sync::atomic::Ordering;

rzfs_kstat::kstat! {
    /// User operations on a file system so far, named as in OpenZFS's kstats `objset-*`.
    pub struct ObjsetStats = "objset", counted by pub struct ObjsetCounters {
        /// Writes to files.
        writes: Counter Count,
        /// Bytes written to files.
        nwritten: Counter Bytes,
        /// Reads of files.
        reads: Counter Count,
        /// Bytes read from files.
        nread: Counter Bytes,
        /// Files that lost their last name.
        nunlinks: Counter Count,
        /// Files freed after losing their last name.
        nunlinked: Counter Count,
    }
}

impl ObjsetCounters {
    /// Counts a read of this many bytes.
    pub fn count_read(&self, bytes: u64) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.nread.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a write of this many bytes.
    pub fn count_write(&self, bytes: u64) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.nwritten.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a file that lost its last name.
    pub fn count_unlinked(&self) {
        self.nunlinks.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a file freed after losing its last name.
    pub fn count_freed(&self) {
        self.nunlinked.fetch_add(1, Ordering::Relaxed);
    }
}
