//! What is counted about a dataset: OpenZFS's `objset-0x...`.

use std::sync::atomic::Ordering;

rzfs_kstat::kstat! {
    /// What users did to a file system, at one moment, with the names of OpenZFS's kstats `objset-*`.
    pub struct ObjsetStats = "objset", counted by pub struct ObjsetCounters {
        /// Writes to files.
        writes: Counter Count,
        /// Bytes written to files.
        nwritten: Counter Bytes,
        /// Reads of files.
        reads: Counter Count,
        /// Bytes read from files.
        nread: Counter Bytes,
        /// Files that have lost their last names.
        nunlinks: Counter Count,
        /// Files that had lost their last names and were freed.
        nunlinked: Counter Count,
    }
}

impl ObjsetCounters {
    /// Counts a read of so many bytes.
    pub fn count_read(&self, bytes: u64) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.nread.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a write of so many bytes.
    pub fn count_write(&self, bytes: u64) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.nwritten.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a file that has lost its last name.
    pub fn count_unlinked(&self) {
        self.nunlinks.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a file that had lost its last name and is freed.
    pub fn count_freed(&self) {
        self.nunlinked.fetch_add(1, Ordering::Relaxed);
    }
}
