//! The write throttle's delay curve (spec 06, section 18).

use rzfs_tunables::Tunables;
use std::time::Duration;

/// Limits of dirty data (`zfs_dirty_data_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirtyLimits {
    /// Maximum dirty bytes of a pool (`zfs_dirty_data_max`).
    pub max: u64,
    /// Percentage of that at which a group is synced at once (`zfs_dirty_data_sync_percent`).
    pub sync_percent: u64,
    /// The delay curve of transactions.
    pub delay: DelayCurve,
}

impl DirtyLimits {
    /// Unset tunables default to a fraction of `memory`, in bytes.
    #[must_use]
    pub fn new(tunables: &Tunables, memory: u64) -> Self {
        const USUAL_CAP: u64 = 4 << 30;
        // With less, a group would have to be written for every few blocks.
        const LEAST: u64 = 1 << 20;
        let cap = match tunables.zfs_dirty_data_max_max {
            0 => percent(memory, tunables.zfs_dirty_data_max_max_percent).min(USUAL_CAP),
            cap => cap,
        };
        let max = match tunables.zfs_dirty_data_max {
            0 => percent(memory, tunables.zfs_dirty_data_max_percent).min(cap),
            max => max.max(LEAST),
        };
        let sync_percent = tunables.zfs_dirty_data_sync_percent;
        Self { max, sync_percent, delay: DelayCurve::from(tunables) }
    }

    /// The defaults for this many bytes of memory.
    #[must_use]
    pub fn of_memory(memory: u64) -> Self {
        Self::new(&Tunables::default(), memory)
    }

    /// Maximum dirty bytes of a suspended pool: somewhat more than otherwise, so that name
    /// operations do not block at once where much is already dirty.
    #[must_use]
    pub const fn max_while_suspended(&self) -> u64 {
        const MORE: u64 = 25;
        self.max.saturating_add(percent(self.max, MORE))
    }

    /// Dirty bytes at which the open group is synced.
    #[must_use]
    pub const fn sync_threshold(&self) -> u64 {
        percent(self.max, self.sync_percent)
    }
}

/// The delay of transactions when much is dirty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DelayCurve {
    /// Percentage of the limit below which there is no delay (`zfs_delay_min_dirty_percent`).
    pub min_dirty_percent: u64,
    /// The delay in the middle of the curve (`zfs_delay_scale`).
    pub scale: Duration,
    /// Maximum delay (`zfs_delay_max_ns`).
    pub max: Duration,
}

impl DelayCurve {
    /// Time between two transactions when `dirty` of `limit` bytes are dirty.
    #[must_use]
    pub fn delay(&self, dirty: u64, limit: u64) -> Duration {
        let min = percent(limit, self.min_dirty_percent);
        if dirty <= min {
            return Duration::ZERO;
        }
        let (over, room) = (u128::from(dirty - min), u128::from(limit.saturating_sub(dirty)));
        let nanoseconds = (self.scale.as_nanos() * over).checked_div(room);
        let nanoseconds = nanoseconds.and_then(|time| u64::try_from(time).ok());
        nanoseconds.map_or(self.max, |time| Duration::from_nanos(time).min(self.max))
    }
}

impl From<&Tunables> for DelayCurve {
    fn from(tunables: &Tunables) -> Self {
        Self {
            min_dirty_percent: tunables.zfs_delay_min_dirty_percent,
            scale: tunables.zfs_delay_scale,
            max: tunables.zfs_delay_max_ns,
        }
    }
}

const fn percent(of: u64, percent: u64) -> u64 {
    (of as u128 * percent as u128 / 100) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_those_of_the_spec() {
        const MAX: u64 = 1000 << 20;
        let curve = DelayCurve::from(&Tunables::default());
        let delay = |permille: u64| curve.delay(MAX / 1000 * permille, MAX).as_nanos();
        assert_eq!([600, 700, 800].map(delay), [0, 166_666, 500_000]);
        assert_eq!(
            [900, 990, 999, 1000].map(delay),
            [1_500_000, 19_500_000, 100_000_000, 100_000_000]
        );
    }

    #[test]
    fn limits_follow_the_memory() {
        let gib = |memory: u64| DirtyLimits::of_memory(memory << 30).max;
        assert_eq!(gib(10), 1 << 30);
        assert_eq!(gib(1000), 4 << 30);
        let of = |text: [(&str, &str); 2]| {
            let mut tunables = Tunables::default();
            text.into_iter().for_each(|(name, value)| tunables.set(name, value).unwrap());
            DirtyLimits::new(&tunables, 10 << 30).max
        };
        let percent = ("zfs_dirty_data_max_percent", "20");
        assert_eq!(of([percent, ("zfs_dirty_data_max_max_percent", "50")]), 2 << 30);
        assert_eq!(of([percent, ("zfs_dirty_data_max_max", "1G")]), 1 << 30);
        assert_eq!(of([percent, ("zfs_dirty_data_max", "9G")]), 9 << 30);
    }
}
