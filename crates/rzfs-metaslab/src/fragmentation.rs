//! The fragmentation metric (spec 06, section 12): how small the free segments are, 0 to 100.

use rzfs_format::space_map::HISTOGRAM_BUCKETS;

/// Percent for segments of 512 bytes, 1 KiB, and so on up to 512 MiB and more.
const PERCENT: [u64; 21] =
    [100, 99, 97, 93, 88, 83, 77, 71, 64, 57, 50, 43, 36, 29, 23, 17, 12, 7, 3, 1, 0];

const SECTOR_SHIFT: u32 = 9;

/// The metric of a space map's histogram, whose bucket i counts segments of `1 << (i + shift)`
/// bytes. Without free segments it is 0.
#[must_use]
pub fn of_histogram(histogram: &[u64; HISTOGRAM_BUCKETS], shift: u32) -> u64 {
    let mut weighted = 0_u128;
    let mut space = 0_u128;
    for (bucket, &count) in (0_u32..).zip(histogram) {
        if count == 0 {
            continue;
        }
        let size = u128::from(count) << (bucket + shift).min(63);
        let class = (shift.saturating_sub(SECTOR_SHIFT) + bucket) as usize;
        let percent = PERCENT.get(class).copied().unwrap_or(0);
        space = space.saturating_add(size);
        weighted = weighted.saturating_add(size.saturating_mul(u128::from(percent)));
    }
    weighted.checked_div(space).and_then(|metric| u64::try_from(metric).ok()).unwrap_or(0)
}

/// The mean of metrics weighted by bytes, or `None` if fewer than half of the parts have one.
#[must_use]
pub fn mean(parts: impl IntoIterator<Item = (Option<u64>, u64)>) -> Option<u64> {
    let (mut count, mut valid) = (0_usize, 0_usize);
    let (mut weighted, mut space) = (0_u128, 0_u128);
    for (metric, bytes) in parts {
        count += 1;
        let Some(metric) = metric else { continue };
        valid += 1;
        space = space.saturating_add(u128::from(bytes));
        weighted = weighted.saturating_add(u128::from(metric) * u128::from(bytes));
    }
    if valid * 2 < count {
        return None;
    }
    weighted.checked_div(space).map_or(Some(0), |mean| u64::try_from(mean).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_of_the_spec() {
        let mut histogram = [0; HISTOGRAM_BUCKETS];
        histogram[..11].copy_from_slice(&[1, 2, 2, 2, 1, 0, 0, 0, 1, 1, 1]);
        assert_eq!(of_histogram(&histogram, 12), 34);
        assert_eq!(of_histogram(&[0; HISTOGRAM_BUCKETS], 12), 0);
    }

    #[test]
    fn extremes_stay_in_range() {
        assert!(of_histogram(&[u64::MAX; HISTOGRAM_BUCKETS], 63) <= 100);
        let mut small = [0; HISTOGRAM_BUCKETS];
        small[0] = 1;
        assert_eq!(of_histogram(&small, 9), 100);
    }

    #[test]
    fn mean_needs_half_of_the_parts() {
        assert_eq!(mean([(Some(10), 100), (Some(40), 200)]), Some(30));
        assert_eq!(mean([(Some(10), 100), (None, 100)]), Some(10));
        assert_eq!(mean([(Some(10), 100), (None, 100), (None, 100)]), None);
        assert_eq!(mean([]), Some(0));
    }
}
