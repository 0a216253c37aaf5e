//! Why a device operation failed.

use std::io;
use std::sync::Arc;

/// The error of a device operation.
///
/// Sources that callers can rely on:
/// * `UnexpectedEof`: a read past the end;
/// * `ENOSPC`: a write or discard past the end;
/// * `EINVAL`: a write or discard that is not of whole logical sectors;
/// * `EROFS`: a write or discard on a device that is open for reading only;
/// * `EOPNOTSUPP`: a discard that the device does not support;
/// * `ENXIO`: the device is gone.
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
    /// The error of the system.
    pub source: Arc<io::Error>,
}

impl DeviceError {
    /// The errno for callers of a file system: the system's own, else `EIO`.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.source.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error())
    }
}

/// The system's message, without the number appended by Rust.
#[must_use]
pub fn without_number(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}
