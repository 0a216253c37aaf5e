//! A device in memory.

use crate::IoRequest;
use crate::device::check_range;
use crate::reply::Reply;
use crate::{Access, BlockDevice, CompletionQueue, DeviceGeometry, IoBuffer, IoOperation};
use bytes::Bytes;
use parking_lot::RwLock;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Logical and physical sector of a memory device, in bytes.
const SECTOR: u32 = 512;

/// A device whose content is in memory; completes requests before `submit` returns.
pub struct MemoryDevice {
    name: Arc<str>,
    access: Access,
    geometry: DeviceGeometry,
    content: RwLock<Vec<u8>>,
}

impl MemoryDevice {
    /// A device with this content; sectors are of 512 bytes.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, content: Vec<u8>, access: Access) -> Self {
        let geometry = DeviceGeometry {
            size: content.len() as u64,
            logical_sector: SECTOR,
            physical_sector: SECTOR,
        };
        Self { name: name.into(), access, geometry, content: RwLock::new(content) }
    }

    /// A read-only device; does not copy bytes without other holders.
    #[must_use]
    pub fn from_bytes(name: impl Into<Arc<str>>, content: Bytes) -> Self {
        Self::new(name, content.into(), Access::ReadOnly)
    }

    /// A copy of the present content.
    #[must_use]
    pub fn content(&self) -> Vec<u8> {
        self.content.read().clone()
    }

    fn perform(&self, request: IoRequest) -> io::Result<Option<IoBuffer>> {
        self.access.check(&request.operation)?;
        check_range(&self.geometry, request.offset, &request.operation)?;
        let len = usize::try_from(request.operation.len()).map_err(io::Error::other)?;
        let start = usize::try_from(request.offset).map_err(io::Error::other)?;
        let end = start.saturating_add(len);
        let outside = || io::Error::from(io::ErrorKind::UnexpectedEof);
        match request.operation {
            IoOperation::Read(mut buffer) => {
                let content = self.content.read();
                buffer.copy_from_slice(content.get(start..end).ok_or_else(outside)?);
                return Ok(Some(buffer));
            }
            IoOperation::Write(bytes) => {
                let mut content = self.content.write();
                content.get_mut(start..end).ok_or_else(outside)?.copy_from_slice(&bytes);
            }
            IoOperation::Gather(pieces) => {
                let mut content = self.content.write();
                let mut rest = content.get_mut(start..end).ok_or_else(outside)?;
                for piece in pieces {
                    let (now, later) = rest.split_at_mut(piece.len());
                    now.copy_from_slice(&piece);
                    rest = later;
                }
            }
            IoOperation::Discard { .. } => {
                self.content.write().get_mut(start..end).ok_or_else(outside)?.fill(0);
            }
            IoOperation::Flush => {}
        }
        Ok(None)
    }
}

impl BlockDevice for MemoryDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn geometry(&self) -> DeviceGeometry {
        self.geometry
    }

    fn submit(&self, requests: Vec<IoRequest>, completions: &Arc<CompletionQueue>) {
        for request in requests {
            let reply = Reply::new(&self.name, &request, completions);
            reply.answer(self.perform(request));
        }
    }
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryDevice({}, {} bytes, {:?})", self.name, self.geometry.size, self.access)
    }
}
