//! The adaptive balance: how much of the cache metadata gets, and how much of each class the
//! recently used blocks get against the frequently used ones (spec 03, section 10.4).
//!
//! Three fractions, in units of 2^-32, follow the ghost hits: a block that was evicted and is
//! wanted again says that its list was too small.

/// One, in units of 2^-32.
pub(super) const ONE: u64 = 1 << 32;

/// `zfs_arc_meta_balance`: how much more a ghost hit of metadata counts than one of data, in
/// percent.
const META_BALANCE: u64 = 500;

/// Hits of both sides count the same, in percent.
const EVEN: u64 = 100;

/// A number for each of the four lists that compete.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct PerList {
    pub(super) mru_data: u64,
    pub(super) mru_metadata: u64,
    pub(super) mfu_data: u64,
    pub(super) mfu_metadata: u64,
}

impl PerList {
    pub(super) const fn data(&self) -> u64 {
        self.mru_data.saturating_add(self.mfu_data)
    }

    pub(super) const fn metadata(&self) -> u64 {
        self.mru_metadata.saturating_add(self.mfu_metadata)
    }

    pub(super) const fn total(&self) -> u64 {
        self.data().saturating_add(self.metadata())
    }

    /// What the ghosts of each list may hold, given the sizes of the lists: half of the three
    /// others.
    pub(super) const fn ghost_limits(&self) -> Self {
        let total = self.total();
        Self {
            mru_data: (total - self.mru_data) / 2,
            mru_metadata: (total - self.mru_metadata) / 2,
            mfu_data: (total - self.mfu_data) / 2,
            mfu_metadata: (total - self.mfu_metadata) / 2,
        }
    }
}

/// The three fractions, in units of 2^-32.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Balance {
    /// Metadata's share of the cache.
    pub(super) meta: u64,
    /// The recently used blocks' share of data.
    pub(super) pd: u64,
    /// The recently used blocks' share of metadata.
    pub(super) pm: u64,
}

/// How many bytes the lists may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Quotas {
    /// All metadata.
    pub(super) metadata: u64,
    /// Recently used metadata.
    pub(super) mru_metadata: u64,
    /// Everything.
    pub(super) total: u64,
}

impl Balance {
    pub(super) const INITIAL: Self = Self { meta: ONE / 4, pd: ONE / 2, pm: ONE / 2 };

    /// Takes account of the bytes of ghost hits since the last time; `limits` are the ghosts'
    /// limits of that time.
    pub(super) fn adapt(&mut self, hits: &PerList, limits: &PerList) {
        self.meta = adjust(self.meta, limits.total(), hits.metadata(), hits.data(), META_BALANCE);
        self.pd = adjust(self.pd, limits.data(), hits.mru_data, hits.mfu_data, EVEN);
        self.pm = adjust(self.pm, limits.metadata(), hits.mru_metadata, hits.mfu_metadata, EVEN);
    }

    /// How large the lists may be when `excess` bytes have to go.
    pub(super) fn quotas(&self, live: &PerList, excess: u64) -> Quotas {
        let total = live.total().saturating_sub(excess);
        let metadata = share(total, self.meta);
        Quotas { metadata, mru_metadata: share(metadata, self.pm), total }
    }

    /// How large the list of recently used data may be when metadata holds this many bytes.
    pub(super) fn mru_data_quota(&self, quotas: &Quotas, metadata: u64) -> u64 {
        share(quotas.total.saturating_sub(metadata), self.pd)
    }
}

/// A fraction of an amount.
fn share(amount: u64, fraction: u64) -> u64 {
    // The fraction is at most one, so the result is at most the amount.
    ((u128::from(amount) * u128::from(fraction)) >> 32) as u64
}

/// Moves a fraction up and down by bytes of ghost hits, relative to `total` bytes of ghosts.
fn adjust(fraction: u64, total: u64, mut up: u64, mut down: u64, balance: u64) -> u64 {
    if total < 32 || up.saturating_add(down) == 0 {
        return fraction;
    }
    // One step is bounded.
    let sum = up.saturating_add(down);
    if sum >= total / 16 {
        let divisor = sum / (total / 32);
        up /= divisor;
        down /= divisor;
    }
    // The nearer to an end, the slower towards it.
    let other = ONE.saturating_sub(fraction);
    if fraction >= other.saturating_mul(4) {
        up /= fraction / (2 * other + 1);
    }
    if other >= fraction.saturating_mul(4) {
        down /= other / (2 * fraction + 1);
    }
    let shift = total.leading_zeros().min(32);
    let relative = |bytes: u64| (bytes << shift) / (total >> (32 - shift));
    let (up, down) = (relative(up), relative(down) * 100 / balance);
    fraction.saturating_add(up).saturating_sub(down).min(ONE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_vectors_of_the_specification() {
        let total = 1 << 30;
        assert_eq!(adjust(0x4000_0000, total, 1 << 20, 0, 500), 0x4040_0000);
        assert_eq!(adjust(0x4000_0000, total, 0, 1 << 20, 500), 0x3ff3_3334);
        assert_eq!(adjust(0x4000_0000, total, 1 << 28, 1 << 28, 500), 0x4333_3334);
        assert_eq!(adjust(0x8000_0000, total, 0, 1 << 27, 100), 0x7800_0000);
    }

    #[test]
    fn nothing_changes_without_hits_or_ghosts() {
        assert_eq!(adjust(77, 1 << 30, 0, 0, 100), 77);
        assert_eq!(adjust(77, 31, 1 << 20, 0, 100), 77);
    }

    proptest! {
        #[test]
        fn fractions_stay_fractions(
            fraction in 0..=ONE,
            total in any::<u64>(),
            up in any::<u64>(),
            down in any::<u64>(),
            balance in prop_oneof![Just(EVEN), Just(META_BALANCE)],
        ) {
            let result = adjust(fraction, total, up, down, balance);
            prop_assert!(result <= ONE);
            // A step is at most an eighth of the whole.
            prop_assert!(result.abs_diff(fraction) <= ONE / 8);
        }

        #[test]
        fn only_hits_of_a_side_move_towards_it(
            fraction in 0..=ONE, total in 32_u64..1 << 50, hits in 1_u64..1 << 50,
        ) {
            prop_assert!(adjust(fraction, total, hits, 0, EVEN) >= fraction);
            prop_assert!(adjust(fraction, total, 0, hits, EVEN) <= fraction);
        }
    }
}
