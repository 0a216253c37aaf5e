//! The adaptive balance: how much of the cache metadata gets, and how much of each class the
//! recently used blocks get against the frequently used ones (spec 03, section 10.4).
//!
//! Three shares follow the ghost hits: a block that was evicted and is wanted again says that its
//! list was too small. How a share follows them is our own:
//!
//! ```text
//! evidence = (bytes wanted again of this side - bytes of the other side) / bytes that ghosts may hold
//! odds    += GAIN * evidence                      at most STEP at once
//! share    = 1 / (1 + e^-odds)
//! ```
//! Evidence adds up in the odds, so a share is the slower the nearer it is to an end, needs the same
//! evidence for the way back as for the way there, and never reaches an end.

/// Where both sides have the same, ghost hits of a hundredth of the ghosts move a share by about a
/// hundredth.
const GAIN: f64 = 4.0;

/// Most that one run adds to the odds: 3 % of the cache where both sides have the same.
const STEP: f64 = 0.125;

/// No odds are longer: a thousandth is left to the other side.
const LONGEST: f64 = 7.0;

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

/// What one side of two has: a fraction of which neither end is reached.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Share {
    /// The natural logarithm of what it has to what the other side has.
    odds: f64,
}

impl Share {
    /// As much as the other side.
    const HALF: Self = Self { odds: 0.0 };

    /// A third of what the other side has: ln(1/3).
    const QUARTER: Self = Self { odds: -1.098_612_288_668_109_8 };

    /// The fraction, in units of 2^-32.
    pub(super) fn fraction(self) -> u64 {
        (self.part() * (1_u64 << 32) as f64) as u64
    }

    /// This fraction of an amount.
    pub(super) fn of(self, amount: u64) -> u64 {
        // The fraction is below one, so the result is at most the amount.
        ((u128::from(amount) * u128::from(self.fraction())) >> 32) as u64
    }

    fn part(self) -> f64 {
        1.0 / (1.0 + (-self.odds).exp())
    }

    /// Updates the share from the ghost hits of both sides, in bytes, where ghosts might hold
    /// `ghosts` bytes.
    fn follow(&mut self, own: f64, other: f64, ghosts: u64) {
        if ghosts == 0 {
            return;
        }
        let evidence = GAIN * (own - other) / ghosts as f64;
        self.odds = (self.odds + evidence.clamp(-STEP, STEP)).clamp(-LONGEST, LONGEST);
    }
}

/// The three shares.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Balance {
    /// Metadata's share of the cache.
    pub(super) meta: Share,
    /// The recently used blocks' share of data.
    pub(super) pd: Share,
    /// The recently used blocks' share of metadata.
    pub(super) pm: Share,
    /// How much more a ghost hit of metadata counts than one of data.
    meta_balance: f64,
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
    /// The initial balance; `meta_balance` is the weight of a ghost hit of metadata relative to one
    /// of data, in percent.
    pub(super) const fn new(meta_balance: u64) -> Self {
        let meta_balance = meta_balance as f64 / 100.0;
        Self { meta: Share::QUARTER, pd: Share::HALF, pm: Share::HALF, meta_balance }
    }

    /// Updates the shares from the ghost hits since the last time; `limits` are the ghosts' limits
    /// of that time.
    pub(super) fn adapt(&mut self, hits: &PerList, limits: &PerList) {
        let (metadata, data) = (hits.metadata() as f64, hits.data() as f64);
        self.meta.follow(metadata, data / self.meta_balance, limits.total());
        self.pd.follow(hits.mru_data as f64, hits.mfu_data as f64, limits.data());
        self.pm.follow(hits.mru_metadata as f64, hits.mfu_metadata as f64, limits.metadata());
    }

    /// How large the lists may be when `excess` bytes have to go.
    pub(super) fn quotas(&self, live: &PerList, excess: u64) -> Quotas {
        let total = live.total().saturating_sub(excess);
        let metadata = self.meta.of(total);
        Quotas { metadata, mru_metadata: self.pm.of(metadata), total }
    }

    /// How large the list of recently used data may be when metadata holds this many bytes.
    pub(super) fn mru_data_quota(&self, quotas: &Quotas, metadata: u64) -> u64 {
        self.pd.of(quotas.total.saturating_sub(metadata))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GHOSTS: u64 = 1 << 30;

    fn moved(mut share: Share, own: u64, other: u64) -> f64 {
        let before = share.part();
        share.follow(own as f64, other as f64, GHOSTS);
        share.part() - before
    }

    #[test]
    fn shares_begin_where_openzfs_begins() {
        let Balance { meta, pd, pm, .. } = Balance::new(500);
        assert_eq!([meta, pd, pm].map(|share| share.of(1 << 20)), [1 << 18, 1 << 19, 1 << 19]);
    }

    #[test]
    fn a_share_moves_by_what_was_wanted_again_and_slower_near_its_ends() {
        // A thousandth of the ghosts.
        let hits = GHOSTS / 1000;
        assert!((moved(Share::HALF, hits, 0) - 0.001).abs() < 1e-5);
        assert!((moved(Share::HALF, 0, hits) + 0.001).abs() < 1e-5);
        let rare = Share { odds: -4.0 };
        assert!((0.0..0.0001).contains(&moved(rare, hits, 0)));
        // A run that found more than all ghosts.
        assert!((0.03..0.032).contains(&moved(Share::HALF, 4 * GHOSTS, 0)));
    }

    #[test]
    fn misses_of_metadata_are_dearer_than_those_of_data() {
        let limits = PerList { mru_data: GHOSTS, ..PerList::default() };
        let meta_after = |mru_metadata, mru_data| {
            let mut balance = Balance::new(500);
            balance.adapt(&PerList { mru_metadata, mru_data, ..PerList::default() }, &limits);
            balance.meta.odds - Share::QUARTER.odds
        };
        assert!(meta_after(1000, 4999) > 0.0 && meta_after(1000, 5001) < 0.0);
        assert_eq!(meta_after(0, 0), 0.0);
    }

    proptest! {
        #[test]
        fn shares_stay_between_their_ends(
            rounds in prop::collection::vec((any::<[u64; 4]>(), any::<[u64; 4]>()), 1..200),
        ) {
            let per_list = |[mru_data, mru_metadata, mfu_data, mfu_metadata]: [u64; 4]| PerList {
                mru_data, mru_metadata, mfu_data, mfu_metadata,
            };
            let mut balance = Balance::new(500);
            for (hits, limits) in rounds {
                let before = balance;
                balance.adapt(&per_list(hits), &per_list(limits));
                let pairs = [
                    (before.meta, balance.meta), (before.pd, balance.pd), (before.pm, balance.pm),
                ];
                for (before, after) in pairs {
                    prop_assert!((0.0009..=0.9991).contains(&after.part()));
                    prop_assert!((after.part() - before.part()).abs() < 0.032);
                    prop_assert!(after.of(u64::MAX) < u64::MAX);
                }
            }
        }

        #[test]
        fn hits_of_both_sides_leave_a_share_where_it_is(odds in -7.0..7.0_f64, hits in any::<u64>()) {
            prop_assert_eq!(moved(Share { odds }, hits, hits), 0.0);
        }

        #[test]
        fn the_way_back_takes_what_the_way_there_took(hits in 0..GHOSTS / 64, runs in 1..40_u32) {
            let mut share = Share::HALF;
            (0..runs).for_each(|_| share.follow(hits as f64, 0.0, GHOSTS));
            (0..runs).for_each(|_| share.follow(0.0, hits as f64, GHOSTS));
            prop_assert!((share.part() - 0.5).abs() < 1e-9);
        }
    }
}
