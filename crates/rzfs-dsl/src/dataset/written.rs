//! How much was written since some earlier point in a dataset's history (spec 04, section 12.1).
//!
//! ```text
//! origin -> snapshot 1 -> snapshot 2 -> head
//!              since         X1          X2
//! ```
//! What X2 has and `since` has not: the difference in referenced bytes, plus what was freed in
//! between. The dead list of X1 has all of the latter that was freed before snapshot 2; the later
//! dead lists have the rest, among blocks that are younger than `since`.

use super::property::{Property, PropertySource, PropertyValue};
use super::{Dataset, DatasetError};
use crate::live::amounts::Deflation;
use crate::mos::{MosSource, OBJECT_DIRECTORY, deadlist};
use rzfs_format::dsl::DslDataset;
use rzfs_format::{FormatError, ObjectId, Txg};

/// An earlier point in the history of a dataset.
#[derive(Clone, Copy, Debug)]
struct Since {
    txg: Txg,
    /// The snapshot, if it is one.
    snapshot: Option<ObjectId>,
    referenced: u64,
    /// Bytes freed before the next snapshot, if known.
    freed_before_next: Option<u64>,
}

impl Dataset {
    /// Bytes referenced here that the snapshot did not reference; `None` unless it is an earlier
    /// snapshot of this dataset or of its origin.
    pub fn written_since(&self, snapshot: &Dataset) -> Result<Option<u64>, DatasetError> {
        if !snapshot.is_snapshot() {
            return Ok(None);
        }
        self.written_after(Since {
            txg: snapshot.dataset.creation_txg,
            snapshot: Some(snapshot.object),
            referenced: snapshot.dataset.referenced,
            freed_before_next: None,
        })
    }

    /// Bytes freed when this snapshot and all later ones up to `last` are destroyed; `None` unless
    /// these are snapshots of one head in this order.
    pub fn reclaimed_up_to(&self, last: &Dataset) -> Result<Option<u64>, DatasetError> {
        let since = self.dataset.previous_snapshot_txg;
        let mut bytes = 0_u64;
        let mut id = last.object;
        loop {
            let (_, snapshot) = self.tree.dataset_object(id)?;
            let Some(next) = snapshot.next_snapshot.filter(|_| snapshot.dir == self.dataset.dir)
            else {
                return Ok(None);
            };
            let (_, next) = self.tree.dataset_object(next)?;
            if let Some(list) = next.deadlist {
                let mos = self.tree.mos();
                let deflate = mos.number(OBJECT_DIRECTORY, "deflate")?;
                let vdevs = mos.pipeline().vdevs();
                let deflation = Deflation::new(&vdevs, deflate.is_some_and(|deflate| deflate != 0));
                let sums = deadlist::sums_of(mos, list, since..deadlist::END, deflation)?;
                bytes = bytes.saturating_add(sums.used.unsigned_abs());
            }
            if id == self.object {
                return Ok(Some(bytes));
            }
            let Some(previous) = snapshot.previous_snapshot else { return Ok(None) };
            if snapshot.creation_txg <= self.dataset.creation_txg {
                return Ok(None);
            }
            id = previous;
        }
    }

    /// Bytes written since the previous snapshot; `None` when there is none.
    pub(super) fn written(&self) -> Result<Option<u64>, DatasetError> {
        let Some(previous) = self.dataset.previous_snapshot else { return Ok(None) };
        let (_, snapshot) = self.tree.dataset_object(previous)?;
        self.written_after(Since {
            txg: snapshot.creation_txg,
            snapshot: Some(previous),
            referenced: snapshot.referenced,
            freed_before_next: None,
        })
    }

    /// The properties `written@SNAPSHOT` and `written#BOOKMARK`; `None` when `name` is neither or
    /// there is nothing to compare with.
    pub(super) fn written_property(&self, name: &str) -> Result<Option<Property>, DatasetError> {
        let written = if let Some(snapshot) = name.strip_prefix("written@") {
            let snapshot = if snapshot.contains('@') {
                self.tree.open(snapshot).map(Some)
            } else {
                self.head()?.snapshot(snapshot)
            };
            match snapshot {
                Ok(Some(snapshot)) => self.written_since(&snapshot)?,
                Ok(None) | Err(DatasetError::NotFound { .. }) => None,
                Err(error) => return Err(error),
            }
        } else if let Some(bookmark) = name.strip_prefix("written#") {
            match self.head()?.bookmark(bookmark)? {
                Some(bookmark) if bookmark.record().has_sums() => {
                    let record = bookmark.record();
                    self.written_after(Since {
                        txg: record.creation_txg,
                        snapshot: None,
                        referenced: record.referenced.used,
                        freed_before_next: Some(record.freed_before_next.used),
                    })?
                }
                _ => None,
            }
        } else {
            None
        };
        Ok(written.map(|bytes| Property {
            name: name.to_owned(),
            value: Some(PropertyValue::Number(bytes)),
            source: PropertySource::None,
            received: None,
        }))
    }

    fn written_after(&self, since: Since) -> Result<Option<u64>, DatasetError> {
        if since.txg >= self.dataset.creation_txg && self.is_snapshot() {
            return Ok(None);
        }
        let mut freed = 0_u64;
        let mut current = self.dataset.clone();
        while current.previous_snapshot_txg > since.txg {
            freed = freed.saturating_add(self.freed_in(&current, Some(since.txg))?);
            let Some(previous) = current.previous_snapshot else { return Ok(None) };
            let (_, earlier) = self.tree.dataset_object(previous)?;
            if earlier.previous_snapshot_txg >= current.previous_snapshot_txg {
                let problem = FormatError::invalid("DSL dataset", "snapshots are not in order");
                return Err(self.tree.corrupt(previous, problem));
            }
            current = earlier;
        }
        if since.snapshot.is_some() && current.previous_snapshot != since.snapshot {
            return Ok(None);
        }
        freed = freed.saturating_add(match since.freed_before_next {
            Some(known) => known,
            None => self.freed_in(&current, None)?,
        });
        let now = u128::from(self.dataset.referenced) + u128::from(freed);
        let written = now.saturating_sub(u128::from(since.referenced));
        Ok(Some(u64::try_from(written).unwrap_or(u64::MAX)))
    }

    /// Bytes on a dataset's dead list; with `up_to` only of blocks born by that txg.
    fn freed_in(&self, dataset: &DslDataset, up_to: Option<Txg>) -> Result<u64, DatasetError> {
        let Some(id) = dataset.deadlist else { return Ok(0) };
        let mos = self.tree.mos();
        let Some(txg) = up_to else { return Ok(deadlist::sums(mos, id)?.used) };
        let deflate = mos.number(OBJECT_DIRECTORY, "deflate")?;
        let vdevs = mos.pipeline().vdevs();
        let deflation = Deflation::new(&vdevs, deflate.is_some_and(|deflate| deflate != 0));
        let sums = deadlist::sums_of(mos, id, Txg(0)..txg, deflation)?;
        Ok(sums.used.unsigned_abs())
    }
}
