//! Which log each metaslab still needs, and which logs nobody needs (spec 06, section 13.5).
//!
//! The book is memory only. Whoever changes it in syncing context stores the same change: the
//! unflushed txg of a metaslab in its vdev's array, logs in the ZAP of logs.

use super::LogMap;
use super::summary::{Freshness, LogLimits, LogSummary};
use crate::MetaslabError;
use rzfs_format::{ObjectId, Txg, VdevId};
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

#[derive(Clone, Copy, Debug)]
struct Booked {
    object: ObjectId,
    /// Blocks; 0 while the log is open.
    blocks: u64,
    /// Metaslabs whose unflushed txg this is.
    metaslabs: u64,
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
    summary: LogSummary,
    blocks: u64,
}

/// Closed logs whose sizes tell what a txg adds (`zfs_max_log_walking`).
const LOGS_AVERAGED: usize = 5;

impl LogBook {
    /// A book without logs.
    #[must_use]
    pub fn new(limits: LogLimits) -> Self {
        let (logs, unflushed) = (BTreeMap::new(), BTreeSet::new());
        Self { limits, logs, unflushed, summary: LogSummary::new(), blocks: 0 }
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
            book.logs.insert(txg, Booked { object, blocks, metaslabs: 0 });
        }
        let mut dirty = Vec::new();
        for (txg, metaslab, freshness) in metaslabs {
            book.count(txg, metaslab)?;
            if freshness == Freshness::Dirty {
                dirty.push(txg);
            }
        }
        for (&txg, log) in &book.logs {
            book.summary.add_log(txg, log.metaslabs, log.blocks, &limits);
            book.blocks = book.blocks.saturating_add(log.blocks);
        }
        dirty.into_iter().for_each(|txg| book.summary.mark_dirty(txg));
        Ok(book)
    }

    /// Begins the log of the current txg.
    pub fn open_log(&mut self, log: LogMap) {
        self.logs.insert(log.txg, Booked { object: log.object, blocks: 0, metaslabs: 0 });
    }

    /// The log of the current txg is complete.
    pub fn close_log(&mut self, txg: Txg, blocks: u64) {
        let Some(log) = self.logs.get_mut(&txg) else { return };
        log.blocks = blocks;
        self.blocks = self.blocks.saturating_add(blocks);
        self.summary.add_log(txg, 0, blocks, &self.limits);
    }

    /// A metaslab has its first change in the current log; its own map is the truth so far.
    pub fn add(
        &mut self,
        txg: Txg,
        metaslab: MetaslabId,
        freshness: Freshness,
    ) -> Result<(), MetaslabError> {
        self.count(txg, metaslab)?;
        self.summary.add_metaslab(txg, freshness, &self.limits);
        Ok(())
    }

    /// A metaslab whose unflushed txg was `txg` leaves: it was flushed, or its vdev removed.
    pub fn remove(&mut self, txg: Txg, metaslab: MetaslabId, freshness: Freshness) {
        if !self.unflushed.remove(&(txg, metaslab)) {
            return;
        }
        if let Some(log) = self.logs.get_mut(&txg) {
            log.metaslabs -= 1;
        }
        self.summary.remove_metaslab(txg, freshness);
    }

    fn count(&mut self, txg: Txg, id: MetaslabId) -> Result<(), MetaslabError> {
        let Some(log) = self.logs.get_mut(&txg) else {
            return Err(MetaslabError::NoLog { vdev: id.vdev, metaslab: id.index, txg });
        };
        if self.unflushed.insert((txg, id)) {
            log.metaslabs += 1;
        }
        Ok(())
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

    /// A metaslab whose unflushed txg is `txg` has its first change since it was flushed.
    pub fn mark_dirty(&mut self, txg: Txg) {
        self.summary.mark_dirty(txg);
    }

    /// Number of metaslabs with an unflushed txg.
    #[must_use]
    pub fn metaslab_count(&self) -> usize {
        self.unflushed.len()
    }

    /// Most blocks that the logs should have.
    #[must_use]
    pub fn block_limit(&self) -> u64 {
        self.summary.block_limit(&self.limits)
    }

    /// Takes the logs that no metaslab needs any more, oldest first; they are to be freed.
    pub fn take_obsolete(&mut self) -> Vec<LogMap> {
        let mut gone = Vec::new();
        let Some((oldest, _)) = self.oldest() else { return gone };
        while let Some(entry) = self.logs.first_entry()
            && *entry.key() < oldest
        {
            let (txg, log) = entry.remove_entry();
            self.blocks = self.blocks.saturating_sub(log.blocks);
            self.summary.remove_oldest_log(log.blocks);
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

    /// The summary.
    #[must_use]
    pub const fn summary(&self) -> &LogSummary {
        &self.summary
    }

    /// Blocks that a txg is expected to add: the mean of the latest complete logs before `txg`.
    #[must_use]
    pub fn incoming(&self, txg: Txg) -> u64 {
        let latest = self.logs.range(..txg).rev().take(LOGS_AVERAGED);
        let (count, blocks) = latest.fold((0_u64, 0_u64), |(count, sum), (_, log)| {
            (count + 1, sum.saturating_add(log.blocks))
        });
        blocks.div_ceil(count.max(1))
    }

    /// Metaslabs to flush in `txg`.
    #[must_use]
    pub fn flushes_due(&self, txg: Txg) -> u64 {
        let limit = self.summary.block_limit(&self.limits);
        self.summary.flushes_due(limit, self.blocks, self.incoming(txg), &self.limits)
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
        assert_eq!(book.summary().dirty_metaslabs(), 2);
        assert_eq!(book.take_obsolete(), []);
        book.remove(Txg(21), id(0), Freshness::Dirty);
        assert_eq!(book.oldest(), Some((Txg(27), id(1))));
        assert_eq!(book.take_obsolete(), [log(21), log(24)]);
        assert_eq!((book.blocks(), book.summary().dirty_metaslabs()), (5, 1));
    }

    proptest! {
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
                prop_assert_eq!(book.summary().dirty_metaslabs(), truth.len() as u64);
                let rows: u64 = book.summary().rows().map(|row| row.blocks).sum();
                prop_assert_eq!(rows, book.blocks());
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
