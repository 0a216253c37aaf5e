//! Numbers in the format of OpenZFS's commands: sizes, ratios, percentages, durations (spec 09,
//! section 1.3).

pub(crate) use rzfs::quantity::{nicebytes, nicenum, parse_size};

/// A ratio stored in hundredths: `1.06x`.
pub(crate) fn ratio(hundredths: u64) -> String {
    format!("{}x", plain_ratio(hundredths))
}

/// The same for programs: `1.06`.
pub(crate) fn plain_ratio(hundredths: u64) -> String {
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// The allocated share of `size`, as `zpool list -v` shows it for a vdev: `0.03%`, `25.1%`, `100%`.
pub(crate) fn vdev_capacity(allocated: u64, size: u64) -> String {
    let value = vdev_basis_points(allocated, size) as f64 / 100.0;
    if value < 10.0 {
        format!("{value:.2}%")
    } else if value < 100.0 {
        format!("{value:.1}%")
    } else {
        format!("{value:.0}%")
    }
}

/// The allocated share in hundredths of a percent of `size`; 0 if that is 0.
pub(crate) fn vdev_basis_points(allocated: u64, size: u64) -> u64 {
    if size == 0 {
        return 0;
    }
    u64::try_from(u128::from(allocated) * 10_000 / u128::from(size)).unwrap_or(u64::MAX)
}

/// Seconds as `HH:MM:SS`, preceded by any days: `1 days 02:03:04`.
pub(crate) fn duration(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let clock = format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
    if days > 0 { format!("{days} days {clock}") } else { clock }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_percentages_and_durations() {
        assert_eq!(ratio(106), "1.06x");
        assert_eq!(plain_ratio(100), "1.00");
        assert_eq!(vdev_capacity(155_136, 503_316_480), "0.03%");
        assert_eq!(vdev_capacity(251, 1000), "25.1%");
        assert_eq!(vdev_capacity(7, 7), "100%");
        assert_eq!(vdev_capacity(7, 0), "0.00%");
        assert_eq!(duration(1), "00:00:01");
        assert_eq!(duration(86_400 + 7384), "1 days 02:03:04");
    }
}
