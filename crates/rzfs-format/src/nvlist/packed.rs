//! Packed bytes: reading them piece by piece, and sizes in them.

use super::limits::{MAX_SIZE, WHAT};
use super::value::NvValue;
use crate::FormatError;

/// Bytes of a packed list with a position in them.
pub(super) struct Cursor<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn remaining(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    pub(super) fn truncated(&self, len: usize) -> FormatError {
        let need = self.at.saturating_add(len);
        FormatError::Truncated { what: WHAT, need, have: self.bytes.len() }
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], FormatError> {
        let end = self.at.checked_add(len).ok_or_else(|| self.truncated(len))?;
        let taken = self.bytes.get(self.at..end).ok_or_else(|| self.truncated(len))?;
        self.at = end;
        Ok(taken)
    }

    /// The bytes of `count` elements of `width` bytes.
    pub(super) fn take_elements(
        &mut self,
        count: usize,
        width: usize,
    ) -> Result<&'a [u8], FormatError> {
        let len = count.checked_mul(width).ok_or_else(|| self.truncated(usize::MAX))?;
        self.take(len)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }
}

/// The pair's size in the native format without embedded lists; XDR pairs state it too.
pub(super) fn native_pair_size(name_len: usize, value: &NvValue) -> usize {
    value_offset(name_len) + value.native_size().next_multiple_of(8)
}

/// Where the value starts in a native pair, given the length of the name without NUL.
pub(super) const fn value_offset(name_len: usize) -> usize {
    (16 + name_len + 1).next_multiple_of(8)
}

/// A size as the format stores it.
pub(super) fn size_i32(size: usize) -> Result<u32, FormatError> {
    if size > MAX_SIZE {
        return Err(FormatError::invalid(WHAT, "size beyond 2 GiB"));
    }
    u32::try_from(size).map_err(|_| FormatError::invalid(WHAT, "size beyond 2 GiB"))
}
