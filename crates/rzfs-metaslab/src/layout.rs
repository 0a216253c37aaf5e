//! The layout of a new vdev's metaslabs, and the slop space of a pool (spec 06, sections 5.3 and
//! 21.3).

use rzfs_tunables::Tunables;

/// Parameters of a new vdev's metaslab size, named as in OpenZFS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LayoutLimits {
    /// `zfs_vdev_default_ms_count`: metaslabs that a vdev should not exceed.
    pub default_count: u64,
    /// `zfs_vdev_default_ms_shift`: log2 of the size that is taken while the number is fine.
    pub default_shift: u32,
    /// `zfs_vdev_min_ms_count`: metaslabs that a vdev should have at least.
    pub min_count: u64,
    /// `zfs_vdev_max_ms_shift`: log2 of the largest size, until there are too many.
    pub max_shift: u32,
    /// `zfs_vdev_ms_count_limit`: most metaslabs.
    pub count_limit: u64,
}

impl From<&Tunables> for LayoutLimits {
    fn from(tunables: &Tunables) -> Self {
        Self {
            default_count: tunables.zfs_vdev_default_ms_count,
            default_shift: tunables.zfs_vdev_default_ms_shift,
            min_count: tunables.zfs_vdev_min_ms_count,
            max_shift: tunables.zfs_vdev_max_ms_shift,
            count_limit: tunables.zfs_vdev_ms_count_limit,
        }
    }
}

impl Default for LayoutLimits {
    fn default() -> Self {
        Self::from(&Tunables::default())
    }
}

/// log2 of the smallest metaslab: the largest block fits into it.
pub const MIN_METASLAB_SHIFT: u32 = 24;

impl LayoutLimits {
    /// log2 of the size of the metaslabs of a new vdev with `asize` allocatable bytes.
    ///
    /// It stays for the life of the vdev; a vdev that grows gets more metaslabs.
    #[must_use]
    pub fn metaslab_shift(&self, asize: u64) -> u32 {
        let count = asize >> self.default_shift.min(63);
        let shift = if count < self.min_count {
            bits(asize / self.min_count.max(1))
        } else if count > self.default_count {
            bits(asize / self.default_count.max(1))
        } else {
            self.default_shift
        };
        if shift < MIN_METASLAB_SHIFT {
            MIN_METASLAB_SHIFT
        } else if shift <= self.max_shift {
            shift
        } else if asize >> self.max_shift.min(63) > self.count_limit {
            bits(asize / self.count_limit.max(1))
        } else {
            self.max_shift
        }
    }
}

/// Number of the highest bit that is set, counted from 1.
const fn bits(value: u64) -> u32 {
    u64::BITS - value.leading_zeros()
}

/// Slop space: bytes reserved so that a full pool can still free something.
///
/// `space` is the deflated space of the normal class; `embedded_logs` that of the metaslabs
/// reserved for the intent log, which count towards the reserve.
#[must_use]
pub fn slop(space: u64, embedded_logs: u64) -> u64 {
    const LARGEST: u64 = 128 << 30;
    const SMALLEST: u64 = 128 << 20;
    let share = (space >> 5).min(LARGEST);
    let rest = share - embedded_logs.min(share / 2);
    rest.max(SMALLEST.min(space / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metaslab_sizes_of_openzfs() {
        // Allocatable bytes, log2 of the size, number: single-file vdevs made by 2.3.2.
        let cases = [
            (263_716_864, 24, 15),
            (8_585_216_000, 29, 15),
            (9_658_957_824, 29, 17),
            (42_944_954_368, 29, 79),
            (106_295_721_984, 29, 197),
            (118_106_882_048, 30, 109),
            (214_743_646_208, 30, 199),
            (1_099_506_909_184, 33, 127),
            (3_298_530_164_736, 34, 191),
            (3_543_343_300_608, 34, 206),
            (10_995_111_559_168, 34, 639),
            (109_951_158_059_008, 34, 6399),
            (3_298_534_878_609_408, 35, 95_999),
        ];
        for (asize, shift, count) in cases {
            let found = LayoutLimits::default().metaslab_shift(asize);
            assert_eq!((found, asize >> found), (shift, count), "{asize}");
        }
    }

    #[test]
    fn metaslab_sizes_stay_in_range() {
        for asize in [0, 1, 1 << 24, u64::MAX] {
            let shift = LayoutLimits::default().metaslab_shift(asize);
            assert!((MIN_METASLAB_SHIFT..=48).contains(&shift), "{asize}: {shift}");
        }
    }

    #[test]
    fn slop_of_openzfs() {
        let cases = [
            (50_331_648, 0, 25_165_824),
            (1_006_632_960, 0, 134_217_728),
            (8_053_063_680, 0, 251_658_240),
            (212_600_881_152, 1 << 30, 5_570_035_712),
            (638 << 34, 1 << 34, 120_259_084_288),
            (0, 0, 0),
        ];
        for (space, embedded_logs, held_back) in cases {
            assert_eq!(slop(space, embedded_logs), held_back, "{space}");
        }
    }
}
