//! Taking snapshots (spec 04, section 7).

use super::parts;
use crate::dataset::property::DatasetProperty;
use crate::live::LiveError;
use crate::live::administration::counts::Counted;
use crate::live::administration::destruction::{Outcome, REMAPPED};
use crate::live::administration::place::Place;
use crate::live::administration::{TaskContext, TaskError};
use crate::live::amounts::SpaceDelta;
use crate::live::change_error::ChangeError;
use crate::live::datasets::dir::{SpaceClass, SpaceTrial};
use crate::live::error::UnlessDamaged;
use crate::live::space::limits::SpaceTier;
use crate::mos::extensible::{check_fields, is_extended, zapify};
use crate::mos::key_object::IV_SET;
use crate::mos::{MosSource, deadlist, names};
use rzfs_dmu::live::Transaction;
use rzfs_format::dsl::DslDataset;
use rzfs_format::features::Feature;
use rzfs_format::object_type::ObjectType;
use rzfs_format::{FormatError, ObjectId, Txg};
use rzfs_zap::ZapValue;
use std::collections::BTreeSet;

/// Snapshots to take together in one txg.
#[derive(Clone, Debug, Default)]
pub struct NewSnapshots {
    /// Their names, at most one per head.
    pub names: Vec<String>,
    /// The properties of each of them, in stored form.
    pub properties: Vec<(String, ZapValue)>,
}

/// A checked snapshot.
pub(in crate::live::administration) struct SnapshotPlan {
    pub(in crate::live::administration) name: String,
    pub(in crate::live::administration) place: Place,
    pub(in crate::live::administration) head: DslDataset,
    /// The reservation that replaces what the snapshot keeps.
    pub(in crate::live::administration) reserved: u64,
    pub(in crate::live::administration) when: Outcome,
}

impl TaskContext<'_> {
    /// Takes snapshots: all of them, or none.
    pub(crate) fn take_snapshots(&mut self, new: &NewSnapshots) -> Result<Outcome, TaskError> {
        let (mut heads, mut trial) = (BTreeSet::new(), SpaceTrial::default());
        let plans = self.check_each(&new.names, |this, name| {
            let plan = this.check_snapshot(name)?;
            if !heads.insert(plan.place.head) {
                return Err(ChangeError::SameHead { name: name.to_owned() }.into());
            }
            // The next one gets the room that this one leaves.
            if plan.reserved > this.available_in(&trial, plan.place.dir)? {
                return Err(ChangeError::NoSpace.into());
            }
            this.try_charge(&mut trial, plan.place.dir, plan.reserved)?;
            Ok(plan)
        })?;
        let properties = self.check_snapshot_properties(&new.properties)?;
        self.require_space(SpaceTier::Normal)?;
        if plans.iter().any(|plan| plan.when == Outcome::Later) {
            return Ok(Outcome::Later);
        }
        for plan in &plans {
            let id = self.take_snapshot(plan)?;
            if !properties.is_empty() {
                let name = format!("{}@{}", plan.place.name, plan.name);
                let snapshot = self.dataset(id)?;
                self.store_snapshot_properties(&name, (id, snapshot), &plan.place, &properties)?;
            }
        }
        Ok(Outcome::Done)
    }

    fn check_snapshot(&mut self, name: &str) -> Result<SnapshotPlan, TaskError> {
        let (head_name, snapshot) = parts(name)?;
        if name.contains('%') {
            return Err(ChangeError::InvalidName { name: name.to_owned() }.into());
        }
        let place = self.head(head_name)?;
        let head = self.dataset(place.head)?;
        if head.is_inconsistent() {
            return Err(ChangeError::Busy { name: head_name.to_owned() }.into());
        }
        self.plan_snapshot(place, head, snapshot)
    }

    /// Checks that a head, or a receive in progress, can get a snapshot.
    pub(in crate::live::administration) fn plan_snapshot(
        &mut self,
        place: Place,
        head: DslDataset,
        snapshot: &str,
    ) -> Result<SnapshotPlan, TaskError> {
        if names::snapshot(&self.mos, &head, snapshot)?.is_some() {
            let name = format!("{}@{snapshot}", place.name);
            return Err(ChangeError::Exists { name }.into());
        }
        let names = self.snapshot_names((place.head, &head))?;
        self.mos.check_zap(names)?;
        self.check_counts(place.dir)?;
        check_fields(&self.mos, place.head)?;
        self.keys_behind(&place, &head)?;
        if let Some(previous) = head.previous_snapshot {
            let clones = self.dataset(previous)?.next_clones;
            clones.map_or(Ok(()), |clones| self.mos.check_zap(clones))?;
        }
        let reserved = self.own_number(place.dir, DatasetProperty::RefReservation)?;
        let reserved = reserved.min(head.unique);
        if reserved > self.available(place.dir)? {
            return Err(ChangeError::NoSpace.into());
        }
        let txg = self.mos.tx().txg();
        // New objects of this txg are not written yet, and a txg has one snapshot per head.
        let is_dirty = self.pool.heads.get(place.head).is_some_and(|open| open.is_dirty(txg));
        if head.previous_snapshot_txg > txg || (head.root.is_hole() && !is_dirty) {
            let problem = FormatError::invalid("DSL dataset", "no snapshot can follow");
            return Err(LiveError::corrupt(place.head)(problem).into());
        }
        let is_written = !head.root.is_hole() && !is_dirty && head.previous_snapshot_txg < txg;
        let when = if is_written { Outcome::Done } else { Outcome::Later };
        Ok(SnapshotPlan { name: snapshot.to_owned(), place, head, reserved, when })
    }

    /// Takes a snapshot; returns its object.
    pub(in crate::live::administration) fn take_snapshot(
        &mut self,
        plan: &SnapshotPlan,
    ) -> Result<ObjectId, TaskError> {
        let SnapshotPlan { name, place, head, reserved, .. } = plan;
        let mos = self.mos;
        self.add_to_counts(Some(place.dir), Counted::Snapshots, 1)?;
        let (fsid, guid) = self.maker().identities();
        let snapshot = DslDataset {
            next_snapshot: Some(place.head),
            snapshot_names: None,
            next_clones: None,
            properties: None,
            user_references: None,
            child_count: 1,
            creation_time: self.now(),
            creation_txg: mos.tx().txg(),
            unique: 0,
            fsid,
            guid,
            ..head.clone()
        };
        let id = mos.create_record(ObjectType::DSL_DATASET, 512, &snapshot)?;
        self.copy_features(place.head, id)?;
        if let Some(previous) = head.previous_snapshot {
            self.relink(previous, (place.head, id))?;
        }
        let more = SpaceDelta { used: reserved.cast_signed(), ..SpaceDelta::default() };
        self.state.dirs.charge(&mos, place.dir, SpaceClass::RefReservation, more)?;
        let deadlist = self.deadlist_behind(place, head)?;
        self.move_remapped(place.head, id)?;
        self.identify_ciphertexts(id)?;
        let head = DslDataset {
            previous_snapshot: Some(id),
            previous_snapshot_txg: snapshot.creation_txg,
            unique: 0,
            flags: head.flags | DslDataset::FLAG_UNIQUE_ACCURATE,
            deadlist: Some(deadlist),
            ..head.clone()
        };
        mos.set_record(place.head, &head)?;
        mos.insert(self.snapshot_names((place.head, &head))?, name, id.get())?;
        self.state.written.insert(place.head, head);
        self.follow_snapshot_in_scan(place.head, id)
            .unless_damaged(|error| tracing::warn!(%error, "a scan passes over a dataset"))?;
        self.note_change(place.dir)?;
        let full = format!("{}@{name}", place.name);
        self.log_dataset("snapshot", (&full, id), " ".to_owned())?;
        Ok(id)
    }

    /// A new dead list for a head whose snapshot took over the old one.
    fn deadlist_behind(&mut self, place: &Place, head: &DslDataset) -> Result<ObjectId, LiveError> {
        let keys = self.keys_behind(place, head)?;
        deadlist::with_keys(&self.mos, &mut self.state.features, &keys)
    }

    /// The keys of that list: the old ones and one more, and those that bookmarks need to track
    /// frees; none where dead lists have no keys.
    fn keys_behind(
        &mut self,
        place: &Place,
        head: &DslDataset,
    ) -> Result<BTreeSet<Txg>, LiveError> {
        let mos = self.mos;
        if !self.state.features.has_deadlists() {
            return Ok(BTreeSet::new());
        }
        let missing = || FormatError::invalid("DSL dataset", "it has no dead list");
        let old = head.deadlist.ok_or_else(missing).map_err(LiveError::corrupt(place.head))?;
        deadlist::sums(&mos, old)?;
        let mut keys = deadlist::keys_behind(&mos, old, head, deadlist::END)?;
        let since = head.previous_snapshot_txg;
        keys.insert(since);
        let marks = self.bookmarks_of(place.head)?.into_iter().map(|(_, mark)| mark);
        let pinned = marks.filter(|mark| mark.has_sums() && mark.creation_txg > since);
        keys.extend(pinned.map(|mark| mark.creation_txg));
        Ok(keys)
    }

    /// Moves the list of blocks that moved with a removed vdev from a head to its new snapshot.
    fn move_remapped(&mut self, head: ObjectId, snapshot: ObjectId) -> Result<(), LiveError> {
        let mos = self.mos;
        if !is_extended(&mos, head)? {
            return Ok(());
        }
        let Some(list) = mos.lookup(head, REMAPPED)? else { return Ok(()) };
        zapify(&mos, &mut self.state.features, snapshot)?;
        mos.set(snapshot, REMAPPED, list)?;
        mos.remove(head, REMAPPED).map(drop)
    }

    /// Gives a snapshot of an encrypted head its IV set guid.
    fn identify_ciphertexts(&mut self, id: ObjectId) -> Result<(), LiveError> {
        let mos = self.mos;
        let is_encrypted =
            is_extended(&mos, id)? && mos.lookup(id, Feature::Encryption.guid())?.is_some();
        if !is_encrypted || !self.state.features.is_enabled(Feature::BookmarkV2) {
            return Ok(());
        }
        let (identity, _) = self.maker().identities();
        mos.insert(id, IV_SET, identity)
    }
}
