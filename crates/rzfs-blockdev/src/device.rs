//! The device trait and its requests.

use crate::{CompletionQueue, IoBuffer};
use bytes::Bytes;
use std::fmt;
use std::sync::Arc;

/// Size and sector sizes of a device, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceGeometry {
    /// Usable bytes.
    pub size: u64,
    /// Smallest unit of I/O, a power of two, at least 512.
    pub logical_sector: u32,
    /// Unit that the device writes without a read-modify-write, a power of two.
    pub physical_sector: u32,
}

/// What to do.
#[derive(Debug)]
pub enum IoOperation {
    /// Fill the buffer from the device.
    Read(IoBuffer),
    /// Write these bytes.
    Write(Bytes),
    /// Make all completed writes durable; the offset does not matter.
    Flush,
    /// Tell the device that `len` bytes are unused; what they read as afterwards is undefined.
    Discard {
        /// Bytes to discard.
        len: u64,
    },
}

/// One request of a batch.
#[derive(Debug)]
pub struct IoRequest {
    /// Handed back with the completion.
    pub token: u64,
    /// Byte offset on the device.
    pub offset: u64,
    /// What to do.
    pub operation: IoOperation,
}

/// What a device can answer instead of doing what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{device}: {operation} of {len} bytes at offset {offset:#x}: {source}")]
pub struct DeviceError {
    /// Name of the device.
    pub device: Arc<str>,
    /// `read`, `write`, `flush` or `discard`.
    pub operation: &'static str,
    /// Byte offset.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// What the system says; a read past the end is `UnexpectedEof`.
    pub source: Arc<std::io::Error>,
}

/// A device, file, or piece of memory with sectors.
///
/// Any offset and length within the size may be asked for: a device that needs alignment sees to
/// it itself (and does so without a copy when offset, length and buffer are aligned already).
pub trait BlockDevice: Send + Sync + fmt::Debug {
    /// The path or other name that messages show.
    fn name(&self) -> &str;

    /// Size and sector sizes.
    fn geometry(&self) -> DeviceGeometry;

    /// Starts all requests; each is answered exactly once on `completions`, in any order.
    fn submit(&self, requests: Vec<IoRequest>, completions: &Arc<CompletionQueue>);
}

/// Reads `len` bytes at `offset` and waits for them.
pub fn read_exact_at(
    device: &dyn BlockDevice,
    offset: u64,
    len: usize,
) -> Result<IoBuffer, DeviceError> {
    let fail = |source: std::io::Error| DeviceError {
        device: device.name().into(),
        operation: "read",
        offset,
        len: len as u64,
        source: Arc::new(source),
    };
    let buffer = IoBuffer::zeroed(len).map_err(fail)?;
    let completions = CompletionQueue::new();
    let request = IoRequest { token: 0, offset, operation: IoOperation::Read(buffer) };
    device.submit(vec![request], &completions);
    completions.wait().result?.ok_or_else(|| fail(std::io::ErrorKind::UnexpectedEof.into()))
}
