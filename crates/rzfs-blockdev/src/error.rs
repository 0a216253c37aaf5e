//! Why a device could not do what was asked of it.

use std::io;
use std::sync::Arc;

/// What a device can answer instead of doing what it was asked.
///
/// The sources that callers can rely on:
/// * `UnexpectedEof`: a read past the end;
/// * `ENOSPC`: a write or discard past the end;
/// * `EINVAL`: a write or discard that is not of whole logical sectors;
/// * `EROFS`: a write or discard on a device that is open for reading only;
/// * `EOPNOTSUPP`: a discard that the device cannot do;
/// * `ENXIO`: the device has gone.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{device}: {operation} of {len} bytes at offset {offset:#x}: {}", without_number(source))]
pub struct DeviceError {
    /// Name of the device.
    pub device: Arc<str>,
    /// `read`, `write`, `flush` or `discard`.
    pub operation: &'static str,
    /// Byte offset.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// What the system says.
    pub source: Arc<io::Error>,
}

impl DeviceError {
    /// The errno for the caller of a file system: the system's own, else `EIO`.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.source.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error())
    }
}

/// What the system says, without the number that Rust puts behind it.
#[must_use]
pub fn without_number(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}
