//! The system operations of a transfer.

use std::io::IoSlice;

/// Maximum bytes per request; Linux itself stops a little below 2 GiB.
pub(super) const MAX_STEP: usize = 1 << 30;

/// The next system operation.
#[derive(Debug)]
pub(crate) enum Step<'a> {
    Read { offset: u64, buffer: &'a mut [u8] },
    Write { offset: u64, bytes: &'a [u8] },
    Gather { offset: u64, slices: &'a [IoSlice<'a>] },
    Flush,
    Discard { offset: u64, len: u64 },
}
