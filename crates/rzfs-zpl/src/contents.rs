//! Contents of files and volumes, as parts of blocks.

use crate::error::ZplError;
use crate::object::FileObject;
use crate::read_ahead::Streams;
use bytes::Bytes;

/// Maximum bytes returned at once.
const MAX_SEGMENT_BYTES: u64 = 32 << 20;

/// Parts of blocks, at most 32 MiB; the caller makes sure that `len` bytes from `offset` on do not
/// extend beyond the end.
pub(crate) fn segments<O: FileObject>(
    object: &O,
    streams: &Streams,
    offset: u64,
    len: u64,
) -> Result<Vec<Bytes>, ZplError> {
    let len = len.min(MAX_SEGMENT_BYTES);
    if len == 0 {
        return Ok(Vec::new());
    }
    let block_size = u64::from(object.data_block_size()?);
    let end = offset.saturating_add(len);
    let blocks = offset / block_size..end.div_ceil(block_size);
    let read = object.read_blocks(blocks.clone(), |outcome| {
        // Prefetching starts before this thread waits.
        streams.note_read(object, blocks.clone(), outcome);
    })?;
    let mut segments = Vec::with_capacity((blocks.end - blocks.start) as usize);
    for (number, block) in blocks.zip(read) {
        let data = block?.data;
        let start = number.saturating_mul(block_size);
        let from = offset.saturating_sub(start) as usize;
        let to = end.saturating_sub(start).min(data.len() as u64) as usize;
        if from < to {
            segments.push(data.slice(from..to));
        }
    }
    Ok(segments)
}

/// Fills a buffer with the contents from `offset` on, which must extend that far.
pub(crate) fn fill<O: FileObject>(
    object: &O,
    streams: &Streams,
    offset: u64,
    mut buffer: &mut [u8],
) -> Result<(), ZplError> {
    let mut at = offset;
    while !buffer.is_empty() {
        for segment in segments(object, streams, at, buffer.len() as u64)? {
            let (now, later) = buffer.split_at_mut(segment.len().min(buffer.len()));
            now.copy_from_slice(segment.get(..now.len()).unwrap_or_default());
            at = at.saturating_add(now.len() as u64);
            buffer = later;
        }
    }
    Ok(())
}
