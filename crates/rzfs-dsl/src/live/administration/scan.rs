//! Scans started by other software, and how dataset changes affect them (spec 04, section 20.5).

use super::{TaskContext, TaskError};
use crate::live::LiveError;
use crate::mos::{MosSource, OBJECT_DIRECTORY as DIRECTORY, number_key};
use rzfs_format::ObjectId;
use rzfs_zap::{IntegerSize, ZapValue};

const FIELD: &str = "scan";
/// Words of the record: the scan's function, the ZAP of datasets still to be visited, its flags,
/// and the bookmark where it continues.
const STATE: usize = 1;
const QUEUE: usize = 2;
const FLAGS: usize = 23;
const BOOKMARK: usize = 19;

const SCANNING: u64 = 1;
/// The dataset at the bookmark must be visited again from its beginning.
const VISIT_AGAIN: u64 = 1;

/// The record of a scan in progress.
struct Scan(Vec<u64>);

impl Scan {
    fn queue(&self) -> Option<ObjectId> {
        ObjectId(*self.0.get(QUEUE)?).non_zero()
    }

    fn is_at(&self, dataset: ObjectId) -> bool {
        self.0.get(BOOKMARK) == Some(&dataset.get())
    }

    fn set(&mut self, word: usize, value: u64) {
        if let Some(slot) = self.0.get_mut(word) {
            *slot = value;
        }
    }
}

impl TaskContext<'_> {
    fn scan(&self) -> Result<Option<Scan>, LiveError> {
        let Some(value) = self.mos.lookup(DIRECTORY, FIELD)? else { return Ok(None) };
        let words: Vec<u64> = value.integers().collect();
        Ok((words.get(STATE) == Some(&SCANNING)).then_some(Scan(words)))
    }

    fn set_scan(&self, scan: &Scan) -> Result<(), LiveError> {
        self.mos.set(DIRECTORY, FIELD, ZapValue::new(IntegerSize::Eight, &scan.0))
    }

    /// Replaces a dataset in the queue by another one.
    fn requeue(&self, scan: &Scan, from: ObjectId, to: ObjectId) -> Result<(), LiveError> {
        let Some(queue) = scan.queue() else { return Ok(()) };
        let key = number_key(from.get());
        let Some(since) = self.mos.lookup(queue, key.as_str())? else { return Ok(()) };
        self.mos.remove(queue, key.as_str())?;
        self.mos.set(queue, &number_key(to.get()), since)
    }

    /// Skips a head that is destroyed.
    pub(super) fn remove_head_from_scan(&mut self, head: ObjectId) -> Result<(), TaskError> {
        let Some(mut scan) = self.scan()? else { return Ok(()) };
        if let Some(queue) = scan.queue() {
            self.mos.remove(queue, number_key(head.get()).as_str())?;
        }
        if scan.is_at(head) {
            for (word, value) in [u64::MAX, 0, 0, 0].into_iter().enumerate() {
                scan.set(BOOKMARK + word, value);
            }
            self.set_scan(&scan)?;
        }
        Ok(())
    }

    /// Makes a scan visit a newly taken snapshot instead of its head.
    pub(super) fn follow_snapshot_in_scan(
        &mut self,
        head: ObjectId,
        snapshot: ObjectId,
    ) -> Result<(), LiveError> {
        let Some(mut scan) = self.scan()? else { return Ok(()) };
        self.requeue(&scan, head, snapshot)?;
        if scan.is_at(head) {
            scan.set(BOOKMARK, snapshot.get());
            self.set_scan(&scan)?;
        }
        Ok(())
    }

    /// Makes a scan visit the successor of a snapshot that is destroyed.
    pub(super) fn remove_snapshot_from_scan(
        &mut self,
        snapshot: ObjectId,
        next: ObjectId,
    ) -> Result<(), LiveError> {
        let Some(mut scan) = self.scan()? else { return Ok(()) };
        self.requeue(&scan, snapshot, next)?;
        if scan.is_at(snapshot) {
            scan.set(BOOKMARK, next.get());
            let flags = scan.0.get(FLAGS).copied().unwrap_or_default();
            scan.set(FLAGS, flags | VISIT_AGAIN);
            self.set_scan(&scan)?;
        }
        Ok(())
    }
}
