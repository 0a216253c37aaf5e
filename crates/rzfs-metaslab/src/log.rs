//! Log space maps: the changes of all metaslabs of a pool, one map per txg (spec 06, section 13).
//!
//! Appending to the maps of all metaslabs changed in a txg would write hundreds of blocks for a few
//! words each. Instead one log takes all changes of a txg, and metaslabs are brought up to date
//! ("flushed") in turn, a few per txg. So the state of a metaslab is its own map, followed by all
//! entries for it in the logs from its unflushed txg on:
//!
//! ```text
//! own map of metaslab m:   all changes of txgs < U(m)
//! logs:                    ... | U(m)-1 | U(m) | U(m)+1 | ... | last
//!                              obsolete for m  |  valid for m
//! ```

pub mod book;

pub use crate::store::LogMap;

use crate::MetaslabError;
use crate::metaslab::VdevMetaslabs;
use crate::space_map::SpaceMap;
use crate::store::SpaceMapStore;
use rzfs_format::space_map::{Entry, Geometry, Run};
use rzfs_format::{Txg, VdevId};
use std::collections::BTreeMap;
use std::ops::Range;

/// The txg that a key of the ZAP of logs names: lower-case hex without leading zeros.
#[must_use]
pub fn txg_of_key(key: &[u8]) -> Option<Txg> {
    let canonical = !key.is_empty()
        && key.len() <= 16
        && (key.first() != Some(&b'0') || key.len() == 1)
        && key.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let text = std::str::from_utf8(key).ok().filter(|_| canonical)?;
    u64::from_str_radix(text, 16).ok().map(Txg)
}

/// Usage statistics of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogStatistics {
    /// The log.
    pub log: LogMap,
    /// Allocations and frees in it.
    pub entries: u64,
    /// Those not yet in the own maps of their metaslabs.
    pub valid: u64,
    /// Blocks that the log has.
    pub blocks: u64,
}

/// A top-level vdev from the point of view of log entries.
#[derive(Clone, Debug)]
pub enum LoggedVdev {
    /// It has metaslabs.
    Concrete(VdevMetaslabs),
    /// It was removed, or is a hole or missing: its entries no longer matter.
    Gone,
}

/// The metaslabs of all top-level vdevs of a pool, with the logged changes.
#[derive(Clone, Debug, Default)]
pub struct PoolMetaslabs {
    vdevs: BTreeMap<VdevId, LoggedVdev>,
    logs: Vec<LogStatistics>,
}

impl PoolMetaslabs {
    /// The vdevs, without logged changes so far.
    #[must_use]
    pub fn new(vdevs: BTreeMap<VdevId, LoggedVdev>) -> Self {
        Self { vdevs, logs: Vec::new() }
    }

    /// The vdevs, and what was replayed.
    pub(crate) fn into_parts(self) -> (BTreeMap<VdevId, LoggedVdev>, Vec<LogStatistics>) {
        (self.vdevs, self.logs)
    }

    /// The vdevs that have metaslabs.
    pub fn vdevs(&self) -> impl Iterator<Item = &VdevMetaslabs> {
        self.vdevs.values().filter_map(|vdev| match vdev {
            LoggedVdev::Concrete(metaslabs) => Some(metaslabs),
            LoggedVdev::Gone => None,
        })
    }

    /// The metaslabs of one vdev, if it has any.
    #[must_use]
    pub fn vdev(&self, vdev: VdevId) -> Option<&VdevMetaslabs> {
        match self.vdevs.get(&vdev)? {
            LoggedVdev::Concrete(metaslabs) => Some(metaslabs),
            LoggedVdev::Gone => None,
        }
    }

    /// What was replayed, by txg.
    #[must_use]
    pub fn logs(&self) -> &[LogStatistics] {
        &self.logs
    }

    /// Net bytes that the logs allocate beyond the metaslabs' own maps; saturates.
    #[must_use]
    pub fn unflushed_net(&self) -> i64 {
        self.vdevs()
            .flat_map(VdevMetaslabs::metaslabs)
            .fold(0, |sum: i64, metaslab| sum.saturating_add(metaslab.unflushed_net()))
    }

    /// Replays all logs of the pool in the order of their txgs (spec 06, section 13.10).
    ///
    /// Fails if a metaslab refers to a missing log, or if an entry contradicts the known state. It
    /// must be called once, with all logs.
    pub fn replay(
        &mut self,
        store: &impl SpaceMapStore,
        logs: &[LogMap],
    ) -> Result<(), MetaslabError> {
        let mut logs = logs.to_vec();
        logs.sort_unstable();
        self.check_references(&logs)?;
        let mut maps = Vec::with_capacity(logs.len());
        for log in logs {
            maps.push((log, SpaceMap::open(store, log.object, Geometry::LOG)?));
        }
        let soon: Vec<_> =
            maps.iter().map(|(log, map)| (log.object, map.header().length)).collect();
        store.prefetch(&soon);
        for (log, map) in &maps {
            let statistics = self.replay_log(store, *log, map)?;
            self.logs.push(statistics);
        }
        Ok(())
    }

    fn check_references(&self, logs: &[LogMap]) -> Result<(), MetaslabError> {
        for vdev in self.vdevs() {
            for metaslab in vdev.metaslabs() {
                let txg = metaslab.unflushed_txg();
                if txg != Txg(0) && logs.binary_search_by_key(&txg, |log| log.txg).is_err() {
                    return Err(MetaslabError::NoLog {
                        vdev: vdev.geometry().vdev,
                        metaslab: metaslab.id(),
                        txg,
                    });
                }
            }
        }
        Ok(())
    }

    fn replay_log(
        &mut self,
        store: &impl SpaceMapStore,
        log: LogMap,
        map: &SpaceMap,
    ) -> Result<LogStatistics, MetaslabError> {
        let mut statistics = LogStatistics { log, entries: 0, valid: 0, blocks: map.block_count() };
        map.visit(store, |word, entry| {
            let Entry::Run(run) = entry else { return Ok(()) };
            let range = map.geometry().range(&run).map_err(MetaslabError::format(log.object))?;
            statistics.entries += 1;
            if self.apply(log, word, &run, range)? == Validity::Valid {
                statistics.valid += 1;
            }
            Ok(())
        })?;
        Ok(statistics)
    }

    fn apply(
        &mut self,
        log: LogMap,
        word: u64,
        run: &Run,
        range: Range<u64>,
    ) -> Result<Validity, MetaslabError> {
        let no_metaslab = || MetaslabError::LogEntry {
            object: log.object,
            txg: log.txg,
            word,
            vdev: run.vdev(),
            offset: range.start,
            length: range.end - range.start,
        };
        let vdev = match run.vdev().and_then(|vdev| self.vdevs.get_mut(&vdev)) {
            Some(LoggedVdev::Concrete(vdev)) => vdev,
            Some(LoggedVdev::Gone) => return Ok(Validity::Obsolete),
            None => return Err(no_metaslab()),
        };
        let metaslab = vdev
            .metaslab_of_mut(range.start)
            .filter(|m| m.range().start <= range.start && range.end <= m.range().end)
            .ok_or_else(no_metaslab)?;
        if log.txg < metaslab.unflushed_txg() {
            return Ok(Validity::Obsolete);
        }
        metaslab.log(run.action, range.clone()).map_err(|source| MetaslabError::Conflict {
            object: log.object,
            word,
            source,
        })?;
        Ok(Validity::Valid)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Validity {
    Valid,
    Obsolete,
}

#[cfg(test)]
mod tests;
