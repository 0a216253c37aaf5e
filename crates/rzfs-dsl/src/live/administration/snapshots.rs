//! Snapshots: taking, renaming and destroying them, and holding them (spec 04, sections 7, 9, 11.6
//! and 16).
//!
//! A head, its snapshots and its origin form a chain, in which each refers to its predecessor and,
//! except for the origin, to its successor:
//! ```text
//!            next ──>          next ──>
//! origin ─ ─ snapshot 1 ────── snapshot 2 ────── head
//!   <── previous     <── previous       <── previous
//! ```
//! Blocks of the predecessor that are missing here are on this one's dead list.

mod destruction;
pub(super) mod holds;
mod renaming;
mod taking;

use super::place::Place;
use super::{TaskContext, TaskError};
use crate::dataset::DatasetName;
use crate::live::LiveError;
use crate::live::change_error::ChangeError;
use crate::mos::extensible::{is_extended, zapify};
use crate::mos::{MosSource, names, number_key};
use rzfs_format::dsl::DslDataset;
use rzfs_format::features::Feature;
use rzfs_format::object_type::ObjectType;
use rzfs_format::property::DatasetProperty;
use rzfs_format::{FormatError, ObjectId};
use rzfs_zap::{IntegerSize, ZapValue};
use std::collections::BTreeSet;

pub use destruction::Destruction;
pub use taking::NewSnapshots;
pub(super) use taking::SnapshotPlan;

/// A snapshot with the head that it belongs to.
#[derive(Clone, Debug)]
pub(super) struct SnapshotPlace {
    /// The head.
    pub(super) of: Place,
    /// Its own name, in stored form.
    pub(super) name: String,
    pub(super) id: ObjectId,
}

impl SnapshotPlace {
    /// `pool/file system@snapshot`.
    pub(super) fn full_name(&self) -> String {
        format!("{}@{}", self.of.name, self.name)
    }
}

/// The two parts of the name of a snapshot.
pub(super) fn parts(name: &str) -> Result<(&str, &str), ChangeError> {
    if name.len() > DatasetName::MAX_LEN {
        return Err(ChangeError::NameTooLong { name: name.to_owned() });
    }
    let parsed = DatasetName::parse(name);
    let parts = parsed.and_then(|parsed| Some((parsed.head(), parsed.snapshot()?)));
    parts.ok_or_else(|| ChangeError::InvalidName { name: name.to_owned() })
}

impl TaskContext<'_> {
    /// The snapshot with this name, if there is one.
    pub(super) fn find_snapshot(&mut self, name: &str) -> Result<Option<SnapshotPlace>, TaskError> {
        let (head, snapshot) = parts(name)?;
        let Some(of) = self.find(head)? else { return Ok(None) };
        let found = names::snapshot(&self.mos, &self.dataset(of.head)?, snapshot)?;
        let Some((name, id)) = found else { return Ok(None) };
        let dataset = self.dataset(id)?;
        if !dataset.is_snapshot() || dataset.dir != of.dir {
            let problem = FormatError::invalid("DSL dataset", "it is not a snapshot of its head");
            return Err(LiveError::corrupt(id)(problem).into());
        }
        Ok(Some(SnapshotPlace { of, name, id }))
    }

    /// The snapshot with this name.
    pub(super) fn snapshot(&mut self, name: &str) -> Result<SnapshotPlace, TaskError> {
        let not_found = || ChangeError::NotFound { name: name.to_owned() };
        Ok(self.find_snapshot(name)?.ok_or_else(not_found)?)
    }

    /// A snapshot by its object.
    pub(super) fn snapshot_of(&mut self, id: ObjectId) -> Result<SnapshotPlace, LiveError> {
        let dir = self.dataset(id)?.dir;
        let missing = || FormatError::invalid("DSL dataset", "a snapshot has no head");
        let head = self.dir(dir)?.head_dataset.ok_or_else(missing);
        let head = head.map_err(LiveError::corrupt(id))?;
        let snapshots = names::all(&self.mos, self.dataset(head)?.snapshot_names)?;
        let name = snapshots.into_iter().find(|(_, snapshot)| *snapshot == id);
        let missing = || FormatError::invalid("DSL dataset", "a snapshot has no name");
        let (name, _) = name.ok_or_else(missing).map_err(LiveError::corrupt(id))?;
        let of = Place { name: self.name_of(dir)?, dir, head };
        Ok(SnapshotPlace { of, name, id })
    }

    /// Checks each of several names: if one is refused, all are, with a reason each.
    pub(super) fn check_each<T>(
        &mut self,
        names: &[String],
        mut check: impl FnMut(&mut Self, &str) -> Result<T, TaskError>,
    ) -> Result<Vec<T>, TaskError> {
        let mut checked = Vec::with_capacity(names.len());
        let mut refused = Vec::new();
        for name in names {
            match self.check(|this| check(this, name)) {
                Ok(one) => checked.push(one),
                Err(TaskError::Refused(error)) => refused.push((name.clone(), error)),
                Err(failed) => return Err(failed),
            }
        }
        if refused.is_empty() { Ok(checked) } else { Err(ChangeError::Each(refused).into()) }
    }

    /// As [`TaskContext::check_each`], for distinct snapshots.
    fn check_snapshots(
        &mut self,
        names: &[String],
        check: impl FnMut(&mut Self, &str) -> Result<Option<SnapshotPlace>, TaskError>,
    ) -> Result<Vec<SnapshotPlace>, TaskError> {
        let mut places: Vec<_> = self.check_each(names, check)?.into_iter().flatten().collect();
        let mut seen = BTreeSet::new();
        places.retain(|place| seen.insert(place.id));
        Ok(places)
    }

    /// The ZAP of the names of a head's snapshots.
    pub(super) fn snapshot_names(
        &self,
        head: (ObjectId, &DslDataset),
    ) -> Result<ObjectId, LiveError> {
        let missing = || FormatError::invalid("DSL dataset", "it has no map of snapshots");
        head.1.snapshot_names.ok_or_else(missing).map_err(LiveError::corrupt(head.0))
    }

    /// Makes the predecessor of a dataset refer to `to` instead of `from`: as its successor, or as
    /// one of its clones.
    fn relink(
        &mut self,
        previous: ObjectId,
        (from, to): (ObjectId, ObjectId),
    ) -> Result<(), LiveError> {
        let mut record = self.dataset(previous)?;
        if record.next_snapshot == Some(from) {
            record.next_snapshot = Some(to);
            return self.mos.set_record(previous, &record);
        }
        let Some(clones) = record.next_clones else { return Ok(()) };
        self.mos.remove(clones, number_key(from.get()).as_str())?;
        self.mos.set(clones, &number_key(to.get()), to.get())
    }

    /// Records when the snapshots of a directory changed.
    pub(super) fn note_change(&mut self, dir: ObjectId) -> Result<(), LiveError> {
        if !self.state.features.is_enabled(Feature::ExtensibleDataset) {
            return Ok(());
        }
        let now = self.pool.environment.now_exactly();
        zapify(&self.mos, &mut self.state.features, dir)?;
        let value = ZapValue::new(IntegerSize::Eight, &[now.as_secs(), now.subsec_nanos().into()]);
        self.mos.set(dir, DatasetProperty::SnapshotsChanged.stored_name(), value)
    }

    /// Copies the features in use of one dataset to another (spec 04, section 3.4).
    pub(super) fn copy_features(&mut self, from: ObjectId, to: ObjectId) -> Result<(), LiveError> {
        let mos = self.mos;
        if !is_extended(&mos, from)? {
            return Ok(());
        }
        for feature in Feature::ALL.iter().copied().filter(|feature| feature.is_per_dataset()) {
            if let Some(value) = mos.lookup(from, feature.guid())? {
                zapify(&mos, &mut self.state.features, to)?;
                mos.set(to, feature.guid(), value)?;
                self.state.features.add(&mos, feature, 1)?;
            }
        }
        Ok(())
    }

    /// The ZAP of holds of a snapshot, created if needed.
    fn holds_of(&mut self, id: ObjectId) -> Result<ObjectId, LiveError> {
        let mut record = self.dataset(id)?;
        if let Some(zap) = record.user_references {
            return Ok(zap);
        }
        let zap = self.mos.create_zap(ObjectType::USERREFS)?;
        record.user_references = Some(zap);
        self.mos.set_record(id, &record)?;
        Ok(zap)
    }
}
