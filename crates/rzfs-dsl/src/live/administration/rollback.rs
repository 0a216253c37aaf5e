//! Rolling a file system or volume back to its last snapshot (spec 04, sections 11.3 and 11.4).
//!
//! OpenZFS clones the snapshot, exchanges its contents with those of the head and destroys the
//! clone, all in one txg. Here the head gets the snapshot's contents directly; the result on disk
//! is the same.
//!
//! The head's old contents are freed from the next txg on: open transactions may still share blocks
//! of it with other files.

use super::destruction::{Outcome, left_behind};
use super::place::Place;
use super::{TaskContext, TaskError};
use crate::dataset::property::DatasetProperty;
use crate::live::LiveError;
use crate::live::amounts::SpaceDelta;
use crate::live::change_error::ChangeError;
use crate::live::datasets::dir::SpaceClass;
use crate::live::datasets::livelist;
use crate::live::error::UnlessDamaged;
use crate::live::space::limits::SpaceTier;
use crate::mos::extensible::{check_fields, is_extended, zapify};
use crate::mos::{MosSource, bookmarks, deadlist};
use rzfs_dmu::Objset;
use rzfs_dmu::live::Transaction;
use rzfs_format::bookmark::SpaceSums;
use rzfs_format::dsl::DslDataset;
use rzfs_format::features::Feature;
use rzfs_format::{FormatError, ObjectId, ObjsetId, Txg};
use rzfs_zap::{IntegerSize, ZapValue};

/// A head and the snapshot to roll it back to.
struct Rollback {
    place: Place,
    head: DslDataset,
    snapshot: (ObjectId, DslDataset),
    /// The head's dead list.
    deadlist: ObjectId,
    /// Space unique to the head.
    own: SpaceDelta,
    /// Bytes in the snapshot but not in the head, except those of its origin.
    dead: u64,
    /// The reservation that replaces what the head has now.
    reserved: u64,
}

impl TaskContext<'_> {
    /// Rolls an open head back to its last snapshot, which must be the named one, if one is given.
    pub(crate) fn roll_back(&mut self, name: &str) -> Result<Outcome, TaskError> {
        let rollback = self.check(|this| this.check_rollback(name))?;
        self.require_space(SpaceTier::Frees)?;
        let Rollback { place, head, snapshot: (id, snapshot), .. } = &rollback;
        let Some(open) = self.pool.heads.get(place.head) else { return Ok(Outcome::Later) };
        let txg = self.mos.tx().txg();
        if snapshot.creation_txg == txg {
            // Later passes of this txg would overwrite the snapshot's root with the head's.
            return Ok(Outcome::Later);
        }
        let contents = self.check(|this| {
            let (pipeline, key) = (this.mos.objset().pipeline(), open.objset().key().cloned());
            let objset = Objset::open(pipeline, ObjsetId(place.head.get()), &snapshot.root, key);
            Ok(objset.map_err(LiveError::from)?)
        })?;
        let log = open.replace(self.mos.tx(), contents).log_blocks().map_err(LiveError::from);
        let lost = |error: &LiveError| tracing::warn!(%error, "an intent log is lost");
        self.state.frees.now.extend(log.unless_damaged(lost)?.unwrap_or_default());
        self.remove_head_from_scan(place.head).unless_damaged(left_behind)?;
        self.take_features(place.head, *id)?;
        let removed = livelist::remove(&self.mos, &mut self.state.features, place.dir);
        removed.unless_damaged(left_behind)?;
        self.reset_bookmarks(&rollback).unless_damaged(
            |error| tracing::warn!(%error, "bookmarks are wrong about what was freed"),
        )?;
        self.exchange_records(&rollback)?;
        if head.root != snapshot.root {
            let blocks = (head.root, snapshot.creation_txg);
            self.free_tree(place.dir, blocks, rollback.own)?;
        }
        let of = (place.name.as_str(), place.head);
        self.log_dataset("rollback", of, format!("snapshot={id}"))?;
        Ok(Outcome::Done)
    }

    fn check_rollback(&mut self, name: &str) -> Result<Rollback, TaskError> {
        let (name, target) = match name.split_once('@') {
            Some((head, target)) => (head, Some(target)),
            None => (name, None),
        };
        let place = self.head(name)?;
        let head = self.dataset(place.head)?;
        if let Some(target) = target {
            let target = self.snapshot(&format!("{name}@{target}"))?;
            if head.previous_snapshot != Some(target.id) {
                // Another snapshot may have been taken since the caller looked.
                return Err(ChangeError::MoreRecent { name: name.to_owned() }.into());
            }
        }
        let no_snapshot = || ChangeError::NoSnapshot { name: name.to_owned() };
        let id = head.previous_snapshot.ok_or_else(no_snapshot)?;
        let snapshot = self.dataset(id)?;
        if snapshot.next_snapshot != Some(place.head) {
            return Err(no_snapshot().into());
        }
        if let Some(zap) = bookmarks::of_head(&self.mos, place.head)? {
            let all = bookmarks::all(&self.mos, zap)?;
            if all.iter().any(|(_, mark)| mark.creation_txg > snapshot.creation_txg) {
                return Err(ChangeError::MoreRecent { name: name.to_owned() }.into());
            }
        }
        self.refuse_remap_deadlist(&place.name, place.head)?;
        let refquota = self.own_number(place.dir, DatasetProperty::RefQuota)?;
        if refquota != 0 && snapshot.referenced > refquota {
            return Err(ChangeError::Quota { name: name.to_owned() }.into());
        }
        let reserved = self.own_number(place.dir, DatasetProperty::RefReservation)?;
        let reserved = reserved.min(head.unique);
        if reserved > self.available(place.dir)? {
            return Err(ChangeError::NoSpace.into());
        }
        let missing = || FormatError::invalid("DSL dataset", "it has no dead list");
        let deadlist = head.deadlist.ok_or_else(missing).map_err(LiveError::corrupt(place.head))?;
        let sums = deadlist::sums(&self.mos, deadlist)?;
        for fields in [place.head, place.dir, id] {
            check_fields(&self.mos, fields)?;
        }
        livelist::of_dir(&self.mos, &self.state.features, place.dir)?;
        self.maker().keys_of_clone(&snapshot)?;
        let own = |head: u64, dead: u64, snapshot: u64| {
            head.saturating_add(dead).saturating_sub(snapshot).cast_signed()
        };
        let own = SpaceDelta {
            used: own(head.referenced, sums.used, snapshot.referenced),
            compressed: own(head.compressed, sums.compressed, snapshot.compressed),
            uncompressed: own(head.uncompressed, sums.uncompressed, snapshot.uncompressed),
        };
        let mut dead = sums.used;
        if let Some(origin) = self.dir(place.dir)?.origin {
            let txg = self.dataset(origin)?.creation_txg;
            let of_origin = deadlist::sums_of(&self.mos, deadlist, Txg(0)..txg, self.deflation())?;
            dead = dead.saturating_sub(of_origin.used.unsigned_abs());
        }
        Ok(Rollback { place, head, snapshot: (id, snapshot), deadlist, own, dead, reserved })
    }

    /// Activates on a head the features that one of its snapshots uses (spec 04, section 3.4).
    pub(super) fn take_features(
        &mut self,
        head: ObjectId,
        snapshot: ObjectId,
    ) -> Result<(), TaskError> {
        let mos = self.mos;
        let uses = |dataset: ObjectId, feature: Feature| match is_extended(&mos, dataset)? {
            true => mos.lookup(dataset, feature.guid()),
            false => Ok(None),
        };
        for feature in Feature::ALL.iter().copied().filter(|feature| feature.is_per_dataset()) {
            match (uses(head, feature)?, uses(snapshot, feature)?) {
                (None, Some(value)) => {
                    zapify(&mos, &mut self.state.features, head)?;
                    mos.set(head, feature.guid(), value)?;
                    self.state.features.add(&mos, feature, 1)?;
                }
                (Some(_), None) => {
                    mos.remove(head, feature.guid())?;
                    self.state.features.add(&mos, feature, -1)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Nothing in the snapshot is freed any longer: resets the sums of its bookmarks (spec 04,
    /// section 15.4).
    fn reset_bookmarks(&mut self, rollback: &Rollback) -> Result<(), LiveError> {
        let mos = self.mos;
        let Some(zap) = bookmarks::of_head(&mos, rollback.place.head)? else { return Ok(()) };
        let (_, snapshot) = &rollback.snapshot;
        for (name, mut mark) in bookmarks::all(&mos, zap)? {
            if mark.has_sums() && mark.creation_txg == snapshot.creation_txg {
                mark.freed_before_next = SpaceSums::default();
                mos.set(zap, name.as_str(), ZapValue::new(IntegerSize::Eight, &mark.encode()))?;
            }
        }
        Ok(())
    }

    /// Gives the head the snapshot's contents, and its directory their space.
    fn exchange_records(&mut self, rollback: &Rollback) -> Result<(), TaskError> {
        let mos = self.mos;
        let Rollback { place, head, snapshot: (id, snapshot), .. } = rollback;
        let deadlist = self.maker().clone_deadlist(snapshot)?;
        deadlist::destroy(&mos, &mut self.state.features, rollback.deadlist)?;
        let head = DslDataset {
            root: snapshot.root,
            referenced: snapshot.referenced,
            compressed: snapshot.compressed,
            uncompressed: snapshot.uncompressed,
            unique: 0,
            deadlist: Some(deadlist),
            ..head.clone()
        };
        mos.set_record(place.head, &head)?;
        self.state.written.insert(place.head, head);
        mos.set_record(*id, &DslDataset { unique: 0, ..snapshot.clone() })?;
        let dirs = &mut self.state.dirs;
        let classes = (SpaceClass::Snapshots, SpaceClass::Head);
        dirs.transfer(&mos, place.dir, classes, rollback.dead.cast_signed())?;
        let more = SpaceDelta { used: rollback.reserved.cast_signed(), ..SpaceDelta::default() };
        Ok(dirs.charge(&mos, place.dir, SpaceClass::RefReservation, more)?)
    }
}
