//! Counters of a vdev (spec 07, section 19).

use std::sync::atomic::{AtomicU64, Ordering};

/// Errors of a vdev as `zpool status` shows them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ErrorCounts {
    /// Reads that failed.
    pub read: u64,
    /// Writes that failed.
    pub write: u64,
    /// Data that differed from what was written.
    pub checksum: u64,
}

/// Successful I/O of a vdev.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct IoCounts {
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
}

/// The counters behind [`ErrorCounts`] and [`IoCounts`].
#[derive(Default, Debug)]
pub(crate) struct Counters {
    read_errors: AtomicU64,
    write_errors: AtomicU64,
    checksum_errors: AtomicU64,
    reads: AtomicU64,
    bytes_read: AtomicU64,
    writes: AtomicU64,
    bytes_written: AtomicU64,
}

impl Counters {
    pub(crate) fn count_read_error(&self) {
        self.read_errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_checksum_error(&self) {
        self.checksum_errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_read(&self, bytes: u64) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn count_write_error(&self) {
        self.write_errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_write(&self, bytes: u64) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.bytes_written.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn errors(&self) -> ErrorCounts {
        ErrorCounts {
            read: self.read_errors.load(Ordering::Relaxed),
            write: self.write_errors.load(Ordering::Relaxed),
            checksum: self.checksum_errors.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn io(&self) -> IoCounts {
        IoCounts {
            reads: self.reads.load(Ordering::Relaxed),
            bytes_read: self.bytes_read.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            bytes_written: self.bytes_written.load(Ordering::Relaxed),
        }
    }

    /// Resets all errors (`zpool clear`).
    pub(crate) fn clear_errors(&self) {
        for counter in [&self.read_errors, &self.write_errors, &self.checksum_errors] {
            counter.store(0, Ordering::Relaxed);
        }
    }
}
