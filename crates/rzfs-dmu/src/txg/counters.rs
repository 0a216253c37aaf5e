//! Counters of transactions: OpenZFS's `dmu_tx`.

use std::sync::atomic::{AtomicU64, Ordering};

rzfs_kstat::kstat! {
    /// Counters of transactions at one moment, with the names of OpenZFS's kstat `dmu_tx`.
    pub struct DmuTxStats = "dmu_tx", counted by pub(super) struct DmuTxCounters {
        /// Transactions that started.
        dmu_tx_assigned: Counter Count,
        /// Transactions that failed because the pool is being exported or has failed.
        dmu_tx_error: Counter Count,
        /// Transactions that waited, or were refused, because the pool is suspended.
        dmu_tx_suspended: Counter Count,
        /// Transactions that were throttled because much is dirty.
        dmu_tx_dirty_throttle: Counter Count,
        /// Transactions that were delayed because much is dirty.
        dmu_tx_dirty_delay: Counter Count,
        /// Transactions that waited because the dirty limit was reached.
        dmu_tx_dirty_over_max: Counter Count,
        /// Transactions that were postponed because their group reached its limit of frees.
        dmu_tx_dirty_frees_delay: Counter Count,
        /// Transactions refused because of a quota of their dataset.
        dmu_tx_quota: Counter Count,
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl DmuTxCounters {
    /// Counts a transaction that waits for devices or for room.
    pub(super) fn count_wait(&self, is_suspended: bool) {
        if is_suspended {
            return count(&self.dmu_tx_suspended);
        }
        count(&self.dmu_tx_dirty_throttle);
        count(&self.dmu_tx_dirty_over_max);
    }

    /// Counts a transaction that is delayed, possibly after waiting.
    pub(super) fn count_delay(&self, has_waited: bool) {
        if !has_waited {
            count(&self.dmu_tx_dirty_throttle);
        }
        count(&self.dmu_tx_dirty_delay);
    }

    /// Counts a transaction refused because the pool is suspended.
    pub(super) fn count_suspended(&self) {
        count(&self.dmu_tx_suspended);
    }

    /// Counts a transaction refused for good.
    pub(super) fn count_error(&self) {
        count(&self.dmu_tx_error);
    }

    /// Counts a transaction postponed because its group reached its limit of frees.
    pub(super) fn count_put_off(&self) {
        count(&self.dmu_tx_dirty_frees_delay);
    }

    /// Counts a transaction refused because of a quota.
    pub(super) fn count_over_quota(&self) {
        count(&self.dmu_tx_quota);
    }
}
