//! Records of txgs that are not on disk (spec 05, section 11.1).
//!
//! ```text
//! txg 7:  names:  CREATE a, CREATE b, REMOVE c        in the order in which they happened
//!         files:  a: WRITE, SETATTR    b: WRITE       in that order for each file
//! txg 8:  ...
//! ```
//! A commit of a file takes the records of that file and all name records, so that what it makes
//! durable can be found. Records that are never committed are dropped when their txg is on disk.

use rzfs_format::zil::WriteHeader;
use rzfs_format::{ObjectId, Txg};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Which other records a record is ordered with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogOrder {
    /// All name records: every commit takes it.
    Names,
    /// Those of one file: commits of other files skip it.
    File(ObjectId),
}

/// A write whose data is read when it is committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoggedWrite {
    /// The file.
    pub object: ObjectId,
    /// Its generation: its number may be reused by another file.
    pub generation: u64,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

/// A record waiting for a commit, or for its txg.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogRecord {
    /// An encoded record without txg and sequence number.
    Encoded(Vec<u8>),
    /// The same, of a kind that needs the feature `zilsaxattr`.
    Xattr(Vec<u8>),
    /// A write.
    Write(LoggedWrite),
}

impl LogRecord {
    /// Its size in log blocks, if it is not split.
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Encoded(bytes) | Self::Xattr(bytes) => bytes.len() as u64,
            Self::Write(write) => {
                let length = usize::try_from(write.length).unwrap_or(usize::MAX >> 1);
                WriteHeader::record_size(length) as u64
            }
        }
    }

    /// Merges a write that starts where this one ends.
    fn extend(&mut self, next: &Self) -> bool {
        let (Self::Write(write), Self::Write(next)) = (self, next) else { return false };
        let goes_on = write.offset.checked_add(write.length) == Some(next.offset)
            && write.object == next.object
            && write.generation == next.generation;
        let length = write.length.checked_add(next.length);
        match length.filter(|_| goes_on) {
            Some(length) => {
                write.length = length;
                true
            }
            None => false,
        }
    }
}

/// What a commit makes durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitScope {
    /// A file, and all names.
    File(ObjectId),
    /// Everything.
    All,
}

/// The combined scope of several commits.
#[derive(Clone, Default, Debug)]
pub(super) struct Scopes {
    files: BTreeSet<ObjectId>,
    has_all: bool,
}

impl Scopes {
    pub(super) fn add(&mut self, scope: CommitScope) {
        match scope {
            CommitScope::File(object) => {
                self.files.insert(object);
            }
            CommitScope::All => self.has_all = true,
        }
    }
}

/// Records of one txg.
#[derive(Default, Debug)]
struct TxgRecords {
    names: Vec<LogRecord>,
    files: HashMap<ObjectId, Vec<LogRecord>>,
}

impl TxgRecords {
    fn promote(&mut self, object: ObjectId) {
        if let Some(mut records) = self.files.remove(&object) {
            self.names.append(&mut records);
        }
    }

    fn promote_all(&mut self) {
        for (_, mut records) in std::mem::take(&mut self.files) {
            self.names.append(&mut records);
        }
    }
}

/// The records of all txgs that are not on disk.
#[derive(Default, Debug)]
pub(super) struct Pending {
    txgs: BTreeMap<Txg, TxgRecords>,
    /// The last txg with a change that has no record.
    unlogged: Option<Txg>,
}

impl Pending {
    pub(super) fn add(&mut self, txg: Txg, order: LogOrder, record: LogRecord) {
        let of_txg = self.txgs.entry(txg).or_default();
        let list = match order {
            LogOrder::Names => &mut of_txg.names,
            LogOrder::File(object) => of_txg.files.entry(object).or_default(),
        };
        if !list.last_mut().is_some_and(|last| last.extend(&record)) {
            list.push(record);
        }
    }

    /// Notes that a txg has a change without a record.
    pub(super) fn add_unlogged(&mut self, txg: Txg) {
        self.unlogged = self.unlogged.max(Some(txg));
    }

    /// Whether a txg after `synced` has changes that only its end makes durable.
    pub(super) fn has_unlogged(&self, synced: Txg) -> bool {
        self.unlogged.is_some_and(|txg| txg > synced)
    }

    /// Moves the records of a file to the names, ahead of what follows.
    pub(super) fn promote(&mut self, object: ObjectId) {
        self.txgs.values_mut().for_each(|records| records.promote(object));
    }

    /// Drops the records of a deleted file: its number may be reused.
    pub(super) fn forget(&mut self, object: ObjectId) {
        for records in self.txgs.values_mut() {
            records.files.remove(&object);
        }
    }

    /// Takes the records a commit has to write: those of txgs after `synced`.
    pub(super) fn take(&mut self, scopes: &Scopes, synced: Txg) -> Vec<(Txg, LogRecord)> {
        let mut taken = Vec::new();
        for (txg, records) in self.txgs.range_mut(synced.next()..) {
            if scopes.has_all {
                records.promote_all();
            }
            scopes.files.iter().for_each(|object| records.promote(*object));
            taken.extend(std::mem::take(&mut records.names).into_iter().map(|one| (*txg, one)));
        }
        taken
    }

    /// Drops the records of txgs that are on disk.
    pub(super) fn settle(&mut self, synced: Txg) {
        self.txgs = self.txgs.split_off(&synced.next());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.txgs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(object: u64, offset: u64, length: u64) -> LogRecord {
        let object = ObjectId(object);
        LogRecord::Write(LoggedWrite { object, generation: 1, offset, length })
    }

    fn name(tag: u8) -> LogRecord {
        LogRecord::Encoded(vec![tag])
    }

    fn scopes(all: &[CommitScope]) -> Scopes {
        let mut scopes = Scopes::default();
        all.iter().for_each(|scope| scopes.add(*scope));
        scopes
    }

    const FIVE: LogOrder = LogOrder::File(ObjectId(5));
    const SIX: LogOrder = LogOrder::File(ObjectId(6));

    #[test]
    fn a_commit_takes_names_and_its_file_in_order() {
        let mut pending = Pending::default();
        pending.add(Txg(8), FIVE, write(5, 0, 10));
        pending.add(Txg(7), LogOrder::Names, name(1));
        pending.add(Txg(7), FIVE, write(5, 100, 10));
        pending.add(Txg(7), SIX, write(6, 0, 10));
        pending.add(Txg(7), LogOrder::Names, name(2));
        let taken = pending.take(&scopes(&[CommitScope::File(ObjectId(5))]), Txg(6));
        let expected = [
            (Txg(7), name(1)),
            (Txg(7), name(2)),
            (Txg(7), write(5, 100, 10)),
            (Txg(8), write(5, 0, 10)),
        ];
        assert_eq!(taken, expected);
        let taken = pending.take(&scopes(&[CommitScope::All]), Txg(6));
        assert_eq!(taken, [(Txg(7), write(6, 0, 10))]);
        assert!(pending.take(&scopes(&[CommitScope::All]), Txg(6)).is_empty());
    }

    #[test]
    fn what_is_on_disk_is_not_written_again() {
        let mut pending = Pending::default();
        pending.add(Txg(7), LogOrder::Names, name(1));
        pending.add(Txg(8), LogOrder::Names, name(2));
        pending.add_unlogged(Txg(8));
        let taken = pending.take(&scopes(&[CommitScope::All]), Txg(7));
        assert_eq!(taken, [(Txg(8), name(2))]);
        assert!(pending.has_unlogged(Txg(7)) && !pending.has_unlogged(Txg(8)));
        pending.settle(Txg(7));
        assert!(!pending.is_empty());
        pending.settle(Txg(8));
        assert!(pending.is_empty());
    }

    #[test]
    fn writes_one_after_another_are_one_record() {
        let mut pending = Pending::default();
        for offset in [0, 10, 20, 40, 50] {
            pending.add(Txg(7), FIVE, write(5, offset, 10));
        }
        pending.add(Txg(7), FIVE, name(1));
        pending.add(Txg(7), FIVE, write(5, 60, 10));
        pending.add(Txg(7), FIVE, write(5, u64::MAX - 9, 10));
        pending.add(Txg(7), FIVE, write(5, 0, 10));
        let taken = pending.take(&scopes(&[CommitScope::All]), Txg(6));
        let records: Vec<_> = taken.into_iter().map(|(_, record)| record).collect();
        let last = [write(5, 60, 10), write(5, u64::MAX - 9, 10), write(5, 0, 10)];
        let expected = [write(5, 0, 30), write(5, 40, 20), name(1)].into_iter().chain(last);
        assert_eq!(records, expected.collect::<Vec<_>>());
    }

    #[test]
    fn records_of_files_that_go_or_move_do_not_stay_behind() {
        let mut pending = Pending::default();
        pending.add(Txg(7), FIVE, write(5, 0, 10));
        pending.add(Txg(7), SIX, write(6, 0, 10));
        pending.forget(ObjectId(5));
        pending.promote(ObjectId(6));
        pending.add(Txg(7), LogOrder::Names, name(1));
        let taken = pending.take(&scopes(&[CommitScope::File(ObjectId(9))]), Txg(6));
        assert_eq!(taken, [(Txg(7), write(6, 0, 10)), (Txg(7), name(1))]);
    }
}
