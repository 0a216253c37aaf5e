//! Which log each metaslab still needs, and which logs are obsolete (spec 06, section 13.5).
//!
//! The book is memory only. Changes in syncing context must also be stored by the caller: the
//! unflushed txg of a metaslab in its vdev's array, logs in the ZAP of logs.
//!
//! A log can go once every metaslab whose unflushed txg is not after it was flushed. So the metaslabs
//! with the oldest unflushed txgs are flushed first, and each log has a deadline: the txg in which
//! the logs would exceed a limit if all older ones were gone. Flushing as many metaslabs in each txg
//! as the tightest deadline takes spreads the work evenly up to there:
//!
//! ```text
//! log    dirty metaslabs up to here    txgs until the deadline    flushes for each txg
//! 21          3                              40                       3 / 40  -> 1
//! 22         90                              45                      90 / 45  -> 2   <- due
//! 23         95                              60                      95 / 60  -> 2
//! ```

use crate::MetaslabError;
use crate::metaslab::Freshness;
use crate::store::LogMap;
use rzfs_format::{ObjectId, Txg, VdevId};
use rzfs_tunables::Tunables;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// A metaslab of a pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MetaslabId {
    /// The top-level vdev.
    pub vdev: VdevId,
    /// The index in it.
    pub index: u64,
}

/// Limits on the logs; the names are those of OpenZFS's parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogLimits {
    /// `zfs_unflushed_log_block_pct`: blocks of logs allowed for 100 dirty metaslabs.
    pub block_percent: u64,
    /// `zfs_unflushed_log_block_min`: the least block limit.
    pub block_min: u64,
    /// `zfs_unflushed_log_block_max`: the largest block limit.
    pub block_max: u64,
    /// `zfs_unflushed_log_txg_max`: most logs.
    pub txg_max: u64,
    /// `zfs_min_metaslabs_to_flush`: least flushes of a txg that changes anything.
    pub flush_min: u64,
    /// `zfs_max_log_walking`: closed logs whose sizes tell what a txg adds.
    pub logs_averaged: usize,
}

impl From<&Tunables> for LogLimits {
    fn from(tunables: &Tunables) -> Self {
        Self {
            block_percent: tunables.zfs_unflushed_log_block_pct,
            block_min: tunables.zfs_unflushed_log_block_min,
            block_max: tunables.zfs_unflushed_log_block_max,
            txg_max: tunables.zfs_unflushed_log_txg_max,
            flush_min: tunables.zfs_min_metaslabs_to_flush,
            logs_averaged: tunables.zfs_max_log_walking,
        }
    }
}

impl Default for LogLimits {
    fn default() -> Self {
        Self::from(&Tunables::default())
    }
}

#[derive(Clone, Copy, Debug)]
struct Booked {
    object: ObjectId,
    /// Blocks; 0 while the log is open.
    blocks: u64,
    /// Metaslabs whose unflushed txg this is and that have changes since they were flushed.
    dirty: u64,
}

/// The logs of a pool and the unflushed txgs of its metaslabs.
///
/// Every unflushed txg is that of a log, and no log is older than the oldest of them once
/// [`LogBook::take_obsolete`] was called.
#[derive(Clone, Debug)]
pub struct LogBook {
    limits: LogLimits,
    logs: BTreeMap<Txg, Booked>,
    unflushed: BTreeSet<(Txg, MetaslabId)>,
    blocks: u64,
}

impl LogBook {
    /// A book without logs.
    #[must_use]
    pub fn new(limits: LogLimits) -> Self {
        Self { limits, logs: BTreeMap::new(), unflushed: BTreeSet::new(), blocks: 0 }
    }

    /// The book at import: the logs in ascending order with their blocks, and the unflushed txgs
    /// other than 0 with what the replay found. Fails if a metaslab needs a log that is not there.
    pub fn import(
        limits: LogLimits,
        logs: impl IntoIterator<Item = (LogMap, u64)>,
        metaslabs: impl IntoIterator<Item = (Txg, MetaslabId, Freshness)>,
    ) -> Result<Self, MetaslabError> {
        let mut book = Self::new(limits);
        for (LogMap { txg, object }, blocks) in logs {
            book.logs.insert(txg, Booked { object, blocks, dirty: 0 });
            book.blocks = book.blocks.saturating_add(blocks);
        }
        for (txg, metaslab, freshness) in metaslabs {
            book.add(txg, metaslab, freshness)?;
        }
        Ok(book)
    }

    /// Starts the log of the current txg.
    pub fn open_log(&mut self, log: LogMap) {
        self.logs.insert(log.txg, Booked { object: log.object, blocks: 0, dirty: 0 });
    }

    /// Completes the log of the current txg.
    pub fn close_log(&mut self, txg: Txg, blocks: u64) {
        let Some(log) = self.logs.get_mut(&txg) else { return };
        log.blocks = blocks;
        self.blocks = self.blocks.saturating_add(blocks);
    }

    /// Sets the unflushed txg of a metaslab to that of a log.
    ///
    /// # Errors
    /// There is no such log.
    pub fn add(
        &mut self,
        txg: Txg,
        id: MetaslabId,
        freshness: Freshness,
    ) -> Result<(), MetaslabError> {
        let Some(log) = self.logs.get_mut(&txg) else {
            return Err(MetaslabError::NoLog { vdev: id.vdev, metaslab: id.index, txg });
        };
        if self.unflushed.insert((txg, id)) {
            log.dirty += freshness.count();
        }
        Ok(())
    }

    /// Removes a metaslab whose unflushed txg was `txg`: it was flushed, or its vdev removed.
    pub fn remove(&mut self, txg: Txg, metaslab: MetaslabId, freshness: Freshness) {
        if self.unflushed.remove(&(txg, metaslab))
            && let Some(log) = self.logs.get_mut(&txg)
        {
            log.dirty = log.dirty.saturating_sub(freshness.count());
        }
    }

    /// The metaslab to flush next and its unflushed txg: the oldest.
    #[must_use]
    pub fn oldest(&self) -> Option<(Txg, MetaslabId)> {
        self.unflushed.first().copied()
    }

    /// The metaslab after this one in the order of unflushed txgs; the oldest after `None`.
    #[must_use]
    pub fn after(&self, metaslab: Option<(Txg, MetaslabId)>) -> Option<(Txg, MetaslabId)> {
        let from = metaslab.map_or(Bound::Unbounded, Bound::Excluded);
        self.unflushed.range((from, Bound::Unbounded)).next().copied()
    }

    /// Records the first change of a metaslab with unflushed txg `txg` since its flush.
    pub fn mark_dirty(&mut self, txg: Txg) {
        if let Some(log) = self.logs.get_mut(&txg) {
            log.dirty += 1;
        }
    }

    /// Number of metaslabs with an unflushed txg.
    #[must_use]
    pub fn metaslab_count(&self) -> usize {
        self.unflushed.len()
    }

    /// Most blocks that the logs should have.
    #[must_use]
    pub fn block_limit(&self) -> u64 {
        let LogLimits { block_percent, block_min, block_max, .. } = self.limits;
        let wanted = self.dirty_metaslabs().saturating_mul(block_percent) / 100;
        wanted.min(block_max).max(block_min)
    }

    /// Metaslabs with changes that only the logs have.
    #[must_use]
    pub fn dirty_metaslabs(&self) -> u64 {
        self.logs.values().map(|log| log.dirty).sum()
    }

    /// Takes the logs that no metaslab needs any longer, oldest first, to be freed.
    pub fn take_obsolete(&mut self) -> Vec<LogMap> {
        let mut gone = Vec::new();
        let Some((oldest, _)) = self.oldest() else { return gone };
        while let Some(entry) = self.logs.first_entry()
            && *entry.key() < oldest
        {
            let (txg, log) = entry.remove_entry();
            self.blocks = self.blocks.saturating_sub(log.blocks);
            gone.push(LogMap { txg, object: log.object });
        }
        gone
    }

    /// Blocks of the complete logs.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The logs in order of their txgs.
    pub fn logs(&self) -> impl Iterator<Item = LogMap> + '_ {
        self.logs.iter().map(|(&txg, log)| LogMap { txg, object: log.object })
    }

    /// Blocks that a txg is expected to add: the mean of the latest complete logs before `txg`.
    #[must_use]
    pub fn incoming(&self, txg: Txg) -> u64 {
        let latest = self.logs.range(..txg).rev().take(self.limits.logs_averaged);
        let (count, blocks) = latest.fold((0_u64, 0_u64), |(count, sum), (_, log)| {
            (count + 1, sum.saturating_add(log.blocks))
        });
        blocks.div_ceil(count.max(1))
    }

    /// Metaslabs to flush in `txg`: enough to keep the limits if every txg from this one on adds
    /// the expected amount and flushes as many (spec 06, section 13.7.1).
    #[must_use]
    pub fn flushes_due(&self, txg: Txg) -> u64 {
        let incoming = self.incoming(txg);
        let closed = || self.logs.range(..txg).map(|(_, log)| log);
        // What there could be of each if no log went.
        let mut block_room = self.block_limit();
        let mut log_room = self.limits.txg_max;
        let logs = closed().count() as u64;
        let (mut due, mut dirty) = (self.limits.flush_min, 0_u64);
        for log in closed() {
            // Txgs that fit in before a limit is exceeded if all older logs are gone.
            let by_blocks = block_room.saturating_sub(self.blocks).checked_div(incoming);
            let by_logs = log_room.saturating_sub(logs);
            let deadline = by_blocks.map_or(by_logs, |txgs| txgs.min(by_logs)).saturating_add(1);
            dirty += log.dirty;
            due = due.max(dirty.div_ceil(deadline));
            block_room = block_room.saturating_add(log.blocks);
            log_room = log_room.saturating_add(1);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn id(index: u64) -> MetaslabId {
        MetaslabId { vdev: VdevId(0), index }
    }

    const fn log(txg: u64) -> LogMap {
        LogMap { txg: Txg(txg), object: ObjectId(1000 + txg) }
    }

    #[test]
    fn import_refuses_a_metaslab_without_its_log() {
        let needs = [(Txg(7), id(3), Freshness::Clean)];
        let book = LogBook::import(LogLimits::default(), [(log(8), 1)], needs);
        assert!(matches!(book, Err(MetaslabError::NoLog { metaslab: 3, txg: Txg(7), .. })));
    }

    #[test]
    fn import_counts_what_was_counted_before() {
        let logs = [(log(21), 2), (log(24), 1), (log(27), 5)];
        let metaslabs = [
            (Txg(21), id(0), Freshness::Dirty),
            (Txg(27), id(1), Freshness::Clean),
            (Txg(27), id(2), Freshness::Dirty),
        ];
        let mut book = LogBook::import(LogLimits::default(), logs, metaslabs).unwrap();
        assert_eq!((book.blocks(), book.incoming(Txg(28))), (8, 3));
        assert_eq!(book.dirty_metaslabs(), 2);
        assert_eq!(book.take_obsolete(), []);
        book.remove(Txg(21), id(0), Freshness::Dirty);
        assert_eq!(book.oldest(), Some((Txg(27), id(1))));
        assert_eq!(book.take_obsolete(), [log(21), log(24)]);
        assert_eq!((book.blocks(), book.dirty_metaslabs()), (5, 1));
    }

    /// A book of logs with so many dirty metaslabs and blocks each, from txg 10 on.
    fn book(limits: LogLimits, logs: impl IntoIterator<Item = (u64, u64)>) -> (LogBook, Txg) {
        let mut book = LogBook::new(limits);
        let mut txg = 10;
        for (dirty, blocks) in logs {
            book.open_log(log(txg));
            for index in 0..dirty {
                book.add(Txg(txg), id(index), Freshness::Dirty).unwrap();
            }
            book.close_log(Txg(txg), blocks);
            txg += 1;
        }
        (book, Txg(txg))
    }

    #[test]
    fn the_tightest_deadline_says_what_is_due() {
        let limits = LogLimits { block_percent: 0, ..LogLimits::default() };
        // The latest five logs have a block each: 60 txgs fit in, or as many as there may be logs.
        let usual = [(50, 935), (200, 1), (0, 1), (0, 1), (0, 1), (0, 1)];
        let none: &[(u64, u64)] = &[];
        let cases = [
            (1000, 1000, none, 1),
            (1000, 1000, &usual, 1),
            (985, 1000, &usual, 2),
            // The limit is exceeded in this txg.
            (940, 1000, &usual, 50),
            (900, 1000, &usual, 50),
            // By the number of logs: the second one has to be gone in the eighth txg.
            (1000, 12, &usual, 32),
            // Nothing is expected to come, and nothing presses.
            (1000, 1000, &[(30, 0), (10, 0)], 1),
        ];
        for (block_min, txg_max, logs, due) in cases {
            let (book, txg) =
                book(LogLimits { block_min, txg_max, ..limits }, logs.iter().copied());
            assert_eq!(book.flushes_due(txg), due, "{block_min} blocks, {txg_max} logs, {logs:?}");
        }
    }

    #[test]
    fn the_block_limit_follows_dirty_metaslabs_between_its_bounds() {
        for (dirty, limit) in [(0, 1000), (250, 1000), (251, 1004), (40_000, 131_072)] {
            let (book, _) = book(LogLimits::default(), [(dirty, 0)]);
            assert_eq!(book.block_limit(), limit);
        }
    }

    #[test]
    fn a_burst_is_flushed_evenly_over_the_txgs_that_are_left() {
        let limits = LogLimits { txg_max: 100, ..LogLimits::default() };
        let (mut book, Txg(mut txg)) = book(limits, [(500, 1)]);
        let mut flushed = Vec::new();
        while book.logs().any(|log| log.txg == Txg(10)) {
            book.open_log(log(txg));
            let due = book.flushes_due(Txg(txg));
            for _ in 0..due {
                let Some((old, metaslab)) = book.oldest() else { break };
                book.remove(old, metaslab, Freshness::Dirty);
                book.add(Txg(txg), metaslab, Freshness::Clean).unwrap();
            }
            book.take_obsolete();
            book.close_log(Txg(txg), 1);
            flushed.push(due);
            txg += 1;
        }
        assert_eq!(flushed.iter().max(), Some(&5), "{flushed:?}");
        assert!((95..=101).contains(&flushed.len()), "{flushed:?}");
    }

    proptest! {
        #[test]
        fn flushing_what_is_due_keeps_the_limits(
            dirtied in prop::collection::vec(0_u64..20, 50..200),
            txg_max in 10_u64..60,
            blocks in 1_u64..5,
        ) {
            // Every txg logs as many blocks, and changes some metaslabs.
            let limits = LogLimits { txg_max, block_min: 40, block_percent: 0, ..LogLimits::default() };
            let mut book = LogBook::new(limits);
            let mut next = 0;
            for (txg, dirtied) in (10..).zip(dirtied) {
                book.open_log(log(txg));
                for _ in 0..book.flushes_due(Txg(txg)) {
                    match book.oldest() {
                        Some((old, metaslab)) if old.0 < txg => {
                            book.remove(old, metaslab, Freshness::Dirty);
                        }
                        _ => break,
                    }
                }
                for _ in 0..=dirtied {
                    book.add(Txg(txg), id(next), Freshness::Dirty).unwrap();
                    next += 1;
                }
                book.take_obsolete();
                book.close_log(Txg(txg), blocks);
                prop_assert!(book.logs().count() as u64 <= txg_max);
                prop_assert!(book.blocks() <= 40, "{} blocks", book.blocks());
            }
        }

        #[test]
        fn logs_live_exactly_as_long_as_they_are_needed(
            txgs in prop::collection::vec(
                (prop::collection::vec(0_u64..12, 1..6), 0_usize..6, 1_u64..9), 1..60),
        ) {
            let mut book = LogBook::new(LogLimits::default());
            // The unflushed txg of each metaslab; all have changes.
            let mut truth: BTreeMap<u64, u64> = BTreeMap::new();
            for (txg, (changed, flushes, blocks)) in (10_u64..).zip(txgs) {
                book.open_log(log(txg));
                for _ in 0..flushes {
                    let Some((old, metaslab)) = book.oldest() else { break };
                    if old.0 == txg {
                        break;
                    }
                    book.remove(old, metaslab, Freshness::Dirty);
                    book.add(Txg(txg), metaslab, Freshness::Dirty).unwrap();
                    truth.insert(metaslab.index, txg);
                }
                for metaslab in changed {
                    if let std::collections::btree_map::Entry::Vacant(new) = truth.entry(metaslab) {
                        new.insert(txg);
                        book.add(Txg(txg), id(metaslab), Freshness::Dirty).unwrap();
                    }
                }
                book.take_obsolete();
                book.close_log(Txg(txg), blocks);
                let oldest = truth.values().min().copied().unwrap();
                prop_assert_eq!(book.logs().next().map(|log| log.txg.0), Some(oldest));
                prop_assert_eq!(book.oldest().map(|(txg, _)| txg.0), Some(oldest));
                prop_assert_eq!(book.dirty_metaslabs(), truth.len() as u64);
                let metaslabs = truth
                    .iter()
                    .map(|(index, txg)| (Txg(*txg), id(*index), Freshness::Dirty));
                let logs: Vec<_> =
                    book.logs.iter().map(|(txg, booked)| (log(txg.0), booked.blocks)).collect();
                let again = LogBook::import(LogLimits::default(), logs, metaslabs).unwrap();
                prop_assert_eq!(again.blocks(), book.blocks());
                prop_assert_eq!(again.oldest(), book.oldest());
            }
        }
    }
}
