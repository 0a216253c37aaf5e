//! Buffers that a device can fill without copying.

use crate::pages::{BUFFER_ALIGNMENT, Page, zeroed_pages};
use crate::pool::{BufferPool, Slot};
use bytes::Bytes;
use std::fmt;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// An owned, page-aligned buffer of any length; frozen into shared [`Bytes`] once filled.
pub struct IoBuffer {
    pages: Box<[Page]>,
    len: usize,
    /// Where the pages go when the buffer is dropped.
    home: Option<(Arc<BufferPool>, Slot)>,
}

impl IoBuffer {
    /// A buffer of `len` zero bytes.
    ///
    /// # Errors
    /// [`std::io::ErrorKind::OutOfMemory`] when the memory cannot be allocated.
    pub fn zeroed(len: usize) -> std::io::Result<Self> {
        Ok(Self { pages: zeroed_pages(len.div_ceil(BUFFER_ALIGNMENT))?, len, home: None })
    }

    /// A buffer of `len` bytes that begins with as much of `data` as fits, padded with zeros.
    ///
    /// # Errors
    /// [`std::io::ErrorKind::OutOfMemory`] when the memory cannot be allocated.
    pub fn padded(data: &[u8], len: usize) -> std::io::Result<Self> {
        let mut buffer = Self::zeroed(len)?;
        let kept = data.len().min(len);
        buffer[..kept].copy_from_slice(&data[..kept]);
        Ok(buffer)
    }

    /// A buffer of `len` bytes of undefined content that returns to the pool, if that has one.
    pub(crate) fn pooled(pool: &Arc<BufferPool>, len: usize) -> Option<Self> {
        let (slot, pages) = pool.take(len)?;
        Some(Self { pages, len, home: Some((Arc::clone(pool), slot)) })
    }

    /// A buffer of `len` bytes of undefined content, from the pool if that has one.
    pub(crate) fn for_reading(pool: &Arc<BufferPool>, len: usize) -> std::io::Result<Self> {
        Self::pooled(pool, len).map_or_else(|| Self::zeroed(len), Ok)
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is zero.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Truncates the buffer to `len`; a longer `len` changes nothing.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// The first `len` bytes of the whole pages that the buffer occupies, which may be more than
    /// its own length: room for a device that transfers whole sectors only.
    pub(crate) fn padded_mut(&mut self, len: usize) -> Option<&mut [u8]> {
        self.pages.as_mut_bytes().get_mut(..len)
    }

    /// The buffer's slot, if it is from this pool.
    pub(crate) fn slot_of(&self, pool: &Arc<BufferPool>) -> Option<Slot> {
        let (home, slot) = self.home.as_ref()?;
        Arc::ptr_eq(home, pool).then_some(*slot)
    }

    /// All pages, as one piece.
    pub(crate) fn whole_mut(&mut self) -> &mut [u8] {
        self.pages.as_mut_bytes()
    }

    /// Makes the buffer immutable and shared, without copying.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Drop for IoBuffer {
    fn drop(&mut self) {
        if let Some((pool, slot)) = self.home.take() {
            pool.put_back(slot, std::mem::take(&mut self.pages));
        }
    }
}

impl AsRef<[u8]> for IoBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.pages.as_bytes()[..self.len]
    }
}

impl AsMut<[u8]> for IoBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.pages.as_mut_bytes()[..self.len]
    }
}

impl std::ops::Deref for IoBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.as_ref()
    }
}

impl std::ops::DerefMut for IoBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.as_mut()
    }
}

impl fmt::Debug for IoBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoBuffer({} bytes)", self.len)
    }
}
