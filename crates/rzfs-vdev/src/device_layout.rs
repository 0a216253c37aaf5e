//! What lies where on the device of a leaf (spec 07, section 3.1).
//!
//! ```text
//! 0         256 K     512 K            4 M                     size - 512 K   size - 256 K
//! | label 0 | label 1 | boot area      | allocatable space ... | label 2      | label 3      |
//!                     ^ 512 K: scratch area of a RAID-Z expansion
//! ```
//! "Size" is the device's size rounded down to whole labels. Positions here are bytes on the
//! device; offsets in the allocatable space are 4 MiB less.

/// Bytes of a label.
pub const LABEL_SIZE: u64 = 256 << 10;

/// Labels of a leaf.
pub const LABELS: usize = 4;

/// Position of the allocatable space.
pub const DATA_START: u64 = 4 << 20;

/// Position of the boot area, which a RAID-Z expansion uses as scratch area.
pub const SCRATCH_START: u64 = 2 * LABEL_SIZE;

/// Bytes of the boot area.
pub const SCRATCH_SIZE: u64 = DATA_START - SCRATCH_START;

/// Bytes of a device that are not allocatable.
pub const OVERHEAD: u64 = DATA_START + 2 * LABEL_SIZE;

/// The smallest device that can be a leaf.
pub const MIN_DEVICE_SIZE: u64 = 64 << 20;

/// The part of a device of `device_size` bytes that a leaf uses: whole labels.
#[must_use]
pub const fn usable_size(device_size: u64) -> u64 {
    device_size / LABEL_SIZE * LABEL_SIZE
}

/// Allocatable bytes of a device, none if it is too small for a leaf.
#[must_use]
pub const fn allocatable_size(device_size: u64) -> Option<u64> {
    if device_size < MIN_DEVICE_SIZE { None } else { Some(usable_size(device_size) - OVERHEAD) }
}

/// Positions of the four labels, none if the device is too small for them.
#[must_use]
pub const fn label_positions(device_size: u64) -> Option<[u64; LABELS]> {
    let size = usable_size(device_size);
    if size < OVERHEAD {
        return None;
    }
    Some([0, LABEL_SIZE, size - 2 * LABEL_SIZE, size - LABEL_SIZE])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_of_96_mib_has_the_size_that_openzfs_gives_it() {
        assert_eq!(allocatable_size(96 << 20), Some(0x5b8_0000));
        assert_eq!(allocatable_size((96 << 20) + LABEL_SIZE - 1), Some(0x5b8_0000));
        assert_eq!(label_positions(96 << 20), Some([0, 0x4_0000, 0x5f8_0000, 0x5fc_0000]));
    }

    #[test]
    fn small_devices_are_no_leaves() {
        assert_eq!(allocatable_size(MIN_DEVICE_SIZE - 1), None);
        assert_eq!(label_positions(OVERHEAD - 1), None);
        assert!(allocatable_size(MIN_DEVICE_SIZE).is_some());
        assert_eq!(SCRATCH_SIZE, 0x38_0000);
    }
}
