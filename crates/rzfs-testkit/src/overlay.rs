//! Damaged devices.

use parking_lot::{Mutex, RwLock};
use rzfs_blockdev::{
    BlockDevice, CompletionQueue, DeviceError, DeviceGeometry, IoBuffer, IoCompletion, IoOperation,
    IoRequest, read_exact_at,
};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Linux's EIO.
const EIO: i32 = 5;

/// What is wrong with a range of a device.
#[derive(Clone, Debug)]
pub enum Damage {
    /// Other bytes, the same ones at every reading.
    Garbage {
        /// Which ones.
        seed: u64,
    },
    /// These bytes, repeated.
    Bytes(Vec<u8>),
    /// The range reads like the one that begins here.
    From(u64),
    /// Reading any of it fails with EIO.
    Unreadable,
}

/// A device that reads like another one but for damaged ranges; it cannot be written. Where
/// damage overlaps, the youngest counts.
#[derive(Debug)]
pub struct OverlayDevice {
    base: Arc<dyn BlockDevice>,
    damaged: RwLock<Damaged>,
    /// Reads since the last query.
    reads: Mutex<Vec<Range<u64>>>,
}

/// Disjoint ranges by their starts: end, start of the damage, damage.
type Damaged = BTreeMap<u64, (u64, u64, Damage)>;

impl OverlayDevice {
    /// A device that reads like `base`.
    #[must_use]
    pub fn new(base: Arc<dyn BlockDevice>) -> Arc<Self> {
        Arc::new(Self { base, damaged: RwLock::default(), reads: Mutex::default() })
    }

    /// Damages a range of bytes.
    pub fn damage(&self, range: Range<u64>, damage: Damage) {
        let mut damaged = self.damaged.write();
        cut_out(&mut damaged, &range);
        if !range.is_empty() {
            damaged.insert(range.start, (range.end, range.start, damage));
        }
    }

    /// The ranges that are damaged, in order.
    #[must_use]
    pub fn damaged_ranges(&self) -> Vec<Range<u64>> {
        self.damaged.read().iter().map(|(start, (end, ..))| *start..*end).collect()
    }

    /// Makes everything good again.
    pub fn heal(&self) {
        self.damaged.write().clear();
    }

    /// The ranges that were read since the last call.
    #[must_use]
    pub fn take_reads(&self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.reads.lock())
    }

    fn read(&self, offset: u64, len: usize) -> Result<IoBuffer, DeviceError> {
        let end = offset.saturating_add(len as u64);
        self.reads.lock().push(offset..end);
        let mut buffer = read_exact_at(&*self.base, offset, len)?;
        let damaged = self.damaged.read();
        let first = damaged.range(..=offset).next_back().map_or(offset, |(start, _)| *start);
        for (start, (stop, origin, damage)) in damaged.range(first..end) {
            let (from, to) = ((*start).max(offset), (*stop).min(end));
            if from < to {
                let part = &mut buffer[(from - offset) as usize..(to - offset) as usize];
                self.spoil(part, from, from - origin, damage)?;
            }
        }
        Ok(buffer)
    }

    /// Puts the damaged bytes in place: those from `offset` on, `inside` bytes behind the start
    /// of the damage.
    fn spoil(
        &self,
        part: &mut [u8],
        offset: u64,
        inside: u64,
        damage: &Damage,
    ) -> Result<(), DeviceError> {
        match damage {
            Damage::Garbage { seed } => {
                for (byte, at) in part.iter_mut().zip(offset..) {
                    *byte = noise(*seed, at);
                }
            }
            Damage::Bytes(bytes) => {
                let skip = inside as usize % bytes.len().max(1);
                for (byte, other) in part.iter_mut().zip(bytes.iter().cycle().skip(skip)) {
                    *byte = *other;
                }
            }
            Damage::From(start) => {
                part.copy_from_slice(&read_exact_at(&*self.base, start + inside, part.len())?);
            }
            Damage::Unreadable => {
                return Err(DeviceError {
                    device: self.base.name().into(),
                    operation: "read",
                    offset,
                    len: part.len() as u64,
                    source: Arc::new(io::Error::from_raw_os_error(EIO)),
                });
            }
        }
        Ok(())
    }
}

/// Leaves nothing in `range`.
fn cut_out(damaged: &mut Damaged, range: &Range<u64>) {
    let first = damaged.range(..=range.start).next_back().map_or(range.start, |(start, _)| *start);
    let hit: Vec<u64> = damaged
        .range(first..range.end.max(first))
        .filter(|(_, (end, ..))| *end > range.start)
        .map(|(start, _)| *start)
        .collect();
    for start in hit {
        let Some((end, origin, damage)) = damaged.remove(&start) else { continue };
        if start < range.start {
            damaged.insert(start, (range.start, origin, damage.clone()));
        }
        if end > range.end {
            damaged.insert(range.end, (end, origin, damage));
        }
    }
}

/// A byte that depends on its place.
fn noise(seed: u64, at: u64) -> u8 {
    let mixed = (seed ^ at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 56) as u8
}

impl BlockDevice for OverlayDevice {
    fn name(&self) -> &str {
        self.base.name()
    }

    fn geometry(&self) -> DeviceGeometry {
        self.base.geometry()
    }

    fn submit(&self, requests: Vec<IoRequest>, completions: &Arc<CompletionQueue>) {
        for IoRequest { token, offset, operation } in requests {
            let result = match operation {
                IoOperation::Read(buffer) => self.read(offset, buffer.len()).map(Some),
                other => Err(DeviceError {
                    device: self.base.name().into(),
                    operation: other.name(),
                    offset,
                    len: other.len(),
                    source: Arc::new(io::ErrorKind::ReadOnlyFilesystem.into()),
                }),
            };
            completions.push(IoCompletion { token, result });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_blockdev::MemoryDevice;

    fn bytes(device: &OverlayDevice, range: Range<u64>) -> Vec<u8> {
        let len = (range.end - range.start) as usize;
        read_exact_at(device, range.start, len).unwrap().to_vec()
    }

    #[test]
    fn the_youngest_damage_counts() {
        let content: Vec<u8> = (0..=255).cycle().take(4096).collect();
        let device =
            OverlayDevice::new(Arc::new(MemoryDevice::from_bytes("m", content.clone().into())));
        device.damage(100..200, Damage::Bytes(vec![1, 2, 3]));
        device.damage(150..160, Damage::From(10));
        let seen = bytes(&device, 0..4096);
        assert_eq!(seen[..100], content[..100]);
        assert_eq!(seen[100..104], [1, 2, 3, 1]);
        assert_eq!(seen[150..160], content[10..20]);
        // The damage continues after it as if nothing had been between.
        assert_eq!(seen[160], [1, 2, 3][60 % 3]);
        assert_eq!(seen[200..], content[200..]);
        assert_eq!(bytes(&device, 155..165), seen[155..165]);
        device.damage(0..4096, Damage::Garbage { seed: 7 });
        let garbage = bytes(&device, 0..4096);
        assert_eq!(bytes(&device, 1000..2000), garbage[1000..2000]);
        assert!(garbage.iter().zip(&content).filter(|(a, b)| a == b).count() < 100);
        device.damage(512..1024, Damage::Unreadable);
        assert!(read_exact_at(&*device, 0, 513).is_err());
        assert!(read_exact_at(&*device, 0, 512).is_ok());
        device.heal();
        assert_eq!(bytes(&device, 0..4096), content);
    }
}
