//! Streams that have their length in front.

/// The payload behind a big-endian 32-bit length at the start of `src` and `gap` more bytes.
pub(super) fn framed(src: &[u8], gap: usize) -> Result<&[u8], &'static str> {
    let (length, rest) = src.split_first_chunk().ok_or("no length")?;
    let length = u32::from_be_bytes(*length) as usize;
    rest.get(gap..).and_then(|rest| rest.get(..length)).ok_or("longer than the block")
}
