//! The write throttle's delay curve (spec 06, section 18).

use std::time::Duration;

/// How much may be dirty (`zfs_dirty_data_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirtyLimits {
    /// Most dirty bytes of a pool (`zfs_dirty_data_max`).
    pub max: u64,
    /// Share of that, in percent, from which on a group is synced at once
    /// (`zfs_dirty_data_sync_percent`).
    pub sync_percent: u64,
    /// The delay of transactions.
    pub delay: DelayCurve,
}

impl DirtyLimits {
    /// OpenZFS's defaults for a machine with `memory` bytes of RAM.
    #[must_use]
    pub const fn of_memory(memory: u64) -> Self {
        const MOST: u64 = 4 << 30;
        let quarter = memory / 4;
        let cap = if quarter < MOST { quarter } else { MOST };
        let tenth = memory / 10;
        let max = if tenth < cap { tenth } else { cap };
        Self { max, sync_percent: 20, delay: DelayCurve::DEFAULT }
    }

    /// Most dirty bytes of a pool that is suspended: somewhat more than otherwise, so that whoever
    /// changes names does not wait at once where much is dirty already.
    #[must_use]
    pub const fn max_while_suspended(&self) -> u64 {
        const MORE: u64 = 25;
        self.max.saturating_add(percent(self.max, MORE))
    }

    /// Dirty bytes from which on the open group is to be synced.
    #[must_use]
    pub const fn sync_threshold(&self) -> u64 {
        percent(self.max, self.sync_percent)
    }
}

/// How long transactions wait when much is dirty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DelayCurve {
    /// Share of the limit, in percent, below which nobody waits
    /// (`zfs_delay_min_dirty_percent`).
    pub min_dirty_percent: u64,
    /// The delay at the middle of the curve (`zfs_delay_scale`).
    pub scale: Duration,
    /// The longest delay (`zfs_delay_max_ns`).
    pub max: Duration,
}

impl DelayCurve {
    /// OpenZFS's defaults.
    pub const DEFAULT: Self = Self {
        min_dirty_percent: 60,
        scale: Duration::from_micros(500),
        max: Duration::from_millis(100),
    };

    /// Time between two transactions when `dirty` of at most `limit` bytes are dirty.
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

const fn percent(of: u64, percent: u64) -> u64 {
    (of as u128 * percent as u128 / 100) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_those_of_the_spec() {
        const MAX: u64 = 1000 << 20;
        let delay =
            |permille: u64| DelayCurve::DEFAULT.delay(MAX / 1000 * permille, MAX).as_nanos();
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
    }
}
