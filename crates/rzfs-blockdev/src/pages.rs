//! Memory for buffers, in pages.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

/// Alignment of every [`IoBuffer`](crate::IoBuffer) in bytes: enough for O_DIRECT on any device.
pub const BUFFER_ALIGNMENT: usize = 4096;

#[derive(Clone, FromBytes, IntoBytes, Immutable)]
#[repr(C, align(4096))]
pub(crate) struct Page([u8; BUFFER_ALIGNMENT]);

/// `count` pages of zeros.
pub(crate) fn zeroed_pages(count: usize) -> std::io::Result<Box<[Page]>> {
    <[Page]>::new_box_zeroed_with_elems(count).map_err(|_| std::io::ErrorKind::OutOfMemory.into())
}
