//! Promoting clones: a clone and its origin change places (spec 04, section 11.2).
//!
//! ```text
//!  s1 ── O ── s3 ── head               s1 ── O ── c1 ── clone
//!        └─── c1 ── clone      ──>           └─── s3 ── head
//! ```
//! What belonged to the head's directory up to `O` then belongs to the clone's.

use super::counts::Counted;
use super::place::{Place, check_not_hidden};
use super::{TaskContext, TaskError};
use crate::dataset::DatasetName;
use crate::live::LiveError;
use crate::live::amounts::SpaceDelta;
use crate::live::change_error::ChangeError;
use crate::live::datasets::dir::SpaceClass;
use crate::live::datasets::livelist;
use crate::live::error::UnlessDamaged;
use crate::live::space::limits::SpaceTier;
use crate::mos::extensible::check_fields;
use crate::mos::{bookmarks, deadlist, error_log, key_object, names, number_key};
use rzfs_format::dsl::{DslDataset, DslDir};
use rzfs_format::object_type::ObjectType;
use rzfs_format::{FormatError, ObjectId, Txg};
use std::collections::BTreeSet;

/// A head or snapshot of a chain.
type Member = (ObjectId, DslDataset);

/// A clone that can be promoted.
struct Promotion {
    clone: Place,
    clone_dir: DslDir,
    /// Its origin.
    origin: Place,
    origin_dir: DslDir,
    /// The snapshots that change owner, youngest (the origin) to oldest, with their names.
    shared: Vec<(String, Member)>,
    /// The clone and its own snapshots, youngest first.
    of_clone: Vec<Member>,
    /// The heads of the other clones of these snapshots.
    moved_clones: Vec<ObjectId>,
    /// The space of everything that changes owner.
    moved: SpaceDelta,
    /// The new unique bytes of the origin.
    unique: u64,
    /// The new charge to the snapshots of the two directories.
    clone_snapshots: u64,
    origin_snapshots: u64,
    /// The key objects whose encryption root is replaced.
    keys_of_root: BTreeSet<ObjectId>,
}

impl TaskContext<'_> {
    pub(crate) fn promote(&mut self, name: &str) -> Result<(), TaskError> {
        let promotion = self.check(|this| this.check_promotion(name))?;
        self.require_space(SpaceTier::Reserved)?;
        self.transfer_encryption_root(&promotion)?;
        self.exchange_places(&promotion)?;
        self.exchange_clones(&promotion)?;
        self.move_bookmarks(&promotion)?;
        let stay =
            |error: &LiveError| tracing::warn!(%error, "the error log names heads of before");
        self.move_errors(&promotion).unless_damaged(stay)?;
        self.move_snapshots(&promotion)?;
        self.exchange_space(&promotion)?;
        let Promotion { clone, origin, .. } = &promotion;
        for dir in [clone.dir, origin.dir] {
            livelist::remove(&self.mos, &mut self.state.features, dir)?;
        }
        self.state.changed.extend([clone.name.clone(), origin.name.clone()]);
        Ok(self.log_dataset("promote", (name, clone.head), " ".to_owned())?)
    }

    fn check_promotion(&mut self, name: &str) -> Result<Promotion, TaskError> {
        let not_a_clone = || ChangeError::NotAClone { name: name.to_owned() };
        check_not_hidden(name)?;
        let clone = self.head(name)?;
        let clone_dir = self.dir(clone.dir)?;
        let origin = clone_dir.origin.ok_or_else(not_a_clone)?;
        if Some(origin) == self.empty_origin()? {
            return Err(not_a_clone().into());
        }
        let above = self.snapshot_of(origin)?.of;
        let origin_dir = self.dir(above.dir)?;
        let of_clone = self.chain(clone.head, Some(origin))?;
        let of_origin = self.chain(above.head, Some(origin))?;
        let members = self.chain(origin, origin_dir.origin)?;
        let shared = self.named(&above, members)?;
        if shared.is_empty() || of_clone.is_empty() {
            let problem = FormatError::invalid("DSL dataset", "its origin is none");
            return Err(LiveError::corrupt(clone.head)(problem).into());
        }
        self.check_names((&clone, &above), &shared)?;
        let (moved, unique) = self.moved_space(&origin_dir, &shared, &of_clone)?;
        let since = match origin_dir.origin {
            Some(origin) => self.dataset(origin)?.creation_txg,
            None => Txg(0),
        };
        let shared_members = shared.iter().map(|(_, member)| member);
        let clone_snapshots = self.dead_since(shared_members.chain(&of_clone), since)?;
        let branch = shared.first().map_or(Txg(0), |(_, (_, origin))| origin.creation_txg);
        let origin_snapshots = self.dead_since(of_origin.iter(), branch)?;
        let keys_of_root = self.check_keys(&clone, &above, &origin_dir)?;
        self.check_room_for(&above, &clone, moved.used.unsigned_abs())?;
        let mos = self.mos;
        for (_, (_, member)) in &shared {
            member.next_clones.map_or(Ok(()), |clones| mos.check_zap(clones))?;
        }
        let list = of_clone.last().and_then(|(_, oldest)| oldest.deadlist);
        list.map_or(Ok(()), |list| deadlist::check(&mos, list))?;
        for of in [&clone, &above] {
            self.check_counts(of.dir)?;
            check_fields(&mos, of.head)?;
            livelist::of_dir(&mos, &self.state.features, of.dir)?;
            let head = self.dataset(of.head)?;
            let marks = bookmarks::of_head(&mos, of.head)?;
            let names = self.snapshot_names((of.head, &head))?;
            let tables = [Some(names), self.dir(of.dir)?.clones, marks];
            tables.into_iter().flatten().try_for_each(|table| mos.check_zap(table))?;
            self.refuse_remap_deadlist(&of.name, of.head)?;
        }
        if let Some(origin) = origin_dir.origin {
            self.clones_of(origin)?.map_or(Ok(()), |clones| mos.check_zap(clones))?;
        }
        let moved_clones = self.moved_clones(&above, &shared)?;
        Ok(Promotion {
            clone,
            clone_dir,
            origin: above,
            origin_dir,
            shared,
            of_clone,
            moved_clones,
            moved,
            unique,
            clone_snapshots,
            origin_snapshots,
            keys_of_root,
        })
    }

    /// A dataset and its predecessors, up to one that is not in the set. All but the first are
    /// snapshots, each older than its successor.
    pub(super) fn chain(
        &self,
        from: ObjectId,
        end: Option<ObjectId>,
    ) -> Result<Vec<Member>, LiveError> {
        let mut chain: Vec<Member> = Vec::new();
        let mut next = Some(from);
        while let Some(id) = next.filter(|id| Some(*id) != end) {
            let dataset = self.dataset(id)?;
            if let Some((_, later)) = chain.last()
                && (!dataset.is_snapshot() || !follows(later, &dataset))
            {
                let problem = FormatError::invalid("DSL dataset", "snapshots are not in order");
                return Err(LiveError::corrupt(id)(problem));
            }
            next = dataset.previous_snapshot;
            chain.push((id, dataset));
        }
        if next == end {
            return Ok(chain);
        }
        let problem = FormatError::invalid("DSL dataset", "it does not lead to its origin");
        Err(LiveError::corrupt(from)(problem))
    }

    /// Snapshots with their names.
    fn named(&self, of: &Place, members: Vec<Member>) -> Result<Vec<(String, Member)>, LiveError> {
        let known = names::all(&self.mos, self.dataset(of.head)?.snapshot_names)?;
        let named = members.into_iter().map(|(id, member)| {
            let name = known.iter().find(|(_, snapshot)| *snapshot == id);
            let missing = || FormatError::invalid("DSL dataset", "a snapshot has no name");
            let (name, _) = name.ok_or_else(missing).map_err(LiveError::corrupt(id))?;
            Ok((name.clone(), (id, member)))
        });
        named.collect()
    }

    /// Refuses when snapshots or bookmarks would collide with names of the clone's own, or get too
    /// long a name.
    fn check_names(
        &mut self,
        (clone, origin): (&Place, &Place),
        shared: &[(String, Member)],
    ) -> Result<(), TaskError> {
        let head = self.dataset(clone.head)?;
        let mut conflicts = Vec::new();
        let branch = shared.first().map_or(Txg(0), |(_, (_, origin))| origin.creation_txg);
        for (mark, record) in self.bookmarks_of(origin.head)? {
            let moves = record.creation_txg <= branch;
            if moves && self.bookmark(clone.head, &mark)?.is_some() {
                conflicts.push(mark);
            }
        }
        for (snapshot, _) in shared {
            let name = format!("{}@{snapshot}", clone.name);
            if name.len() > DatasetName::MAX_LEN {
                return Err(ChangeError::NameTooLong { name }.into());
            }
            if names::snapshot(&self.mos, &head, snapshot)?.is_some() {
                conflicts.push(snapshot.clone());
            }
        }
        if conflicts.is_empty() {
            return Ok(());
        }
        Err(ChangeError::ConflictingSnapshots { name: clone.name.clone(), conflicts }.into())
    }

    /// The space of everything up to the origin, and the part unique to the origin.
    fn moved_space(
        &mut self,
        origin_dir: &DslDir,
        shared: &[(String, Member)],
        of_clone: &[Member],
    ) -> Result<(SpaceDelta, u64), LiveError> {
        let Some((_, (_, origin))) = shared.first() else {
            return Ok((SpaceDelta::default(), 0));
        };
        let mut moved = sums_of(origin);
        for (_, (_, snapshot)) in shared {
            if snapshot.previous_snapshot.is_some()
                && let Some(list) = snapshot.deadlist
            {
                let dead = deadlist::sums(&self.mos, list)?;
                moved += SpaceDelta {
                    used: dead.used.cast_signed(),
                    compressed: dead.compressed.cast_signed(),
                    uncompressed: dead.uncompressed.cast_signed(),
                };
            }
        }
        if let Some(above) = origin_dir.origin {
            moved += -sums_of(&self.dataset(above)?);
        }
        let unique = match of_clone.last().and_then(|(_, oldest)| oldest.deadlist) {
            Some(list) => {
                let births = origin.previous_snapshot_txg..deadlist::END;
                deadlist::sums_of(&self.mos, list, births, self.deflation())?.used
            }
            None => 0,
        };
        Ok((moved, unique.unsigned_abs()))
    }

    /// Bytes on the dead lists of datasets that were born after a txg.
    fn dead_since<'m>(
        &self,
        members: impl Iterator<Item = &'m Member>,
        since: Txg,
    ) -> Result<u64, LiveError> {
        let mut bytes = 0_u64;
        for list in members.filter_map(|(_, member)| member.deadlist) {
            let births = since..deadlist::END;
            let sums = deadlist::sums_of(&self.mos, list, births, self.deflation())?;
            bytes = bytes.saturating_add_signed(sums.used);
        }
        Ok(bytes)
    }

    /// Refuses when the two would no longer share an encryption root, unless the root is the one
    /// replaced: then its key objects are returned.
    fn check_keys(
        &mut self,
        clone: &Place,
        origin: &Place,
        origin_dir: &DslDir,
    ) -> Result<BTreeSet<ObjectId>, TaskError> {
        let mos = self.mos;
        let Some(key) = key_object::of_dir(&mos, origin.dir)? else { return Ok(BTreeSet::new()) };
        if key_object::root(&mos, key)? == origin.dir {
            // A clone of a clone is its encryption root until it is promoted itself.
            let is_user_clone =
                origin_dir.origin.is_some() && origin_dir.origin != self.empty_origin()?;
            let keys = if is_user_clone {
                BTreeSet::new()
            } else {
                self.keys_below(origin.dir, origin.dir)?
            };
            keys.iter().try_for_each(|key| mos.check_zap(*key))?;
            return Ok(keys);
        }
        let root_above = |dir: Option<ObjectId>| -> Result<Option<ObjectId>, LiveError> {
            let key = dir.map(|dir| key_object::of_dir(&mos, dir)).transpose()?.flatten();
            key.map(|key| key_object::root(&mos, key)).transpose()
        };
        let clone_parent = self.dir(clone.dir)?.parent;
        if root_above(clone_parent)? == root_above(origin_dir.parent)? {
            return Ok(BTreeSet::new());
        }
        Err(ChangeError::OtherEncryptionRoot { name: clone.name.clone() }.into())
    }

    /// Checks that what moves to the clone fits into the quotas that apply there and not to the
    /// origin, and into the space that remains where the origin no longer has it.
    fn check_room_for(
        &mut self,
        origin: &Place,
        clone: &Place,
        bytes: u64,
    ) -> Result<(), TaskError> {
        let above = self.dirs_above(origin.dir)?;
        for id in self.dirs_above(clone.dir)?.into_iter().filter(|id| !above.contains(id)) {
            let dir = self.dir(id)?;
            if dir.quota != 0 && bytes > dir.quota.saturating_sub(dir.used) {
                return Err(ChangeError::Quota { name: clone.name.clone() }.into());
            }
        }
        if bytes > self.available_for_move(bytes, origin.dir, clone.dir)? {
            return Err(ChangeError::NoSpace.into());
        }
        Ok(())
    }

    /// Makes the clone the encryption root if its origin was.
    fn transfer_encryption_root(&mut self, promotion: &Promotion) -> Result<(), TaskError> {
        let Promotion { clone, origin, keys_of_root, .. } = promotion;
        if keys_of_root.is_empty() {
            return Ok(());
        }
        self.move_key_location(origin, clone)?;
        for key in keys_of_root {
            key_object::set_root(&self.mos, *key, clone.dir)?;
        }
        let keyring = &self.pool.keyring;
        if let Some(loaded) = keyring.root_key(origin.dir) {
            keyring.forget_root(origin.dir);
            keyring.insert_root(clone.dir, loaded);
        }
        Ok(())
    }

    /// Makes the clone's oldest snapshot, or the clone itself, the successor of the origin, and the
    /// former successor a branch.
    fn exchange_places(&mut self, promotion: &Promotion) -> Result<(), TaskError> {
        let mos = self.mos;
        let Some((_, (id, origin))) = promotion.shared.first() else { return Ok(()) };
        let Some((oldest, _)) = promotion.of_clone.last() else { return Ok(()) };
        let mut record = self.dataset(*id)?;
        if let Some(branches) = record.next_clones {
            mos.remove(branches, number_key(oldest.get()).as_str())?;
            if let Some(next) = origin.next_snapshot {
                mos.set(branches, &number_key(next.get()), next.get())?;
            }
        }
        record.next_snapshot = Some(*oldest);
        record.unique = promotion.unique;
        mos.set_record(*id, &record)?;
        let dirs = &mut self.state.dirs;
        let above = promotion.origin_dir.origin;
        dirs.change(&mos, promotion.clone.dir, |dir| dir.origin = above)?;
        Ok(dirs.change(&mos, promotion.origin.dir, |dir| dir.origin = Some(*id))?)
    }

    /// The heads of the clones of snapshots that change owner, except the replaced one.
    fn moved_clones(
        &mut self,
        origin: &Place,
        shared: &[(String, Member)],
    ) -> Result<Vec<ObjectId>, LiveError> {
        let mut moved = Vec::new();
        for (index, (_, (_, member))) in shared.iter().enumerate() {
            for (_, branch) in names::all(&self.mos, member.next_clones)? {
                let dir = self.dataset(branch)?.dir;
                if index > 0 || dir != origin.dir {
                    moved.extend(self.dir(dir)?.head_dataset);
                }
            }
        }
        Ok(moved)
    }

    /// Updates the clone tables for the two heads and the clones of what changes owner.
    fn exchange_clones(&mut self, promotion: &Promotion) -> Result<(), TaskError> {
        let Promotion { clone, origin, origin_dir, moved_clones, .. } = promotion;
        if !self.state.features.has_deadlists() {
            return Ok(());
        }
        self.leave_clones(origin.dir, clone.head)?;
        if let Some(above) = origin_dir.origin {
            let above = self.dataset(above)?.dir;
            self.leave_clones(above, origin.head)?;
            self.enter_clones(above, clone.head)?;
        }
        self.enter_clones(clone.dir, origin.head)?;
        for head in moved_clones.iter().filter(|head| **head != clone.head) {
            self.leave_clones(origin.dir, *head)?;
            self.enter_clones(clone.dir, *head)?;
        }
        Ok(())
    }

    fn leave_clones(&mut self, dir: ObjectId, clone: ObjectId) -> Result<(), LiveError> {
        let Some(clones) = self.dir(dir)?.clones else { return Ok(()) };
        self.mos.remove(clones, number_key(clone.get()).as_str()).map(drop)
    }

    fn enter_clones(&mut self, dir: ObjectId, clone: ObjectId) -> Result<(), LiveError> {
        let mos = self.mos;
        let clones = match self.dir(dir)?.clones {
            Some(clones) => clones,
            None => {
                let clones = mos.create_zap(ObjectType::DSL_CLONES)?;
                self.state.dirs.change(&mos, dir, |dir| dir.clones = Some(clones))?;
                clones
            }
        };
        mos.set(clones, &number_key(clone.get()), clone.get())
    }

    /// Moves the error log entries of what the clone takes over (spec 01, section 7.3).
    fn move_errors(&mut self, promotion: &Promotion) -> Result<(), LiveError> {
        let Promotion { clone, origin, shared, .. } = promotion;
        let Some((_, (_, snapshot))) = shared.first() else { return Ok(()) };
        let heads = (origin.head, clone.head);
        error_log::hand_over(&self.mos, &self.state.features, heads, snapshot.creation_txg)
    }

    /// Moves the bookmarks of what the clone takes over; those of the origin, its own included, now
    /// account frees before another snapshot (spec 04, section 15.4).
    fn move_bookmarks(&mut self, promotion: &Promotion) -> Result<(), TaskError> {
        let Promotion { clone, origin, shared, of_clone, .. } = promotion;
        let Some((_, (_, snapshot))) = shared.first() else { return Ok(()) };
        let branch = snapshot.creation_txg;
        let marks = self.bookmarks_of(origin.head)?;
        for (name, mark) in marks.into_iter().filter(|(_, mark)| mark.creation_txg <= branch) {
            self.remove_bookmark_entry(origin.head, &name, &mark)?;
            self.add_bookmark_entry(clone.head, &name, &mark)?;
        }
        let next = of_clone.last().and_then(|(_, oldest)| oldest.deadlist);
        let freed = self.freed_sums(next)?;
        Ok(self.update_bookmark_sums(clone.head, snapshot, freed)?)
    }

    /// Moves the origin's snapshots to the clone.
    fn move_snapshots(&mut self, promotion: &Promotion) -> Result<(), TaskError> {
        let Promotion { clone, origin, shared, .. } = promotion;
        let mos = self.mos;
        let (from, to) = (self.dataset(origin.head)?, self.dataset(clone.head)?);
        let from = self.snapshot_names((origin.head, &from))?;
        let to = self.snapshot_names((clone.head, &to))?;
        for (name, (id, _)) in shared {
            mos.remove(from, name.as_str())?;
            mos.insert(to, name, id.get())?;
            let record = self.dataset(*id)?;
            mos.set_record(*id, &DslDataset { dir: clone.dir, ..record })?;
        }
        let count = shared.len().cast_signed() as i64;
        self.add_to_counts(Some(origin.dir), Counted::Snapshots, -count)?;
        self.add_to_counts(Some(clone.dir), Counted::Snapshots, count)?;
        self.note_change(origin.dir)?;
        Ok(self.note_change(clone.dir)?)
    }

    /// Charges the clone for what it takes over.
    fn exchange_space(&mut self, promotion: &Promotion) -> Result<(), TaskError> {
        let Promotion { clone, clone_dir, origin, origin_dir, moved, .. } = promotion;
        let of_snapshots =
            |bytes: u64, dir: &DslDir| bytes.wrapping_sub(dir.breakdown.snapshots).cast_signed();
        let more = of_snapshots(promotion.clone_snapshots, clone_dir);
        let less = of_snapshots(promotion.origin_snapshots, origin_dir);
        for (dir, snapshots, head) in [(clone.dir, more, *moved), (origin.dir, less, -*moved)] {
            let (mos, dirs) = (self.mos, &mut self.state.dirs);
            let delta = SpaceDelta { used: snapshots, ..SpaceDelta::default() };
            dirs.charge(&mos, dir, SpaceClass::Snapshots, delta)?;
            let delta = SpaceDelta { used: head.used.wrapping_sub(snapshots), ..head };
            dirs.charge(&mos, dir, SpaceClass::Head, delta)?;
        }
        Ok(())
    }
}

/// Whether a head or snapshot can be the successor of a snapshot.
fn follows(later: &DslDataset, snapshot: &DslDataset) -> bool {
    !later.is_snapshot() || snapshot.creation_txg < later.creation_txg
}

fn sums_of(dataset: &DslDataset) -> SpaceDelta {
    SpaceDelta {
        used: dataset.referenced.cast_signed(),
        compressed: dataset.compressed.cast_signed(),
        uncompressed: dataset.uncompressed.cast_signed(),
    }
}
