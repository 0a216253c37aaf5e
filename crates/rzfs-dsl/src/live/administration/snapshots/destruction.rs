//! Destroying snapshots (spec 04, sections 9.1, 9.2 and 15.4).
//!
//! Blocks unique to the snapshot are on the dead list of its successor; the rest of that list is
//! merged with the snapshot's own.

use super::SnapshotPlace;
use crate::dataset::SnapshotIdentity;
use crate::dataset::property::DatasetProperty;
use crate::live::LiveError;
use crate::live::administration::counts::Counted;
use crate::live::administration::destruction::left_behind;
use crate::live::administration::{TaskContext, TaskError};
use crate::live::amounts::{SpaceDelta, apply};
use crate::live::change_error::ChangeError;
use crate::live::datasets::dir::SpaceClass;
use crate::live::error::UnlessDamaged;
use crate::live::space::limits::SpaceTier;
use crate::mos::extensible::check_fields;
use crate::mos::pointer_list::PointerList;
use crate::mos::{MosSource, bookmarks, bpobj, deadlist, names, number_key};
use rzfs_dmu::live::Transaction;
use rzfs_format::bookmark::BookmarkRecord;
use rzfs_format::bpobj::ListMark;
use rzfs_format::dsl::DslDataset;
use rzfs_format::object_type::ObjectType;
use rzfs_format::{BlockPointer, FormatError, ObjectId, Txg};
use rzfs_zap::{IntegerSize, ZapValue};
use std::collections::BTreeSet;

/// What happens to a snapshot that is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destruction {
    /// It is an error.
    AtOnce,
    /// It is destroyed when it is no longer in use.
    Deferred,
}

/// A snapshot with its neighbours.
struct Chain {
    id: ObjectId,
    snapshot: DslDataset,
    /// Its predecessor.
    previous: Option<(ObjectId, DslDataset)>,
    /// Its successor, or the head.
    next: (ObjectId, DslDataset),
}

impl Chain {
    /// Whether the predecessor belongs to another head, of which this one is a clone.
    fn is_after_branch(&self) -> bool {
        let leads_here = |previous: &DslDataset| previous.next_snapshot == Some(self.id);
        !self.previous.as_ref().is_some_and(|(_, previous)| leads_here(previous))
    }
}

impl TaskContext<'_> {
    /// Destroys snapshots: all of them, or none. Missing ones are skipped.
    pub(crate) fn destroy_snapshots(
        &mut self,
        snapshots: &[String],
        destruction: Destruction,
    ) -> Result<(), TaskError> {
        let places = self.check_snapshots(snapshots, |this, name| {
            let Some(place) = this.find_snapshot(name)? else { return Ok(None) };
            let snapshot = this.dataset(place.id)?;
            if this.pool.readers.is_kept(SnapshotIdentity::of(place.id, &snapshot)) {
                return Err(ChangeError::Busy { name: name.to_owned() }.into());
            }
            let holds = this.hold_count(&snapshot)?;
            if destruction == Destruction::AtOnce {
                if holds > 0 {
                    return Err(ChangeError::Held { name: name.to_owned() }.into());
                }
                if snapshot.child_count > 1 {
                    return Err(ChangeError::HasClones { name: name.to_owned() }.into());
                }
            }
            this.check_chain(&place, &snapshot)?;
            Ok(Some(place))
        })?;
        self.require_space(SpaceTier::Frees)?;
        for place in places {
            let snapshot = self.dataset(place.id)?;
            if snapshot.child_count > 1 || self.hold_count(&snapshot)? > 0 {
                let flags = snapshot.flags | DslDataset::FLAG_DEFER_DESTROY;
                self.mos.set_record(place.id, &DslDataset { flags, ..snapshot })?;
                let text = " ".to_owned();
                self.log_dataset("defer_destroy", (&place.full_name(), place.id), text)?;
            } else {
                self.destroy_snapshot(&place)?;
            }
        }
        Ok(())
    }

    /// Checks that everything around a snapshot that its destruction changes can be read.
    pub(super) fn check_chain(
        &mut self,
        place: &SnapshotPlace,
        snapshot: &DslDataset,
    ) -> Result<(), TaskError> {
        let mos = self.mos;
        let Chain { previous, next, .. } = self.chain_of(place.id, snapshot.clone())?;
        let previous = previous.as_ref().map(|(_, previous)| previous);
        let lists = [snapshot.deadlist, next.1.deadlist];
        lists.into_iter().flatten().try_for_each(|list| deadlist::check(&mos, list))?;
        if let [Some(own), Some(list)] = lists {
            deadlist::check_merge(&mos, (list, own), snapshot.previous_snapshot_txg)?;
        }
        [place.id, place.of.head].into_iter().try_for_each(|id| check_fields(&mos, id))?;
        previous
            .and_then(|previous| previous.next_clones)
            .map_or(Ok(()), |it| mos.check_zap(it))?;
        let head = self.dataset(place.of.head)?;
        let names = self.snapshot_names((place.of.head, &head))?;
        mos.check_removal(names, &place.name)?;
        self.check_counts(place.of.dir)?;
        self.refuse_remap_deadlist(&place.full_name(), place.id)?;
        self.refuse_remap_deadlist(&place.full_name(), next.0)
    }

    fn chain_of(&self, id: ObjectId, snapshot: DslDataset) -> Result<Chain, LiveError> {
        let with_id = |id: ObjectId| self.dataset(id).map(|dataset| (id, dataset));
        let previous = snapshot.previous_snapshot.map(with_id).transpose()?;
        let missing = || FormatError::invalid("DSL dataset", "nothing follows a snapshot");
        let next = snapshot.next_snapshot.ok_or_else(missing).map_err(LiveError::corrupt(id))?;
        let next = with_id(next)?;
        if next.1.previous_snapshot != Some(id) {
            let problem = FormatError::invalid("DSL dataset", "it does not follow its snapshot");
            return Err(LiveError::corrupt(next.0)(problem));
        }
        Ok(Chain { id, snapshot, previous, next })
    }

    /// Destroys a snapshot that is not in use.
    pub(super) fn destroy_snapshot(&mut self, place: &SnapshotPlace) -> Result<(), TaskError> {
        let mos = self.mos;
        let (id, dir) = (place.id, place.of.dir);
        self.log_dataset("destroy", (&place.full_name(), id), " ".to_owned())?;
        // Nothing unique to the snapshot is freed before the next txg.
        let snapshot = self.dataset(id)?;
        self.pool.readers.end(SnapshotIdentity::of(id, &snapshot), mos.tx().txg());
        let mut chain = self.chain_of(id, snapshot)?;
        self.remove_snapshot_from_scan(id, chain.next.0).unless_damaged(left_behind)?;
        let key_stays =
            self.update_bookmarks_on_destroy(place, &chain).unless_damaged(left_behind)?;
        self.release_features(id).unless_damaged(left_behind)?;
        let is_only = chain.is_after_branch() && chain.next.0 == place.of.head;
        self.free_unique_blocks(place, &mut chain)?;
        self.unlink(&mut chain)?;
        self.settle_unique(place, &mut chain).unless_damaged(left_behind)?;
        if key_stays != Some(true) {
            let is_last = chain.next.0 == place.of.head;
            let heads = (place.of.dir, (!is_last).then_some(place.of.head));
            let dropped = self.drop_keys(heads, chain.snapshot.creation_txg);
            dropped.unless_damaged(left_behind)?;
        }
        let Chain { snapshot, previous, next, .. } = chain;
        previous.map_or(Ok(()), |(id, previous)| mos.set_record(id, &previous))?;
        mos.set_record(next.0, &next.1)?;
        if next.0 == place.of.head {
            self.state.written.insert(next.0, next.1);
        }
        if is_only {
            self.leak_rest(dir)?;
        }
        let head = self.dataset(place.of.head)?;
        mos.remove(self.snapshot_names((place.of.head, &head))?, place.name.as_str())?;
        self.add_to_counts(Some(dir), Counted::Snapshots, -1)?;
        self.note_change(dir)?;
        self.clear_bootfs(id).unless_damaged(left_behind)?;
        let tables = [
            (snapshot.next_clones, ObjectType::NEXT_CLONES),
            (snapshot.properties, ObjectType::DSL_PROPS),
            (snapshot.user_references, ObjectType::USERREFS),
        ];
        for (table, object_type) in tables {
            table.map_or(Ok(()), |table| mos.destroy_own_or_leak(table, object_type))?;
        }
        self.destroy_extended(id)
    }

    /// Updates a head's bookmarks when one of its snapshots is destroyed: more was freed before the
    /// next one. Returns whether a bookmark of that moment still needs to know which blocks are
    /// older.
    fn update_bookmarks_on_destroy(
        &mut self,
        place: &SnapshotPlace,
        chain: &Chain,
    ) -> Result<bool, LiveError> {
        let mos = self.mos;
        let Some(zap) = bookmarks::of_head(&mos, place.of.head)? else { return Ok(false) };
        let (since, txg) = (chain.snapshot.previous_snapshot_txg, chain.snapshot.creation_txg);
        let mut is_needed = false;
        for (name, mut mark) in bookmarks::all(&mos, zap)? {
            if !mark.has_sums() || mark.creation_txg < since || mark.creation_txg > txg {
                continue;
            }
            if mark.creation_txg == txg {
                mark.flags &= !BookmarkRecord::FLAG_SNAPSHOT_EXISTS;
                is_needed = true;
            } else if let Some(list) = chain.next.1.deadlist {
                let births = Txg(0)..mark.creation_txg;
                let freed = deadlist::sums_of(&mos, list, births, self.deflation())?;
                let sums = &mut mark.freed_before_next;
                apply(&mut sums.used, freed.used);
                apply(&mut sums.compressed, freed.compressed);
                apply(&mut sums.uncompressed, freed.uncompressed);
            }
            mos.set(zap, name.as_str(), ZapValue::new(IntegerSize::Eight, &mark.encode()))?;
        }
        Ok(is_needed)
    }

    /// Frees the blocks unique to the snapshot, and moves other dead blocks to its successor's dead
    /// list.
    fn free_unique_blocks(
        &mut self,
        place: &SnapshotPlace,
        chain: &mut Chain,
    ) -> Result<(), TaskError> {
        let mos = self.mos;
        let (Some(list), Some(own)) = (chain.next.1.deadlist, chain.snapshot.deadlist) else {
            return Ok(());
        };
        let since = chain.snapshot.previous_snapshot_txg;
        let background = self.state.frees.background();
        let (Some(free_list), false) = (background, deadlist::is_old(&mos, list)?) else {
            return self.free_unique_blocks_single_list(place, chain, (list, own));
        };
        if !chain.is_after_branch()
            && let Some((_, previous)) = &mut chain.previous
        {
            let births = previous.previous_snapshot_txg..since;
            let more = deadlist::sums_of(&mos, list, births, self.deflation())?;
            apply(&mut previous.unique, more.used);
        }
        let features = &mut self.state.features;
        let freed = deadlist::move_to_list(&mos, features, list, since, free_list)?;
        let deflation = self.deflation();
        deadlist::merge(&mos, &mut self.state.features, (list, own), deflation)?;
        let dirs = &mut self.state.dirs;
        dirs.charge(&mos, place.of.dir, SpaceClass::Snapshots, -freed)?;
        if let Some(free_dir) = self.state.frees.free_dir() {
            dirs.charge(&mos, free_dir, SpaceClass::Head, freed).unless_damaged(left_behind)?;
        }
        Ok(())
    }

    /// The same in a pool whose dead lists are single lists: each block has to be checked.
    fn free_unique_blocks_single_list(
        &mut self,
        place: &SnapshotPlace,
        chain: &mut Chain,
        (list, own): (ObjectId, ObjectId),
    ) -> Result<(), TaskError> {
        let mos = self.mos;
        let since = chain.snapshot.previous_snapshot_txg;
        let is_after_branch = chain.is_after_branch();
        let mut freed = SpaceDelta::default();
        let (mut dead, mut kept) = (Vec::<BlockPointer>::new(), Vec::<BlockPointer>::new());
        for part in PointerList::with_sublists(mos.object(list)?) {
            for pointer in part.map_err(LiveError::from)?.entries_from(0) {
                let pointer = pointer.map_err(LiveError::from)?;
                let delta = self.deflation().of(&pointer);
                if pointer.logical_birth() > since {
                    freed += delta;
                    dead.push(pointer);
                    continue;
                }
                if !is_after_branch
                    && let Some((_, previous)) = &mut chain.previous
                    && pointer.logical_birth() > previous.previous_snapshot_txg
                {
                    apply(&mut previous.unique, delta.used);
                }
                kept.push(pointer);
            }
        }
        let deflation = self.deflation();
        if let Some(queue_tree_blocks) = self.list_of_next_txg().filter(|_| !dead.is_empty()) {
            let appended =
                bpobj::append(&mos, queue_tree_blocks, (&dead, ListMark::Allocated), deflation);
            appended.unless_damaged(left_behind)?;
            if let Some(free_dir) = self.state.frees.free_dir() {
                let charged = self.state.dirs.charge(&mos, free_dir, SpaceClass::Head, freed);
                charged.unless_damaged(left_behind)?;
            }
        } else {
            dead.iter().try_for_each(|pointer| self.free(pointer))?;
        }
        let kept = (&*kept, ListMark::Allocated);
        deadlist::insert(&mos, &mut self.state.features, own, kept, deflation)?;
        deadlist::destroy(&mos, &mut self.state.features, list)?;
        chain.next.1.deadlist = Some(own);
        let dirs = &mut self.state.dirs;
        Ok(dirs.charge(&mos, place.of.dir, SpaceClass::Snapshots, -freed)?)
    }

    /// Counts as leaked what a directory without snapshots is still charged for because of some: what
    /// damage has kept from dead lists, or from being found there.
    fn leak_rest(&mut self, dir: ObjectId) -> Result<(), TaskError> {
        let charged = self.dir(dir)?;
        let used = charged.breakdown.snapshots.min(charged.used).cast_signed();
        // Pools without a directory for what is being freed charge nobody for it.
        if used > 0 && self.state.frees.free_dir().is_some() {
            tracing::warn!(%dir, used, "space of destroyed snapshots is leaked");
            let lost = SpaceDelta { used, ..SpaceDelta::default() };
            self.state.dirs.charge(&self.mos, dir, SpaceClass::Snapshots, -lost)?;
            self.state.leaks.add(lost);
        }
        Ok(())
    }

    /// Links the neighbours of a snapshot to each other.
    fn unlink(&mut self, chain: &mut Chain) -> Result<(), TaskError> {
        let is_after_branch = chain.is_after_branch();
        let (next, mos) = (chain.next.0, self.mos);
        if let Some((_, previous)) = &mut chain.previous {
            if is_after_branch {
                if let Some(clones) = previous.next_clones {
                    mos.remove(clones, number_key(chain.id.get()).as_str())?;
                    mos.set(clones, &number_key(next.get()), next.get())?;
                }
            } else {
                previous.next_snapshot = Some(next);
            }
        }
        chain.next.1.previous_snapshot = chain.snapshot.previous_snapshot;
        chain.next.1.previous_snapshot_txg = chain.snapshot.previous_snapshot_txg;
        Ok(())
    }

    /// Removes the key of a txg from the dead list of a head, if it has it, and of all clones of
    /// later snapshots in its directory.
    pub(in crate::live::administration) fn drop_keys(
        &mut self,
        (dir, head): (ObjectId, Option<ObjectId>),
        key: Txg,
    ) -> Result<(), LiveError> {
        if !self.state.features.has_deadlists() {
            return Ok(());
        }
        for head in head.into_iter().chain(self.clones_since(dir, key)?) {
            let list = self.dataset(head)?.deadlist;
            list.map_or(Ok(()), |list| self.drop_key(list, key))?;
        }
        Ok(())
    }

    fn drop_key(&mut self, list: ObjectId, key: Txg) -> Result<(), LiveError> {
        if deadlist::is_old(&self.mos, list)? {
            return Ok(());
        }
        let removed = deadlist::remove_key(&self.mos, &mut self.state.features, list, key);
        removed.unless_damaged(left_behind).map(drop)
    }

    /// The heads of all clones, direct and indirect, of a directory's snapshots, created after a
    /// txg: each once.
    fn clones_since(&mut self, dir: ObjectId, txg: Txg) -> Result<BTreeSet<ObjectId>, LiveError> {
        let mut found = BTreeSet::new();
        let mut pending = vec![dir];
        while let Some(dir) = pending.pop() {
            let Some(clones) = self.dir(dir)?.clones else { continue };
            for (_, clone) in names::all(&self.mos, Some(clones))? {
                let of_clone = self.dataset(clone)?.dir;
                let Some(origin) = self.dir(of_clone)?.origin else { continue };
                if self.dataset(origin)?.creation_txg > txg && found.insert(clone) {
                    pending.push(of_clone);
                }
            }
        }
        Ok(found)
    }

    /// Recomputes the successor's unique bytes after a snapshot is gone.
    fn settle_unique(&mut self, place: &SnapshotPlace, chain: &mut Chain) -> Result<(), TaskError> {
        let mos = self.mos;
        let (next, snapshot) = (&chain.next.1, &chain.snapshot);
        if let Some(after) = next.next_snapshot {
            let list = self.dataset(after)?.deadlist;
            let births = snapshot.previous_snapshot_txg..snapshot.creation_txg;
            let deflation = self.deflation();
            let more = list.map(|list| deadlist::sums_of(&mos, list, births, deflation));
            apply(&mut chain.next.1.unique, more.transpose()?.unwrap_or_default().used);
            return Ok(());
        }
        let shared = match (&chain.previous, next.deadlist) {
            (Some((_, previous)), Some(list)) => {
                previous.referenced.saturating_sub(deadlist::sums(&mos, list)?.used)
            }
            _ => 0,
        };
        let (old, new) = (next.unique, next.referenced.saturating_sub(shared));
        chain.next.1.unique = new;
        chain.next.1.flags |= DslDataset::FLAG_UNIQUE_ACCURATE;
        let reserved = self.own_number(place.of.dir, DatasetProperty::RefReservation)?;
        if old < reserved {
            let less = new.saturating_sub(old).min(reserved - old).cast_signed();
            let delta = SpaceDelta { used: -less, ..SpaceDelta::default() };
            let class = SpaceClass::RefReservation;
            self.state.dirs.charge(&mos, place.of.dir, class, delta)?;
        }
        Ok(())
    }
}
