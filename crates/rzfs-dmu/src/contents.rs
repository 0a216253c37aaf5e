//! Memory for the contents of blocks, and its real cost.
//!
//! Devices need whole pages, and read large blocks in place. A small block in a page of its own
//! would need many times its size for as long as it is dirty or cached, so it gets a buffer of its
//! exact length: it is copied anyway when it is written together with its neighbours.

use bytes::Bytes;
use rzfs_blockdev::{BUFFER_ALIGNMENT, IoBuffer};
use std::io;
use std::ops::{Deref, DerefMut};

/// Overhead of a cached block in bytes: the owner of the bytes and the references to it, including
/// allocation rounding.
const SHARING: u64 = 128;

/// Overhead of a dirty block in bytes besides [`SHARING`]: its entries in the object's trees, and
/// what its txg needs to write it.
const DIRTYING: u64 = 384;

/// Bytes allocated by the system for a buffer of `len` bytes: allocators have four size classes for
/// each power of two.
#[must_use]
const fn allocated(len: usize) -> u64 {
    const SMALLEST: u64 = 64;
    let len = len as u64;
    if len <= SMALLEST {
        return SMALLEST;
    }
    let step = (1 << (len - 1).ilog2()) / 4;
    len.next_multiple_of(step)
}

/// Memory used by a shared block of `len` bytes.
pub(crate) const fn cached_cost(len: usize) -> u64 {
    allocated(len) + SHARING
}

/// Memory used by a dirty block of `len` bytes.
pub(crate) const fn dirty_cost(len: usize) -> u64 {
    cached_cost(len) + DIRTYING
}

/// The contents of a block under construction: whole pages where that wastes little.
#[derive(Debug)]
pub(crate) enum Contents {
    /// A small block.
    Short(Vec<u8>),
    /// A block that devices access in place.
    Pages(IoBuffer),
}

impl Contents {
    /// `len` bytes that begin with as much of `start` as fits, padded with zeros.
    ///
    /// # Errors
    /// [`io::ErrorKind::OutOfMemory`] when the memory cannot be allocated.
    pub(crate) fn padded(start: &[u8], len: usize) -> io::Result<Self> {
        let slack = len.next_multiple_of(BUFFER_ALIGNMENT) - len;
        if slack <= len / 8 {
            return IoBuffer::padded(start, len).map(Self::Pages);
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        bytes.extend_from_slice(start.get(..len).unwrap_or(start));
        bytes.resize(len, 0);
        Ok(Self::Short(bytes))
    }

    /// The contents, shared.
    pub(crate) fn freeze(self) -> Bytes {
        match self {
            Self::Short(bytes) => bytes.into(),
            Self::Pages(buffer) => buffer.freeze(),
        }
    }
}

impl Deref for Contents {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Short(bytes) => bytes,
            Self::Pages(buffer) => buffer,
        }
    }
}

impl DerefMut for Contents {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Short(bytes) => bytes,
            Self::Pages(buffer) => buffer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_blocks_have_buffers_of_their_length_and_large_ones_pages() {
        for (len, is_short) in
            [(512, true), (2560, true), (4096, false), (4608, true), (131_072, false)]
        {
            let contents = Contents::padded(&[7; 3], len).unwrap();
            assert_eq!(matches!(contents, Contents::Short(_)), is_short, "{len}");
            assert_eq!((contents.len(), &contents[..4]), (len, &[7, 7, 7, 0][..]));
            if let Contents::Short(bytes) = &contents {
                assert_eq!(bytes.capacity(), len);
            }
            assert_eq!(contents.freeze().len(), len);
        }
        assert_eq!(&*Contents::padded(&[7; 600], 512).unwrap(), &[7; 512]);
    }

    #[test]
    fn costs_are_little_more_than_what_is_needed() {
        assert_eq!([1, 512, 513, 640, 641, 4096].map(allocated), [64, 512, 640, 640, 768, 4096]);
        assert_eq!([131_072, 16 << 20].map(allocated), [131_072, 16 << 20]);
        assert_eq!(cached_cost(512), 640);
        assert_eq!(dirty_cost(512), 1024);
    }
}
