//! Receiving snapshots (spec 08, sections 9.2 and 9.3).
//!
//! ```text
//! begin   target is new      target            inconsistent, empty or a clone
//!         target is there    target/%recv      inconsistent, a clone of the source, or empty
//!   what the stream has is written into it, in transactions of its own
//! end     target is new      target@snapshot   consistent
//!         target is there    contents of %recv and of the target change places,
//!                            target@snapshot, %recv is destroyed: all in one txg
//! ```
//! An unfinished receive stays inconsistent: it is not mounted, and the receiver or the next import
//! destroys it. A resumable receive is kept, with a state that records its progress ([`resume`]); a
//! stream of the remainder continues it.

use super::destruction::{Outcome, left_behind};
use super::place::{Place, check_new_name};
use super::snapshots::{SnapshotPlan, parts};
use super::{Destruction, NewClone, NewDataset, TaskContext, TaskError};
use crate::dataset::DatasetName;
use crate::dataset::property::DatasetProperty;
use crate::live::LiveError;
use crate::live::amounts::SpaceDelta;
use crate::live::change_error::{ChangeError, ReceiveProblem};
use crate::live::datasets::creation::{NameLookup, NewContents};
use crate::live::datasets::dir::SpaceClass;
use crate::live::datasets::head::refreservation_excess;
use crate::live::datasets::livelist;
use crate::live::error::{ContentsError, UnlessDamaged};
use crate::live::space::limits::SpaceTier;
use crate::mos::extensible::{activate, check_fields, is_extended};
use crate::mos::resume::{self, ResumePoint};
use crate::mos::{MosSource, bookmarks, deadlist, names};
use rzfs_codec::crypto::DatasetKey;
use rzfs_dmu::Objset;
use rzfs_dmu::live::{LiveObjset, Transaction};
use rzfs_format::bookmark::SpaceSums;
use rzfs_format::dsl::DslDataset;
use rzfs_format::features::Feature;
use rzfs_format::nvlist::NvString;
use rzfs_format::objset::ObjsetType;
use rzfs_format::stream::StreamFeatures;
use rzfs_format::zil::ZilHeader;
use rzfs_format::{FormatError, Guid, ObjectId, ObjsetId, Txg};
use rzfs_stream::ResumeToken;
use rzfs_zap::{IntegerSize, ZapValue};
use std::sync::Arc;

/// The name of a receive below an existing dataset.
const TEMPORARY: &str = "%recv";

/// What happens to changes of the target that the stream does not know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalChanges {
    /// The receive fails.
    Kept,
    /// They are discarded, as are snapshots younger than the stream's source.
    GivenUp,
}

/// What happens to received data when a stream breaks off.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Interruption {
    /// It is destroyed.
    Destroyed,
    /// It is kept until the remainder is sent.
    Kept {
        /// The snapshot's name at the sender.
        sent: NvString,
        /// Features needed to send the remainder.
        features: StreamFeatures,
    },
}

/// Where a stream with the remainder of another one starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Continuation {
    /// The object of its first record.
    pub object: ObjectId,
    /// The first byte of it that the stream contains.
    pub offset: u64,
}

/// A snapshot to receive, as described by the beginning of a stream.
#[derive(Clone, Debug)]
pub struct NewReceive {
    /// The file system or volume that receives it.
    pub target: String,
    /// Its name, the part after the `@`.
    pub snapshot: String,
    /// Its guid.
    pub guid: Guid,
    /// When it was taken, in seconds since 1970.
    pub creation_time: u64,
    /// The snapshot that an incremental stream is based on; `None`: a full stream.
    pub source: Option<Guid>,
    /// The full name of the snapshot that a new target becomes a clone of.
    pub origin: Option<String>,
    /// The type of its contents.
    pub objset_type: ObjsetType,
    /// How names in it are looked up.
    pub names: NameLookup,
    /// Features that the pool must have.
    pub needs: Vec<Feature>,
    /// Features that the dataset uses, regardless of its blocks.
    pub uses: Vec<Feature>,
    /// Properties of a new target, in stored form.
    pub properties: Vec<(String, ZapValue)>,
    /// What happens to the target's own changes.
    pub changes: LocalChanges,
    /// What happens to received data when the stream breaks off.
    pub interruption: Interruption,
}

/// The destination of a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Destination {
    /// The target is created.
    New,
    /// The contents of this head are exchanged at the end.
    Existing {
        /// The head.
        head: ObjectId,
    },
}

/// A receive in progress: the head that gets the contents.
#[derive(Clone, Debug)]
pub(crate) struct Begun {
    pub(crate) new: NewReceive,
    pub(crate) destination: Destination,
    /// The head that is written to.
    pub(crate) head: ObjectId,
    dir: ObjectId,
    /// Its earlier progress.
    pub(crate) start: ResumePoint,
}

/// An empty object set to receive into.
struct Nothing {
    objset_type: ObjsetType,
    names: NameLookup,
}

impl NewContents for Nothing {
    fn objset_type(&self) -> ObjsetType {
        self.objset_type
    }

    fn names(&self) -> NameLookup {
        self.names
    }

    fn populate(&self, objset: &LiveObjset, tx: &dyn Transaction) -> Result<(), ContentsError> {
        // This gives it a root block, which states its type.
        objset.set_log_header(tx, ZilHeader::default());
        Ok(())
    }
}

/// A planned exchange of contents.
struct Exchange {
    target: (Place, DslDataset),
    received: (Place, DslDataset),
    /// The snapshot that both are based on.
    source: (ObjectId, DslDataset),
    /// Younger snapshots of the target.
    younger: Vec<String>,
    reserved: u64,
    contents: Objset,
}

/// Space of a head relative to the snapshot it is based on.
struct Own {
    /// Blocks the snapshot does not have.
    space: SpaceDelta,
    /// Bytes that only snapshots of its directory still have.
    dead: u64,
    /// Blocks that only the snapshot itself still has.
    left_to_source: u64,
    deadlist: SpaceSums,
}

/// Checks the received names, of a dataset that may have to be created and of its snapshot.
///
/// # Errors
/// [`ChangeError`]: the names are invalid.
pub fn check_received_name(target: &str, snapshot: &str) -> Result<(), ChangeError> {
    let name = format!("{target}@{snapshot}");
    parts(&name)?;
    if name.contains('%') {
        return Err(ChangeError::InvalidName { name });
    }
    // The root of a pool exists, and nothing may be nested deeper than other datasets.
    match check_new_name(target) {
        Ok(_) | Err(ChangeError::Exists { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

impl TaskContext<'_> {
    /// Creates the receiving dataset; `key` is that of the target's blocks. `None`: try later.
    pub(crate) fn begin_receive(
        &mut self,
        new: &NewReceive,
        key: Option<Arc<DatasetKey>>,
    ) -> Result<Option<Begun>, TaskError> {
        check_received_name(&new.target, &new.snapshot)?;
        self.check_features(new)?;
        let target = self.check(|this| Ok(this.find(&new.target)?))?;
        if target.is_some() && new.target.len() + 1 + TEMPORARY.len() > DatasetName::MAX_LEN {
            let name = format!("{}/{TEMPORARY}", new.target);
            return Err(ChangeError::NameTooLong { name }.into());
        }
        let (destination, parent, last) = match &target {
            Some(place) => {
                (Destination::Existing { head: place.head }, new.target.as_str(), TEMPORARY)
            }
            None => {
                let (parent, last) = check_new_name(&new.target)?;
                (Destination::New, parent, last)
            }
        };
        let origin = match &target {
            Some(place) => self.check(|this| this.check_target(new, place))?,
            None => self.check(|this| this.check_new_target(new))?,
        };
        let properties = match destination {
            Destination::New => new.properties.clone(),
            Destination::Existing { .. } => Vec::new(),
        };
        if let Some(origin) = origin {
            let new = NewClone { origin, properties };
            if self.clone_below((parent, last), &new, key)? == Outcome::Later {
                return Ok(None);
            }
        } else {
            let (objset_type, names) = (new.objset_type, new.names);
            let contents = Arc::new(Nothing { objset_type, names });
            self.create_below((parent, last), &NewDataset::new(contents, properties))?;
        }
        let missing = || FormatError::invalid("DSL directory", "it has no head");
        let parent =
            self.find(parent)?.ok_or_else(missing).map_err(LiveError::corrupt(ObjectId(0)))?;
        let dir = self.child_dir(parent.dir, last)?;
        let dir = dir.ok_or_else(missing).map_err(LiveError::corrupt(parent.dir))?;
        let head = self.dir(dir)?.head_dataset;
        let head = head.ok_or_else(missing).map_err(LiveError::corrupt(dir))?;
        let mut record = self.dataset(head)?;
        record.flags |= DslDataset::FLAG_INCONSISTENT;
        self.mos.set_record(head, &record)?;
        for feature in &new.uses {
            activate(&self.mos, &mut self.state.features, head, *feature)?;
        }
        let start = ResumePoint::START;
        if let Interruption::Kept { sent, features } = &new.interruption {
            let state = ResumeToken {
                to_guid: new.guid,
                to_name: sent.clone(),
                from_guid: new.source,
                object: start.object,
                offset: start.offset,
                bytes: start.bytes,
                features: *features,
                redact_snaps: None,
                bookmark_redact_snaps: None,
            };
            resume::write(&self.mos, &mut self.state.features, head, &state)?;
        }
        self.log_dataset("receive", (&format!("{}/{last}", parent.name), head), " ".to_owned())?;
        Ok(Some(Begun { new: new.clone(), destination, head, dir, start }))
    }

    /// Resumes a receive into `head`, which has the earlier data and is held open by the receiver.
    pub(crate) fn resume_receive(
        &mut self,
        new: &NewReceive,
        head: ObjectId,
        at: Continuation,
    ) -> Result<Begun, TaskError> {
        check_received_name(&new.target, &new.snapshot)?;
        self.check_features(new)?;
        let begun = self.check(|this| this.check_resumed(new, head, at))?;
        for feature in &new.uses {
            activate(&self.mos, &mut self.state.features, head, *feature)?;
        }
        let name = self.name_of(begun.dir)?;
        self.log_dataset("resume receive", (&name, head), " ".to_owned())?;
        Ok(begun)
    }

    fn check_resumed(
        &mut self,
        new: &NewReceive,
        head: ObjectId,
        at: Continuation,
    ) -> Result<Begun, TaskError> {
        let other = || TaskError::from(ReceiveProblem::NotTheRest);
        let target = self.head(&new.target)?;
        let (destination, dir) = match self.child_dir(target.dir, TEMPORARY)? {
            Some(dir) => (Destination::Existing { head: target.head }, dir),
            None => (Destination::New, target.dir),
        };
        let record = self.dataset(head)?;
        if record.dir != dir || record.is_snapshot() || !record.is_inconsistent() {
            return Err(other());
        }
        let is_overwritten = matches!(destination, Destination::Existing { .. })
            && new.source.is_none()
            && new.changes == LocalChanges::Kept;
        if is_overwritten {
            return Err(ReceiveProblem::NotForced { target: new.target.clone() }.into());
        }
        check_fields(&self.mos, head)?;
        let previous = record.previous_snapshot.map(|id| self.dataset(id)).transpose()?;
        let previous = previous.as_ref();
        let has_snapshots = previous.is_some_and(|one| one.next_snapshot == Some(head));
        let is_of_source = |source| previous.is_some_and(|one| one.guid == source);
        let state = resume::read(&self.mos, head)?.ok_or_else(other)?;
        let is_next = state.to_guid == new.guid
            && state.from_guid.filter(|guid| *guid != Guid(0)) == new.source
            && new.source.is_none_or(is_of_source)
            && state.object == at.object
            && state.offset == at.offset
            // With another block size, the object it starts in would be a different one.
            && state.features.contains(StreamFeatures::LARGE_BLOCKS)
                == new.uses.contains(&Feature::LargeBlocks);
        if has_snapshots || !is_next || self.objset_type(head)? != new.objset_type {
            return Err(other());
        }
        let ResumeToken { object, offset, bytes, .. } = state;
        let start = ResumePoint { object, offset, bytes };
        Ok(Begun { new: new.clone(), destination, head, dir, start })
    }

    fn check_features(&self, new: &NewReceive) -> Result<(), TaskError> {
        let features = &self.state.features;
        let for_state = match new.interruption {
            Interruption::Destroyed => None,
            Interruption::Kept { .. } => Some(&Feature::ExtensibleDataset),
        };
        let mut needed = new.needs.iter().chain(&new.uses).chain(for_state);
        match needed.find(|feature| !features.is_enabled(**feature)) {
            Some(feature) => Err(ReceiveProblem::PoolTooOld { feature: feature.name() }.into()),
            None => Ok(()),
        }
    }

    /// Checks a target that does not exist; returns the origin it becomes a clone of.
    fn check_new_target(&mut self, new: &NewReceive) -> Result<Option<String>, TaskError> {
        let (Some(origin), Some(source)) = (&new.origin, new.source) else {
            return match new.source {
                Some(_) => Err(ChangeError::NotFound { name: new.target.clone() }.into()),
                None => Ok(None),
            };
        };
        let snapshot = self.snapshot(origin)?;
        if self.dataset(snapshot.id)?.guid != source {
            return Err(ReceiveProblem::NoSource { target: new.target.clone() }.into());
        }
        self.check_source(new, snapshot.id)?;
        Ok(Some(origin.clone()))
    }

    /// Checks an existing target; returns the snapshot that the received head starts from.
    fn check_target(
        &mut self,
        new: &NewReceive,
        place: &Place,
    ) -> Result<Option<String>, TaskError> {
        let target = || new.target.clone();
        let head = self.dataset(place.head)?;
        if new.source.is_none() && new.changes == LocalChanges::Kept {
            return Err(ChangeError::Exists { name: target() }.into());
        }
        let received = match self.child_dir(place.dir, TEMPORARY)? {
            Some(dir) => self.dir(dir)?.head_dataset,
            None => head.is_inconsistent().then_some(place.head),
        };
        if let Some(received) = received {
            return Err(match resume::is_there(&self.mos, received)? {
                true => ReceiveProblem::Partial { target: target() }.into(),
                false => ChangeError::Busy { name: target() }.into(),
            });
        }
        if new.origin.is_some() {
            return Err(ChangeError::Exists { name: target() }.into());
        }
        if self.objset_type(place.head)? != new.objset_type {
            return Err(ChangeError::WrongKind { name: target() }.into());
        }
        let Some(source) = new.source else {
            return self.check_overwriting(new, place, &head).map(|()| None);
        };
        if names::snapshot(&self.mos, &head, &new.snapshot)?.is_some() {
            return Err(
                ChangeError::Exists { name: format!("{}@{}", new.target, new.snapshot) }.into()
            );
        }
        let no_source = || TaskError::from(ReceiveProblem::NoSource { target: target() });
        let mut next = head.previous_snapshot;
        let mut before = head.previous_snapshot_txg.next();
        while let Some(id) = next {
            let snapshot = self.dataset(id)?;
            if snapshot.dir != place.dir || snapshot.creation_txg >= before {
                break;
            }
            before = snapshot.creation_txg;
            if snapshot.guid == source {
                self.check_source(new, id)?;
                if new.changes == LocalChanges::Kept {
                    self.check_unmodified(place, &head, (id, &snapshot))?;
                }
                return Ok(Some(self.snapshot_of(id)?.full_name()));
            }
            next = snapshot.previous_snapshot;
        }
        Err(no_source())
    }

    /// A full stream replaces a target that has no history.
    fn check_overwriting(
        &mut self,
        new: &NewReceive,
        place: &Place,
        head: &DslDataset,
    ) -> Result<(), TaskError> {
        let name = || new.target.clone();
        let snapshots = names::all(&self.mos, head.snapshot_names)?;
        if let Some((snapshot, _)) = snapshots.first() {
            let example = format!("{}@{snapshot}", new.target);
            return Err(ReceiveProblem::TargetHasSnapshots { example }.into());
        }
        if head.previous_snapshot != self.empty_origin()? {
            return Err(ReceiveProblem::TargetIsClone { target: name() }.into());
        }
        let is_encrypted = is_extended(&self.mos, place.head)?
            && self.mos.lookup(place.head, Feature::Encryption.guid())?.is_some();
        if is_encrypted {
            return Err(ReceiveProblem::TargetIsEncrypted { target: name() }.into());
        }
        Ok(())
    }

    /// A stream without large blocks cannot be based on a snapshot that has some.
    fn check_source(&self, new: &NewReceive, id: ObjectId) -> Result<(), TaskError> {
        let large = Feature::LargeBlocks;
        let has_some = is_extended(&self.mos, id)? && self.mos.lookup(id, large.guid())?.is_some();
        if has_some && !new.uses.contains(&large) {
            return Err(ReceiveProblem::LargeBlocks.into());
        }
        Ok(())
    }

    /// Checks that a head still equals its last snapshot, which is this one.
    fn check_unmodified(
        &mut self,
        place: &Place,
        head: &DslDataset,
        (id, snapshot): (ObjectId, &DslDataset),
    ) -> Result<(), TaskError> {
        let modified = || TaskError::from(ReceiveProblem::Modified { target: place.name.clone() });
        if head.root == snapshot.root {
            return Ok(());
        }
        // Changes of the intent log header, or younger snapshots of the same data, do not count.
        let pipeline = self.mos.objset().pipeline();
        let open = |id: ObjectId, root| {
            Objset::open(pipeline, ObjsetId(id.get()), root, None).map_err(LiveError::from)
        };
        let of_head = open(place.head, &head.root)?;
        let is_same = of_head.block().meta_dnode == open(id, &snapshot.root)?.block().meta_dnode;
        if is_same { Ok(()) } else { Err(modified()) }
    }

    /// Finishes a receive: the contents go to the target, with a snapshot.
    pub(crate) fn end_receive(&mut self, begun: &Begun) -> Result<Outcome, TaskError> {
        let place = self.check(|this| this.received_place(begun))?;
        match begun.destination {
            Destination::New => self.end_new(begun, place),
            Destination::Existing { head } => self.end_existing(begun, place, head),
        }
    }

    /// Destroys the partially received data.
    pub(crate) fn abandon_receive(&mut self, begun: &Begun) -> Result<Outcome, TaskError> {
        let place = self.check(|this| this.received_place(begun))?;
        self.destroy_place(&place)
    }

    /// Keeps the partially received data, to be resumed.
    pub(crate) fn keep_receive(&mut self, begun: &Begun) -> Result<(), TaskError> {
        let place = self.check(|this| this.received_place(begun))?;
        let open = self.pool.heads.get(place.head);
        // The receiver is done: everything it wrote is on disk, or will be with this txg.
        match open.and_then(|open| open.take_progress(Txg(u64::MAX))) {
            Some(point) => {
                let set = resume::set_point(&self.mos, place.head, point);
                Ok(set.unless_damaged(left_behind).map(drop)?)
            }
            None => Ok(()),
        }
    }

    /// The current place of the received head: its ancestors may have been renamed.
    fn received_place(&mut self, begun: &Begun) -> Result<Place, TaskError> {
        let name = || begun.new.target.clone();
        let not_found = || TaskError::from(ChangeError::NotFound { name: name() });
        let missing = |error: TaskError| match error {
            TaskError::Refused(error) => TaskError::Refused(error),
            TaskError::Failed(_) => not_found(),
        };
        let record = self.dataset(begun.head).map_err(|error| missing(error.into()))?;
        if record.dir != begun.dir || !record.is_inconsistent() {
            return Err(not_found());
        }
        Ok(Place { name: self.name_of(begun.dir)?, dir: begun.dir, head: begun.head })
    }

    fn end_new(&mut self, begun: &Begun, place: Place) -> Result<Outcome, TaskError> {
        let plan = self.check(|this| {
            let head = this.dataset(place.head)?;
            this.plan_snapshot(place, head, &begun.new.snapshot)
        })?;
        self.require_space(SpaceTier::Normal)?;
        if plan.when == Outcome::Later {
            return Ok(Outcome::Later);
        }
        if let Some(open) = self.pool.heads.get(plan.place.head) {
            open.take_progress(Txg(u64::MAX));
        }
        resume::remove(&self.mos, plan.place.head)?;
        self.finish(begun, plan)?;
        Ok(Outcome::Done)
    }

    /// Takes the snapshot of a completely received head.
    fn finish(&mut self, begun: &Begun, mut plan: SnapshotPlan) -> Result<(), TaskError> {
        plan.head.flags &= !DslDataset::FLAG_INCONSISTENT;
        let (name, head) = (plan.place.name.clone(), plan.place.head);
        let id = self.take_snapshot(&plan)?;
        let record = self.dataset(id)?;
        let (guid, creation_time) = (begun.new.guid, begun.new.creation_time);
        self.mos.set_record(id, &DslDataset { guid, creation_time, ..record })?;
        self.state.changed.push(name.clone());
        let text = format!("snap={}", plan.name);
        Ok(self.log_dataset("finish receiving", (&name, head), text)?)
    }

    fn end_existing(
        &mut self,
        begun: &Begun,
        received: Place,
        target: ObjectId,
    ) -> Result<Outcome, TaskError> {
        let txg = self.mos.tx().txg();
        let Some(open) = self.pool.heads.get(target) else { return Ok(Outcome::Later) };
        let is_dirty = |head| self.pool.heads.get(head).is_some_and(|open| open.is_dirty(txg));
        if is_dirty(received.head) || is_dirty(target) {
            return Ok(Outcome::Later);
        }
        let key = open.objset().key().cloned();
        let exchange = self.check(|this| this.check_exchange(begun, received, (target, key)))?;
        if begun.new.changes == LocalChanges::Kept && open.objset().has_dirty_objects() {
            // It has been changed since; the next txg can see that.
            return Ok(Outcome::Later);
        }
        self.require_space(SpaceTier::Normal)?;
        let is_written = exchange.received.1.root.logical_birth() < txg
            && exchange.target.1.previous_snapshot_txg < txg
            && !self.pool.heads.has_busy_log(exchange.received.0.head, txg);
        if !is_written {
            return Ok(Outcome::Later);
        }
        if !self.pool.heads.retire(exchange.received.0.head) {
            return Err(ChangeError::Busy { name: begun.new.target.clone() }.into());
        }
        self.destroy_snapshots(&exchange.younger, Destruction::AtOnce)?;
        let Exchange {
            target: (target, _),
            received: (received, _),
            source,
            reserved,
            contents,
            ..
        } = exchange;
        let log = open.replace(self.mos.tx(), contents).log_blocks().map_err(LiveError::from);
        let lost = |error: &LiveError| tracing::warn!(%error, "an intent log is lost");
        self.state.frees.now.extend(log.unless_damaged(lost)?.unwrap_or_default());
        for place in [&target, &received] {
            self.remove_head_from_scan(place.head).unless_damaged(left_behind)?;
            let removed = livelist::remove(&self.mos, &mut self.state.features, place.dir);
            removed.unless_damaged(left_behind)?;
        }
        self.take_features(target.head, received.head)?;
        let heads = (&target, &received);
        self.exchange(heads, source.0)?;
        let text = format!("parent={}", target.name);
        self.log_dataset("clone swap", (&received.name, received.head), text)?;
        let head = self.dataset(target.head)?;
        let name = begun.new.snapshot.clone();
        let reserved = reserved.min(head.unique);
        let plan = SnapshotPlan { name, place: target, head, reserved, when: Outcome::Done };
        self.finish(begun, plan)?;
        let (dir, head) = (self.dir(received.dir)?, self.dataset(received.head)?);
        self.destroy_retired(&received, &dir, &head)?;
        Ok(Outcome::Done)
    }

    fn check_exchange(
        &mut self,
        begun: &Begun,
        received: Place,
        (head, key): (ObjectId, Option<Arc<DatasetKey>>),
    ) -> Result<Exchange, TaskError> {
        let new = &begun.new;
        let (dir, record) = (self.dir(received.dir)?, self.dataset(received.head)?);
        let target_record = self.dataset(head)?;
        let not_found = || TaskError::from(ChangeError::NotFound { name: new.target.clone() });
        if dir.parent != Some(target_record.dir) || target_record.is_snapshot() {
            return Err(not_found());
        }
        let target = Place { name: self.name_of(target_record.dir)?, dir: target_record.dir, head };
        let missing = || FormatError::invalid("DSL dataset", "it goes back to no snapshot");
        let source = record.previous_snapshot.ok_or_else(missing);
        let source = source.map_err(LiveError::corrupt(received.head))?;
        let source = (source, self.dataset(source)?);
        let younger = self.younger_snapshots(&target, &target_record, source.0)?;
        if new.changes == LocalChanges::Kept {
            if !younger.is_empty() {
                return Err(ReceiveProblem::Modified { target: target.name }.into());
            }
            if new.source.is_some() {
                self.check_unmodified(&target, &target_record, (source.0, &source.1))?;
            }
        }
        if let Some(zap) = bookmarks::of_head(&self.mos, head)? {
            let all = bookmarks::all(&self.mos, zap)?;
            if all.iter().any(|(_, mark)| mark.creation_txg > source.1.creation_txg) {
                return Err(ChangeError::MoreRecent { name: target.name }.into());
            }
        }
        for place in [&target, &received] {
            self.refuse_remap_deadlist(&place.name, place.head)?;
            if !self.children(received.dir)?.is_empty() {
                return Err(ChangeError::HasChildren { name: received.name.clone() }.into());
            }
            self.own_space(place, &self.dataset(place.head)?, &source.1)?;
        }
        let plan = self.plan_snapshot(target.clone(), target_record.clone(), &new.snapshot)?;
        let refquota = self.own_number(target.dir, DatasetProperty::RefQuota)?;
        if refquota != 0 && record.referenced > refquota {
            return Err(ChangeError::Quota { name: target.name }.into());
        }
        let reserved = self.own_number(target.dir, DatasetProperty::RefReservation)?;
        if reserved.min(record.unique) > self.available(target.dir)? {
            return Err(ChangeError::NoSpace.into());
        }
        let pipeline = self.mos.objset().pipeline();
        let contents = Objset::open(pipeline, ObjsetId(head.get()), &record.root, key);
        let contents = contents.map_err(LiveError::from)?;
        let (target, received) = ((plan.place, target_record), (received, record));
        Ok(Exchange { target, received, source, younger, reserved, contents })
    }

    /// The snapshots of a head that are younger than one of them, or than its origin.
    fn younger_snapshots(
        &mut self,
        target: &Place,
        head: &DslDataset,
        source: ObjectId,
    ) -> Result<Vec<String>, TaskError> {
        let all = names::all(&self.mos, head.snapshot_names)?;
        let mut younger = Vec::new();
        let mut next = head.previous_snapshot;
        while let Some(id) = next.filter(|id| *id != source) {
            let name = all.iter().find(|(_, snapshot)| *snapshot == id);
            let Some((name, _)) = name.filter(|_| younger.len() < all.len()) else {
                return Err(ReceiveProblem::NoSource { target: target.name.clone() }.into());
            };
            younger.push(format!("{}@{name}", target.name));
            next = self.dataset(id)?.previous_snapshot;
        }
        match next {
            Some(_) => Ok(younger),
            None => Err(ReceiveProblem::NoSource { target: target.name.clone() }.into()),
        }
    }

    /// What a head has gained and lost relative to the snapshot before it.
    fn own_space(
        &mut self,
        place: &Place,
        head: &DslDataset,
        source: &DslDataset,
    ) -> Result<Own, LiveError> {
        let (mos, deflation) = (self.mos, self.deflation());
        let missing = || FormatError::invalid("DSL dataset", "it has no dead list");
        let list = head.deadlist.ok_or_else(missing).map_err(LiveError::corrupt(place.head))?;
        let sums = deadlist::sums(&mos, list)?;
        let own = |head: u64, dead: u64, source: u64| {
            head.saturating_add(dead).saturating_sub(source).cast_signed()
        };
        let space = SpaceDelta {
            used: own(head.referenced, sums.used, source.referenced),
            compressed: own(head.compressed, sums.compressed, source.compressed),
            uncompressed: own(head.uncompressed, sums.uncompressed, source.uncompressed),
        };
        let mut dead = sums.used;
        if let Some(origin) = self.dir(place.dir)?.origin {
            let txg = self.dataset(origin)?.creation_txg;
            let of_origin = deadlist::sums_of(&mos, list, Txg(0)..txg, deflation)?;
            dead = dead.saturating_sub(of_origin.used.unsigned_abs());
        }
        let since = source.previous_snapshot_txg..deadlist::END;
        let left = deadlist::sums_of(&mos, list, since, deflation)?;
        let deadlist = SpaceSums {
            used: sums.used,
            compressed: sums.compressed,
            uncompressed: sums.uncompressed,
        };
        Ok(Own { space, dead, left_to_source: left.used.unsigned_abs(), deadlist })
    }

    /// Exchanges the contents of two heads based on the same snapshot, and the space charged to
    /// their directories.
    fn exchange(
        &mut self,
        (target, received): (&Place, &Place),
        source: ObjectId,
    ) -> Result<(), TaskError> {
        let mos = self.mos;
        let mut snapshot = self.dataset(source)?;
        let (ours, theirs) = (self.dataset(target.head)?, self.dataset(received.head)?);
        let own = self.own_space(target, &ours, &snapshot)?;
        // What the received head has lost is charged to the target's directory from now on.
        let as_target = Place { head: received.head, ..target.clone() };
        let new = self.own_space(&as_target, &theirs, &snapshot)?;
        if snapshot.next_snapshot == Some(target.head) {
            snapshot.unique = new.left_to_source;
            mos.set_record(source, &snapshot)?;
        }
        self.update_bookmark_sums(target.head, &snapshot, new.deadlist).unless_damaged(
            |error| tracing::warn!(%error, "bookmarks are wrong about what was freed"),
        )?;
        let reserved = self.own_number(target.dir, DatasetProperty::RefReservation)?;
        let excess = |unique| refreservation_excess(reserved, unique).cast_signed();
        let reservation = excess(theirs.unique) - excess(ours.unique);
        let mut more = new.space;
        more += -own.space;
        let dirs = &mut self.state.dirs;
        dirs.charge(&mos, received.dir, SpaceClass::Head, -more)?;
        dirs.charge(&mos, target.dir, SpaceClass::Head, more)?;
        let reservation = SpaceDelta { used: reservation, ..SpaceDelta::default() };
        dirs.charge(&mos, target.dir, SpaceClass::RefReservation, reservation)?;
        let classes = (SpaceClass::Head, SpaceClass::Snapshots);
        let dead = new.dead.cast_signed().wrapping_sub(own.dead.cast_signed());
        dirs.transfer(&mos, target.dir, classes, dead)?;
        let with = |head: &DslDataset, contents: &DslDataset| DslDataset {
            root: contents.root,
            referenced: contents.referenced,
            compressed: contents.compressed,
            uncompressed: contents.uncompressed,
            unique: contents.unique,
            deadlist: contents.deadlist,
            ..head.clone()
        };
        let (target_record, received_record) = (with(&ours, &theirs), with(&theirs, &ours));
        mos.set_record(received.head, &received_record)?;
        mos.set_record(target.head, &target_record)?;
        self.state.written.insert(target.head, target_record);
        self.state.written.remove(&received.head);
        Ok(())
    }

    /// Updates a snapshot's bookmarks with what the contents after it have lost.
    pub(super) fn update_bookmark_sums(
        &mut self,
        head: ObjectId,
        snapshot: &DslDataset,
        freed: SpaceSums,
    ) -> Result<(), LiveError> {
        let mos = self.mos;
        let Some(zap) = bookmarks::of_head(&mos, head)? else { return Ok(()) };
        for (name, mut mark) in bookmarks::all(&mos, zap)? {
            if mark.has_sums() && mark.creation_txg == snapshot.creation_txg {
                mark.freed_before_next = freed;
                mos.set(zap, name.as_str(), ZapValue::new(IntegerSize::Eight, &mark.encode()))?;
            }
        }
        Ok(())
    }
}
