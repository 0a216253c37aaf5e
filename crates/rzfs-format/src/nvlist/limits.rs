//! Limits of packed lists.

/// Deepest nesting that is decoded (OpenZFS's user-space tools have the same bound).
pub const MAX_DECODE_DEPTH: usize = 100;

/// Deepest nesting that is encoded: what OpenZFS's kernel module still reads.
pub const MAX_ENCODE_DEPTH: usize = 20;

/// Longest name in bytes, so that it and its NUL fit the native format's 16-bit length.
pub const MAX_NAME_LEN: usize = 32_766;

/// No packed list, pair or value is longer: the format's sizes are signed 32-bit numbers.
pub(super) const MAX_SIZE: usize = i32::MAX as usize;

/// Bytes of the header of a packed list.
pub(super) const HEADER_SIZE: usize = 4;

pub(super) const WHAT: &str = "nvlist";
