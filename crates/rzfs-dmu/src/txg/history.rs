//! The history of transaction groups (spec 06, section 23).

use rzfs_format::Txg;
use std::collections::VecDeque;
use std::time::Duration;

rzfs_kstat::kstat! {
    /// Statistics of a transaction group, with the names of OpenZFS's kstat `txgs`. Stages not
    /// reached yet are zero.
    pub struct TxgStats = "txgs" {
        /// When it was opened, relative to the pool.
        birth: Gauge Nanoseconds,
        /// Dirty bytes when it was quiesced.
        ndirty: Gauge Bytes,
        /// Bytes read from devices while it was synced.
        nread: Gauge Bytes,
        /// Bytes written to devices while it was synced.
        nwritten: Gauge Bytes,
        /// Reads of devices while it was synced.
        reads: Gauge Count,
        /// Writes to devices while it was synced.
        writes: Gauge Count,
        /// How long it was open.
        otime: Gauge Nanoseconds,
        /// How long its last transactions took to end.
        qtime: Gauge Nanoseconds,
        /// How long it waited to be synced.
        wtime: Gauge Nanoseconds,
        /// How long syncing took.
        stime: Gauge Nanoseconds,
    }
}

/// The stage of a transaction group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TxgState {
    /// Transactions join it.
    Open,
    /// Its last transactions are ending.
    Quiescing,
    /// It is waiting to be synced.
    Waiting,
    /// It is being synced.
    Syncing,
    /// It is on disk.
    Committed,
}

impl TxgState {
    /// OpenZFS's letter for it.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::Open => 'O',
            Self::Quiescing => 'Q',
            Self::Waiting => 'W',
            Self::Syncing => 'S',
            Self::Committed => 'C',
        }
    }
}

/// The record of a transaction group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TxgRecord {
    /// The group.
    pub txg: Txg,
    /// Its stage.
    pub state: TxgState,
    /// Its statistics.
    pub stats: TxgStats,
}

/// Device I/O while a group was synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TxgIo {
    /// Bytes read.
    pub nread: u64,
    /// Bytes written.
    pub nwritten: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

/// The last groups, the oldest first.
#[derive(Debug)]
pub(super) struct History {
    /// When the pool was opened.
    origin: Duration,
    /// Maximum number of groups kept.
    limit: usize,
    groups: VecDeque<Group>,
}

#[derive(Debug)]
struct Group {
    record: TxgRecord,
    /// When it reached its state.
    since: Duration,
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl History {
    /// A history of up to `limit` groups that starts with `open`, which was just opened.
    pub(super) fn new(limit: usize, open: Txg, now: Duration) -> Self {
        let mut history = Self { origin: now, limit, groups: VecDeque::new() };
        history.open(open, now);
        history
    }

    /// Adds a newly opened group.
    pub(super) fn open(&mut self, txg: Txg, now: Duration) {
        let birth = nanoseconds(now.saturating_sub(self.origin));
        let stats = TxgStats { birth, ..TxgStats::default() };
        let record = TxgRecord { txg, state: TxgState::Open, stats };
        self.groups.push_back(Group { record, since: now });
        let excess = self.groups.len().saturating_sub(self.limit);
        self.groups.drain(..excess);
    }

    /// Moves a group to its next state.
    pub(super) fn enter(&mut self, txg: Txg, state: TxgState, now: Duration) {
        let Some(group) = self.group(txg) else { return };
        let spent = nanoseconds(now.saturating_sub(group.since));
        let stats = &mut group.record.stats;
        match group.record.state {
            TxgState::Open => stats.otime = spent,
            TxgState::Quiescing => stats.qtime = spent,
            TxgState::Waiting => stats.wtime = spent,
            TxgState::Syncing => stats.stime = spent,
            TxgState::Committed => {}
        }
        (group.record.state, group.since) = (state, now);
    }

    /// Records a group's dirty bytes when it was quiesced.
    pub(super) fn note_dirty(&mut self, txg: Txg, bytes: u64) {
        if let Some(group) = self.group(txg) {
            group.record.stats.ndirty = bytes;
        }
    }

    /// Records the device I/O while a group was synced.
    pub(super) fn note_io(&mut self, txg: Txg, io: TxgIo) {
        if let Some(group) = self.group(txg) {
            let TxgIo { nread, nwritten, reads, writes } = io;
            let stats = &mut group.record.stats;
            (stats.nread, stats.nwritten) = (nread, nwritten);
            (stats.reads, stats.writes) = (reads, writes);
        }
    }

    fn group(&mut self, txg: Txg) -> Option<&mut Group> {
        self.groups.iter_mut().rev().find(|group| group.record.txg == txg)
    }

    pub(super) fn records(&self) -> Vec<TxgRecord> {
        self.groups.iter().map(|group| group.record).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_spends_its_time_in_states() {
        let start = Duration::from_secs(7);
        let at = |ns| start + Duration::from_nanos(ns);
        let mut history = History::new(2, Txg(8), start);
        history.enter(Txg(8), TxgState::Quiescing, at(10));
        history.open(Txg(9), at(10));
        history.enter(Txg(8), TxgState::Waiting, at(12));
        history.note_dirty(Txg(8), 512);
        history.enter(Txg(8), TxgState::Syncing, at(15));
        history.note_io(Txg(8), TxgIo { nread: 1, nwritten: 2, reads: 3, writes: 4 });
        history.enter(Txg(8), TxgState::Committed, at(55));
        let [eight, nine] = history.records()[..] else { panic!() };
        let expected = TxgStats {
            birth: 0,
            ndirty: 512,
            nread: 1,
            nwritten: 2,
            reads: 3,
            writes: 4,
            otime: 10,
            qtime: 2,
            wtime: 3,
            stime: 40,
        };
        assert_eq!((eight.txg, eight.state.letter(), eight.stats), (Txg(8), 'C', expected));
        assert_eq!((nine.txg, nine.state.letter(), nine.stats.birth), (Txg(9), 'O', 10));
        history.open(Txg(10), at(60));
        let left: Vec<_> = history.records().iter().map(|record| record.txg).collect();
        assert_eq!(left, [Txg(9), Txg(10)]);
        history.enter(Txg(8), TxgState::Committed, at(70));
        assert!(History::new(0, Txg(8), start).records().is_empty());
    }
}
