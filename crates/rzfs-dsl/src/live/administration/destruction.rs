//! Destroying file systems, volumes and clones (spec 04, sections 9.3 to 9.5).

use super::counts::{Counted, is_counted};
use super::place::Place;
use super::snapshots::holds::Need;
use super::{TaskContext, TaskError};
use crate::dataset::property::DatasetProperty;
use crate::live::LiveError;
use crate::live::amounts::SpaceDelta;
use crate::live::change_error::ChangeError;
use crate::live::datasets::dir::SpaceClass;
use crate::live::datasets::livelist;
use crate::live::error::UnlessDamaged;
use crate::live::space::bptree::{self, DestroyedList};
use crate::live::space::limits::SpaceTier;
use crate::mos::bookmarks;
use crate::mos::bpobj;
use crate::mos::deadlist;
use crate::mos::extensible::{field, is_extended};
use crate::mos::{MosSource, OBJECT_DIRECTORY as DIRECTORY, error_log, number_key};
use rzfs_dmu::Objset;
use rzfs_dmu::intent_log::owned_blocks;
use rzfs_dmu::live::Transaction;
use rzfs_format::bookmark::BookmarkRecord;
use rzfs_format::bpobj::ListMark;
use rzfs_format::dsl::{DslDataset, DslDir};
use rzfs_format::features::Feature;
use rzfs_format::object_type::ObjectType;
use rzfs_format::property::PoolProperty;
use rzfs_format::{BlockPointer, FormatError, ObjectId, ObjsetId, Txg};
use std::cell::RefCell;

/// Blocks put on a list together.
const BATCH: usize = 4096;

/// The field of a dataset's object with the blocks that moved with a removed vdev.
pub(super) const REMAPPED: &str = "com.delphix:remap_deadlist";

/// The outcome of examining a dataset that is to be destroyed or rolled back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Done,
    /// It was written or closed in this txg: try again later.
    Later,
}

/// Logs that part of a destroyed dataset is leaked because it is damaged.
pub(super) fn left_behind(error: &LiveError) {
    tracing::warn!(%error, "a destroyed dataset leaves something behind");
}

impl TaskContext<'_> {
    pub(crate) fn destroy_dataset(&mut self, name: &str) -> Result<Outcome, TaskError> {
        let place = self.check(|this| {
            let place = this.head(name)?;
            if let Some(origin) = this.dir(place.dir)?.origin {
                this.refuse_if_kept(origin, Need::Clone)?;
            }
            Ok(place)
        })?;
        self.destroy_place(&place)
    }

    /// Destroys a head at a known place.
    pub(super) fn destroy_place(&mut self, place: &Place) -> Result<Outcome, TaskError> {
        let (dir, head) = self.check(|this| this.check_destruction(place))?;
        self.require_space(SpaceTier::Frees)?;
        let txg = self.mos.tx().txg();
        if head.root.logical_birth() == txg || self.pool.heads.has_busy_log(place.head, txg) {
            return Ok(Outcome::Later);
        }
        if !self.pool.heads.retire(place.head) {
            return Err(ChangeError::Busy { name: place.name.clone() }.into());
        }
        self.free_log(place, &head)?;
        self.destroy_retired(place, &dir, &head)?;
        Ok(Outcome::Done)
    }

    /// Destroys a head that is not open, and whose intent log is freed.
    pub(super) fn destroy_retired(
        &mut self,
        place: &Place,
        dir: &DslDir,
        head: &DslDataset,
    ) -> Result<(), TaskError> {
        self.release_refreservation(place, dir)?;
        self.release_features(place.head).unless_damaged(left_behind)?;
        self.remove_head_from_scan(place.head).unless_damaged(left_behind)?;
        self.unlink_from_origin(place, dir, head)?;
        let removed = livelist::remove(&self.mos, &mut self.state.features, place.dir);
        removed.unless_damaged(left_behind)?;
        if let Some(list) = head.deadlist {
            deadlist::destroy(&self.mos, &mut self.state.features, list)?;
        }
        self.free_contents(place, head)?;
        self.destroy_head(place, head)?;
        self.destroy_dir(place)?;
        if let Some(origin) = dir.origin {
            self.destroy_if_deferred(origin, |this| this.snapshot_of(origin))?;
        }
        Ok(())
    }

    fn check_destruction(&mut self, place: &Place) -> Result<(DslDir, DslDataset), TaskError> {
        let (dir, head) = (self.dir(place.dir)?, self.dataset(place.head)?);
        let name = || place.name.clone();
        if dir.parent.is_none() {
            return Err(ChangeError::Busy { name: name() }.into());
        }
        if !self.children(place.dir)?.is_empty() {
            return Err(ChangeError::HasChildren { name: name() }.into());
        }
        if let Some(previous) = head.previous_snapshot
            && self.dataset(previous)?.next_snapshot == Some(place.head)
        {
            return Err(ChangeError::HasSnapshots { name: name() }.into());
        }
        if let Some((last, names)) = place.name.rsplit_once('/').map(|(_, last)| last).zip(
            dir.parent.map(|parent| self.dir(parent)).transpose()?.and_then(|dir| dir.children),
        ) {
            self.mos.check_removal(names, last)?;
        }
        self.refuse_remap_deadlist(&place.name, place.head)?;
        Ok((dir, head))
    }

    /// Refuses a change to the list of blocks that moved with a removed vdev.
    pub(super) fn refuse_remap_deadlist(
        &mut self,
        name: &str,
        dataset: ObjectId,
    ) -> Result<(), TaskError> {
        let list = field(&self.mos, dataset, REMAPPED).unless_damaged(left_behind)?.flatten();
        if list.is_some() {
            let what = "the list of remapped blocks";
            return Err(ChangeError::Unsupported { name: name.to_owned(), what }.into());
        }
        Ok(())
    }

    /// Returns the part of the head's reservation that is not used.
    fn release_refreservation(&mut self, place: &Place, dir: &DslDir) -> Result<(), TaskError> {
        let old = self
            .own_number(place.dir, DatasetProperty::RefReservation)
            .unless_damaged(left_behind)?;
        if let Some(old) = old {
            return self.charge_refreservation(place, old, 0);
        }
        let charged = dir.breakdown.refreservation.cast_signed();
        let delta = SpaceDelta { used: -charged, ..SpaceDelta::default() };
        let class = SpaceClass::RefReservation;
        Ok(self.state.dirs.charge(&self.mos, place.dir, class, delta)?)
    }

    /// Ends the dataset's use of features (spec 04, section 3.4).
    pub(super) fn release_features(&mut self, head: ObjectId) -> Result<(), TaskError> {
        if !is_extended(&self.mos, head)? {
            return Ok(());
        }
        for feature in Feature::ALL.iter().copied().filter(|feature| feature.is_per_dataset()) {
            if self.mos.remove(head, feature.guid())? {
                self.state.features.add(&self.mos, feature, -1)?;
            }
        }
        Ok(())
    }

    /// Removes a clone from its origin and from the origin's directory.
    fn unlink_from_origin(
        &mut self,
        place: &Place,
        dir: &DslDir,
        head: &DslDataset,
    ) -> Result<(), TaskError> {
        let mos = self.mos;
        let key = number_key(place.head.get());
        let leave = |clones: ObjectId| mos.remove(clones, key.as_str()).unless_damaged(left_behind);
        if let Some(previous) = head.previous_snapshot {
            let mut origin = self.dataset(previous)?;
            origin.next_clones.map(leave).transpose()?;
            origin.child_count = origin.child_count.saturating_sub(1);
            mos.set_record(previous, &origin)?;
        }
        if let Some(origin) = dir.origin {
            let clones = self.clones_of(origin).unless_damaged(left_behind)?.flatten();
            clones.map(leave).transpose()?;
        }
        Ok(())
    }

    /// The table of the clones of all snapshots of a directory that contains `origin`.
    pub(super) fn clones_of(&mut self, origin: ObjectId) -> Result<Option<ObjectId>, LiveError> {
        let dir = self.dataset(origin)?.dir;
        Ok(self.dir(dir)?.clones)
    }

    /// Frees the intent log, which is not among the dataset's own blocks.
    fn free_log(&mut self, place: &Place, head: &DslDataset) -> Result<(), TaskError> {
        if head.root.is_hole() {
            return Ok(());
        }
        let pipeline = self.mos.objset().pipeline();
        let id = ObjsetId(place.head.get());
        let objset = Objset::open(pipeline, id, &head.root, None);
        let blocks = match objset.and_then(|objset| objset.log_header()) {
            Ok(header) => owned_blocks(pipeline, id, &header),
            Err(error) => {
                tracing::warn!(dataset = place.name, %error, "the intent log is lost");
                return Ok(());
            }
        };
        Ok(blocks.iter().try_for_each(|pointer| self.free(pointer))?)
    }

    /// Frees the blocks unique to the dataset, or queues them for the background.
    fn free_contents(&mut self, place: &Place, head: &DslDataset) -> Result<(), TaskError> {
        let birth = head.previous_snapshot_txg;
        let id = (place.name.as_str(), place.head);
        if self.state.features.is_enabled(Feature::AsyncDestroy) {
            self.log_dataset("destroy", id, format!("(bptree, mintxg={birth})"))?;
        } else {
            self.log_dataset("destroy begin", id, " ".to_owned())?;
            self.log_dataset("destroy", id, format!("(synchronous, mintxg={birth})"))?;
        }
        let dir = self.dir(place.dir)?;
        let sums = SpaceDelta {
            used: dir.used.cast_signed(),
            compressed: dir.compressed.cast_signed(),
            uncompressed: dir.uncompressed.cast_signed(),
        };
        self.free_tree(place.dir, (head.root, birth), sums)
    }

    /// Frees the blocks of a directory that are below a root and were born after a txg. Where there
    /// is a background, or files may share blocks, queues them for the next txg, charging `sums` to
    /// what is freed there.
    pub(super) fn free_tree(
        &mut self,
        dir: ObjectId,
        blocks: (BlockPointer, Txg),
        sums: SpaceDelta,
    ) -> Result<(), TaskError> {
        if !self.state.features.is_enabled(Feature::AsyncDestroy) {
            if let Some(list) = self.list_of_next_txg() {
                self.charge_free_dir(dir, sums)?;
                let queue_tree_blocks = self.queue_tree_blocks(list, blocks);
                return Ok(queue_tree_blocks.unless_damaged(left_behind).map(drop)?);
            }
            let pipeline = self.mos.objset().pipeline();
            let free = |pointer: &_| self.free(pointer);
            let sums = bptree::free_all(pipeline, blocks, (self.deflation(), &free))?;
            let dirs = &mut self.state.dirs;
            return Ok(dirs.charge(&self.mos, dir, SpaceClass::Head, -sums)?);
        }
        self.charge_free_dir(dir, sums)?;
        let (mos, state) = (self.mos, &mut *self.state);
        let list = &mut state.frees.destroyed;
        let added = DestroyedList::add(list, &mos, &mut state.features, blocks, sums);
        Ok(added.unless_damaged(left_behind).map(drop)?)
    }

    /// The list for blocks that must not be freed before the next txg, as open transactions may
    /// share them between files; `None`: they may be freed at once.
    pub(super) fn list_of_next_txg(&mut self) -> Option<ObjectId> {
        let is_shared = self.state.features.is_enabled(Feature::BlockCloning);
        if is_shared { self.state.frees.background() } else { None }
    }

    /// Puts all blocks below a root that were born after a txg on a list.
    fn queue_tree_blocks(
        &self,
        list: ObjectId,
        blocks: (BlockPointer, Txg),
    ) -> Result<(), LiveError> {
        let (mos, deflation) = (self.mos, self.deflation());
        let waiting = RefCell::new(Vec::with_capacity(BATCH));
        let append = |pointers: &mut Vec<BlockPointer>| {
            if pointers.is_empty() {
                return Ok(());
            }
            bpobj::append(&mos, list, (pointers, ListMark::Allocated), deflation)?;
            pointers.clear();
            Ok(())
        };
        let put = |pointer: &BlockPointer| {
            let mut waiting = waiting.borrow_mut();
            waiting.push(*pointer);
            if waiting.len() < BATCH { Ok(()) } else { append(&mut waiting) }
        };
        bptree::free_all(mos.objset().pipeline(), blocks, (deflation, &put))?;
        append(&mut waiting.into_inner())
    }

    /// Charges the directory of pending frees instead of a dataset's own.
    pub(super) fn charge_free_dir(
        &mut self,
        dir: ObjectId,
        sums: SpaceDelta,
    ) -> Result<(), TaskError> {
        let (mos, dirs) = (self.mos, &mut self.state.dirs);
        dirs.charge(&mos, dir, SpaceClass::Head, -sums)?;
        if let Some(free_dir) = self.state.frees.free_dir() {
            dirs.charge(&mos, free_dir, SpaceClass::Head, sums).unless_damaged(left_behind)?;
        }
        Ok(())
    }

    fn destroy_head(&mut self, place: &Place, head: &DslDataset) -> Result<(), TaskError> {
        let mos = self.mos;
        self.destroy_bookmarks(place.head).unless_damaged(left_behind)?;
        if let Some(names) = head.snapshot_names {
            mos.destroy_own_or_leak(names, ObjectType::DSL_DS_SNAP_MAP)?;
        }
        let forgotten = error_log::forget(&self.mos, &self.state.features, place.head);
        forgotten.unless_damaged(left_behind)?;
        self.clear_bootfs(place.head).unless_damaged(left_behind)?;
        self.destroy_extended(place.head)
    }

    /// Ends the use of a head or snapshot as the pool's boot file system.
    pub(super) fn clear_bootfs(&mut self, head: ObjectId) -> Result<(), LiveError> {
        let mos = self.mos;
        if let Some(properties) = mos.object_of(DIRECTORY, "pool_props")?
            && mos.number(properties, PoolProperty::BootFs.name())? == Some(head.get())
        {
            mos.set(properties, PoolProperty::BootFs.name(), 0_u64)?;
        }
        Ok(())
    }

    /// Frees the object of a dataset or directory, unless it is damaged: a damaged pool may claim
    /// that it is one of its own tables.
    pub(super) fn destroy_extended(&mut self, id: ObjectId) -> Result<(), TaskError> {
        if is_extended(&self.mos, id).unless_damaged(left_behind)? == Some(true) {
            self.state.features.add(&self.mos, Feature::ExtensibleDataset, -1)?;
        }
        Ok(self.mos.destroy_or_leak(id)?)
    }

    fn destroy_bookmarks(&mut self, head: ObjectId) -> Result<(), TaskError> {
        let mos = self.mos;
        let Some(zap) = bookmarks::of_head(&mos, head)? else { return Ok(()) };
        let entries = mos.entries(zap).unless_damaged(left_behind)?;
        for entry in entries.unwrap_or_default() {
            if entry.value.len() > BookmarkRecord::FIRST_VERSION_WORDS {
                self.state.features.add(&mos, Feature::BookmarkV2, -1)?;
            }
            let Ok(record) = BookmarkRecord::decode(entry.value.integers()) else { continue };
            if record.has_sums() {
                self.state.features.add(&mos, Feature::BookmarkWritten, -1)?;
            }
            self.free_redaction(&record)?;
        }
        mos.destroy_own_or_leak(zap, ObjectType::ZAP_METADATA)?;
        Ok(self.state.features.add(&mos, Feature::Bookmarks, -1)?)
    }

    /// Frees the redaction list of a bookmark that is removed.
    pub(super) fn free_redaction(&mut self, mark: &BookmarkRecord) -> Result<(), TaskError> {
        let mos = self.mos;
        let Some(list) = mark.redaction else { return Ok(()) };
        let object = mos.object(list).unless_damaged(left_behind)?;
        let has_spill = object.map(|object| object.has_spill()).transpose();
        if has_spill.map_err(LiveError::from)? == Some(true) {
            self.state.features.add(&mos, Feature::RedactionListSpill, -1)?;
        }
        mos.destroy_own_or_leak(list, ObjectType::UINT64_METADATA)?;
        Ok(self.state.features.add(&mos, Feature::RedactionBookmarks, -1)?)
    }

    /// Destroys a directory whose head is gone.
    fn destroy_dir(&mut self, place: &Place) -> Result<(), TaskError> {
        let mos = self.mos;
        self.state.dirs.change(&mos, place.dir, |dir| dir.head_dataset = None)?;
        self.state.dirs.set_reservation(&mos, place.dir, 0)?;
        let dir = self.dir(place.dir)?;
        if place.name.rsplit('/').next().is_some_and(is_counted) {
            let counted = self.add_to_counts(dir.parent, Counted::FileSystems, -1);
            counted.unless_damaged(left_behind)?;
        }
        if dir.used != 0 {
            let problem = FormatError::invalid("DSL directory", "it uses space without a dataset");
            tracing::warn!(dir = %place.dir, used = dir.used, %problem, "space is lost");
        }
        if let Some(delegations) = dir.delegations {
            let entries = mos.entries(delegations).unless_damaged(left_behind)?;
            for entry in entries.unwrap_or_default() {
                if let Some(object) = entry.value.first_u64().and_then(|n| ObjectId(n).non_zero()) {
                    mos.destroy_own_or_leak(object, ObjectType::DSL_PERMS)?;
                }
            }
            mos.destroy_own_or_leak(delegations, ObjectType::DSL_PERMS)?;
        }
        let tables = [
            (dir.children, ObjectType::DSL_DIR_CHILD_MAP),
            (dir.properties, ObjectType::DSL_PROPS),
            (dir.clones, ObjectType::DSL_CLONES),
        ];
        for (table, object_type) in tables {
            table.map_or(Ok(()), |table| mos.destroy_own_or_leak(table, object_type))?;
        }
        if let Some(parent) = dir.parent
            && let Some(children) = self.dir(parent)?.children
            && let Some((_, name)) = place.name.rsplit_once('/')
        {
            mos.remove(children, name)?;
        }
        self.state.dirs.forget(place.dir);
        self.pool.accounts.close_dir(place.dir);
        self.release_key(place.dir).unless_damaged(left_behind)?;
        self.destroy_extended(place.dir)
    }

    /// The empty snapshot that is the origin of all new datasets; `None` in old pools.
    pub(super) fn empty_origin(&mut self) -> Result<Option<ObjectId>, TaskError> {
        let root = self.root_dir()?;
        let Some(dir) = self.child_dir(root, "$ORIGIN")? else { return Ok(None) };
        let Some(head) = self.dir(dir)?.head_dataset else { return Ok(None) };
        let Some(names) = self.dataset(head)?.snapshot_names else { return Ok(None) };
        Ok(self.mos.object_of(names, "$ORIGIN")?)
    }
}
