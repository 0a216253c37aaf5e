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

/// Writes are multiples of this.
const LARGEST_SECTOR: usize = 64 << 10;

/// As many repetitions of the pattern as fit in one write.
#[derive(Clone, Debug)]
pub struct InitialPattern(Bytes);

impl InitialPattern {
    /// Allocates it: 1 MiB unless tuned.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub fn new(tunables: &Tunables) -> io::Result<Self> {
        let value = tunables.zfs_initialize_value;
        let mut buffer =
            IoBuffer::zeroed(tunables.zfs_initialize_chunk_size.next_multiple_of(LARGEST_SECTOR))?;
        let words = buffer.chunks_exact_mut(size_of::<u64>());
        words.for_each(|word| word.copy_from_slice(&value.to_ne_bytes()));
        Ok(Self(buffer.freeze()))
    }
}

/// The result of overwriting ranges.
#[derive(Clone, Default, Debug)]
pub struct InitializeReport {
    /// Bytes that were written.
    pub written: u64,
    /// Failed writes; their ranges are unchanged.
    pub failures: Vec<LeafFailure>,
}

impl VdevTree {
    /// Overwrites ranges of devices, one write after the other, and waits for them. Missing leaves
    /// are skipped. Nothing is durable before [`VdevTree::flush`].
    ///
    /// The ranges must stay unallocated meanwhile.
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
