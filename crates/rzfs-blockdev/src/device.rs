//! The device trait and its requests.

use crate::{CompletionQueue, DeviceError, IoBuffer, IoCompletion};
use bytes::Bytes;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

/// Size and sector sizes of a device, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceGeometry {
    /// Usable bytes.
    pub size: u64,
    /// Smallest unit that can be written, a power of two, at least 512.
    pub logical_sector: u32,
    /// Unit that the device writes without a read-modify-write, a power of two.
    pub physical_sector: u32,
}

/// The operation.
#[derive(Debug)]
pub enum IoOperation {
    /// Fill the buffer from the device.
    Read(IoBuffer),
    /// Write these bytes.
    Write(Bytes),
    /// Writes these pieces consecutively, as one write. The device copies what it cannot write in
    /// place; pieces of whole sectors in an [`IoBuffer`] need no copy.
    Gather(Vec<Bytes>),
    /// Make all completed writes durable; the offset does not matter.
    Flush,
    /// Tell the device that `len` bytes are unused; what they read as afterwards is undefined.
    Discard {
        /// Bytes to discard.
        len: u64,
    },
}

impl IoOperation {
    /// The word that messages use: `read`, `write`, `flush` or `discard`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Read(_) => "read",
            Self::Write(_) | Self::Gather(_) => "write",
            Self::Flush => "flush",
            Self::Discard { .. } => "discard",
        }
    }

    /// Bytes that are read, written or discarded; 0 for a flush.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Read(buffer) => buffer.len() as u64,
            Self::Write(bytes) => bytes.len() as u64,
            Self::Gather(pieces) => pieces.iter().map(|piece| piece.len() as u64).sum(),
            Self::Flush => 0,
            Self::Discard { len } => *len,
        }
    }

    /// Whether no byte is read, written or discarded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One request of a batch.
#[derive(Debug)]
pub struct IoRequest {
    /// Handed back with the completion.
    pub token: u64,
    /// Byte offset on the device.
    pub offset: u64,
    /// The operation.
    pub operation: IoOperation,
}

/// A device, file, or piece of memory with sectors.
///
/// Any offset and length within the size may be read: a device that needs alignment handles that
/// itself (without a copy when the offset is already aligned). Writes and discards
/// are of whole logical sectors. A request for no bytes succeeds anywhere within the size.
pub trait BlockDevice: Send + Sync + fmt::Debug {
    /// The path or other name shown in messages.
    fn name(&self) -> &str;

    /// Size and sector sizes.
    fn geometry(&self) -> DeviceGeometry;

    /// A buffer to read into, of undefined content: one that the device fills most cheaply. Best
    /// for short-lived data.
    ///
    /// # Errors
    /// [`io::ErrorKind::OutOfMemory`] when the memory cannot be allocated.
    fn buffer(&self, len: usize) -> io::Result<IoBuffer> {
        IoBuffer::zeroed(len)
    }

    /// Starts all requests; each completes exactly once on `completions`, in any order.
    ///
    /// Never waits for other requests: what does not fit in the device's queue stays with the
    /// device until there is room.
    fn submit(&self, requests: Vec<IoRequest>, completions: &Arc<CompletionQueue>);

    /// Performs one operation and waits for it. Best where nothing else can be done meanwhile: a
    /// device may use the calling thread, which saves waking another one.
    ///
    /// # Errors
    /// The error that the completion of such a request would carry.
    fn perform(
        &self,
        offset: u64,
        operation: IoOperation,
    ) -> Result<Option<IoBuffer>, DeviceError> {
        let completions = CompletionQueue::new();
        self.submit(vec![IoRequest { token: 0, offset, operation }], &completions);
        completions.wait().result
    }

    /// Whether the opened file is still accessible, as far as that can be determined without
    /// transfers: reads may come from the page cache when the file system is gone.
    fn is_reachable(&self) -> bool {
        true
    }

    /// Whether it is a file whose last name was removed since it was opened: its contents are lost
    /// when the device is dropped.
    fn is_deleted(&self) -> bool {
        false
    }
}

/// Requests to one device.
pub type Batch<D> = (D, Vec<IoRequest>);

/// Starts requests on any number of devices, for a caller that does nothing but wait next, for
/// `awaited` completions in all: these and what it has started before. If that is a single one, it
/// is performed here and now.
pub fn submit_awaited<D>(batches: Vec<Batch<D>>, awaited: usize, completions: &Arc<CompletionQueue>)
where
    D: Deref<Target: BlockDevice>,
{
    for (device, mut requests) in batches {
        match requests.pop() {
            Some(IoRequest { token, offset, operation }) if awaited == 1 => {
                let result = device.perform(offset, operation);
                completions.push(IoCompletion { token, result });
            }
            last => {
                requests.extend(last);
                device.submit(requests, completions);
            }
        }
    }
}

/// Reads `len` bytes at `offset` and waits for them.
///
/// # Errors
/// The error of the device, or that `len` bytes of memory cannot be allocated.
pub fn read_exact_at(
    device: &dyn BlockDevice,
    offset: u64,
    len: usize,
) -> Result<IoBuffer, DeviceError> {
    let fail = |source: io::Error| DeviceError {
        device: device.name().into(),
        operation: "read",
        offset,
        len: len as u64,
        source: Arc::new(source),
    };
    let buffer = device.buffer(len).map_err(fail)?;
    let read = device.perform(offset, IoOperation::Read(buffer))?;
    read.ok_or_else(|| fail(io::ErrorKind::UnexpectedEof.into()))
}

/// Refuses requests outside the device or, for writes and discards, not of whole sectors.
pub(crate) fn check_range(
    geometry: &DeviceGeometry,
    offset: u64,
    operation: &IoOperation,
) -> io::Result<()> {
    let len = operation.len();
    let inside = offset.checked_add(len).is_some_and(|end| end <= geometry.size);
    match operation {
        IoOperation::Flush => Ok(()),
        IoOperation::Read(_) if inside => Ok(()),
        IoOperation::Read(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        IoOperation::Write(_) | IoOperation::Gather(_) | IoOperation::Discard { .. } => {
            let sector_mask = u64::from(geometry.logical_sector) - 1;
            if (offset | len) & sector_mask != 0 {
                Err(rustix::io::Errno::INVAL.into())
            } else if inside {
                Ok(())
            } else {
                Err(rustix::io::Errno::NOSPC.into())
            }
        }
    }
}
