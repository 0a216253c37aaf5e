//! Overwriting free space with a pattern, so that a device has written all of itself once
//! (`zpool initialize`; spec 06, section 16; spec 07, section 17).

use crate::error::LeafFailure;
use crate::tree::VdevTree;
use crate::trim::LeafRange;
use bytes::Bytes;
use rzfs_blockdev::{BlockDevice, DeviceError, IoBuffer, IoOperation};
use rzfs_tunables::Tunables;
use std::io;
use std::sync::Arc;

/// What writes are whole multiples of.
const LARGEST_SECTOR: usize = 64 << 10;

/// The pattern as often as it goes into one write.
#[derive(Clone, Debug)]
pub struct InitialPattern(Bytes);

impl InitialPattern {
    /// Allocates it: 1 MiB, unless somebody has tuned that.
    ///
    /// # Errors
    /// The memory is not to be had.
    pub fn new(tunables: &Tunables) -> io::Result<Self> {
        let value = tunables.zfs_initialize_value;
        let mut buffer =
            IoBuffer::zeroed(tunables.zfs_initialize_chunk_size.next_multiple_of(LARGEST_SECTOR))?;
        let words = buffer.chunks_exact_mut(size_of::<u64>());
        words.for_each(|word| word.copy_from_slice(&value.to_ne_bytes()));
        Ok(Self(buffer.freeze()))
    }
}

/// What became of ranges that were to be overwritten.
#[derive(Clone, Default, Debug)]
pub struct InitializeReport {
    /// Bytes that were written.
    pub written: u64,
    /// Writes that failed; what they were for is left as it is.
    pub failures: Vec<LeafFailure>,
}

impl VdevTree {
    /// Overwrites ranges of devices, one write after the other, and waits for them. Leaves that
    /// are not there are passed over. Nothing is durable before [`VdevTree::flush`].
    ///
    /// Nothing may be allocated in the ranges meanwhile.
    #[must_use]
    pub fn initialize(&self, ranges: &[LeafRange], pattern: &InitialPattern) -> InitializeReport {
        let mut report = InitializeReport::default();
        for range in ranges {
            let device = self.find(range.leaf).and_then(|id| self.leaf(id)?.usable_device());
            let Some(device) = device else { continue };
            let end = range.position.saturating_add(range.len);
            let mut position = range.position;
            while position < end {
                let most = pattern.0.len();
                let room = usize::try_from(end - position).unwrap_or(most);
                let data = pattern.0.slice(..room.min(most));
                let len = data.len() as u64;
                match write(&device, position, data) {
                    Ok(()) => report.written = report.written.saturating_add(len),
                    Err(error) => report.failures.push(LeafFailure { leaf: range.leaf, error }),
                }
                position = position.saturating_add(len);
            }
        }
        report
    }
}

fn write(device: &Arc<dyn BlockDevice>, offset: u64, data: Bytes) -> Result<(), DeviceError> {
    device.perform(offset, IoOperation::Write(data)).map(drop)
}
