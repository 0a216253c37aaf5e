//! Damage to devices, which checksums must detect.

use crate::random::Random;
use rzfs_blockdev::{BlockDevice, CompletionQueue, DeviceGeometry, IoRequest, read_exact_at};
use rzfs_testkit::{Damage, OverlayDevice};
use std::ops::Range;
use std::sync::Arc;

const SECTOR: u64 = 512;

/// Damages a device at a place that is read: `reads` are such places.
pub(crate) fn damage_device(device: &OverlayDevice, reads: &[Range<u64>], random: &mut Random) {
    let Some(place) = random.pick(reads).cloned() else { return };
    let sectors = (place.end - place.start).div_ceil(SECTOR);
    let start = place.start + random.below(sectors) * SECTOR;
    let most = if random.once_in(3) { sectors } else { 2 };
    let count = 1 + random.below(most);
    let range = start..(start + count * SECTOR).min(device.geometry().size);
    if range.is_empty() {
        return;
    }
    match random.below(7) {
        0 => flip_bit(device, &range, random),
        1 => device.damage(range, Damage::Bytes(vec![0])),
        2 => device.damage(range, Damage::Garbage { seed: random.draw() }),
        // A torn write: the first half of a sector is right.
        3 => device
            .damage(range.start + SECTOR / 2..range.end, Damage::Garbage { seed: random.draw() }),
        4 | 5 => {
            let from = random.pick(reads).map_or(0, |other| other.start);
            let last = device.geometry().size - (range.end - range.start);
            device.damage(range, Damage::From(from.min(last)));
        }
        _ => device.damage(range, Damage::Unreadable),
    }
}

fn flip_bit(device: &OverlayDevice, range: &Range<u64>, random: &mut Random) {
    let at = range.start + random.below(range.end - range.start);
    if let Ok(byte) = read_exact_at(device, at, 1) {
        let flipped = byte.first().map_or(0, |byte| byte ^ (1 << random.below(8)));
        device.damage(at..at + 1, Damage::Bytes(vec![flipped]));
    }
}

/// A device that reports a shorter length.
#[derive(Debug)]
pub(crate) struct Truncated {
    pub(crate) base: Arc<dyn BlockDevice>,
    pub(crate) size: u64,
}

impl BlockDevice for Truncated {
    fn name(&self) -> &str {
        self.base.name()
    }

    fn geometry(&self) -> DeviceGeometry {
        DeviceGeometry { size: self.size, ..self.base.geometry() }
    }

    fn submit(&self, requests: Vec<IoRequest>, completions: &Arc<CompletionQueue>) {
        self.base.submit(requests, completions);
    }
}
