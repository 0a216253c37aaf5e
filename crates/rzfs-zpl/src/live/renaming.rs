//! Moving names (spec 05, section 3.5).

use super::admission::DNODE_BYTES;
use super::caller::Caller;
use super::change::{Prepared, Touch};
use super::creation::{MAX_LINKS, Naming};
use super::draft::Draft;
use super::file_system::LiveFileSystem;
use super::names::{NameChanges, Step};
use super::node::{LiveNode, Locked, NodeState, lock_in_order};
use super::quotas::Charged;
use super::removal::links_after;
use super::seed::NodeSeed;
use crate::error::ZplError;
use crate::sync::Arc;
use rzfs_dmu::live::Transaction;
use rzfs_dsl::live::SpaceDemand;
use rzfs_format::dirent::{DirectoryEntry, FileKind};
use rzfs_format::fuid::Fuid;
use rzfs_format::sa::Attribute;
use rzfs_format::znode::{DeviceNumber, FileFlags};
use rzfs_format::{FormatError, ObjectId};

/// Maximum nesting of directories.
const MAX_DEPTH: usize = 1 << 20;

/// What happens to the target of the new name, and to the old name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RenameMode {
    /// The target is replaced.
    Replace,
    /// The new name must not exist.
    NoReplace,
    /// The names are exchanged.
    Exchange,
    /// As [`RenameMode::Replace`], and the old name becomes a device 0:0, which hides a name in an
    /// overlay.
    Whiteout,
}

/// A name in a directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Named<'a> {
    /// The directory.
    pub directory: ObjectId,
    /// The name.
    pub name: &'a [u8],
}

/// The files of a rename, found before they are locked.
struct RenamedFiles {
    source: Arc<LiveNode>,
    target: Option<Arc<LiveNode>>,
}

/// The changes of a rename, computed while everything is locked.
struct Plan {
    steps: Vec<Step>,
    /// The new attributes of files, by number.
    changes: Vec<(ObjectId, Prepared)>,
    whiteout: Option<Draft>,
    /// Whether the target loses its last name.
    loses_target: bool,
}

impl LiveFileSystem {
    /// Moves a name.
    ///
    /// # Errors
    /// There is no such name, the new one is invalid, exists against `mode` or refers to a file of
    /// another kind or a directory that is not empty, a directory would be moved into itself, flags
    /// forbid it, or the file belongs to another project than the directory.
    pub fn rename(
        &self,
        from: Named<'_>,
        to: Named<'_>,
        mode: RenameMode,
        caller: Caller,
    ) -> Result<(), ZplError> {
        self.check_old_name(self.place(from.directory), from.name)?;
        match mode {
            RenameMode::Exchange => self.check_old_name(self.place(to.directory), to.name)?,
            _ => self.check_new_name(self.place(to.directory), to.name)?,
        }
        let (source_dir, target_dir) = (self.node(from.directory)?, self.node(to.directory)?);
        let moves = from.directory != to.directory;
        let _renaming = moves.then(|| self.renaming.lock());
        loop {
            let found = self.find(&source_dir, from, &target_dir, to)?;
            if moves {
                self.check_inside(&found, from, to, mode)?;
            }
            let mut nodes: Vec<&LiveNode> = vec![&source_dir, &target_dir, &found.source];
            nodes.extend(found.target.as_deref());
            let mut locked = lock_in_order(&nodes);
            if !self.is_found(&locked, &found, from, to)? {
                continue;
            }
            let lost = self.rename_locked(&mut locked, &found, from, to, mode, caller)?;
            drop(locked);
            let committed = self.commit_always(found.source.id());
            if let Some(target) = found.target.filter(|_| lost) {
                self.reclaim_unused(&target);
            }
            return committed;
        }
    }

    fn find(
        &self,
        source_dir: &LiveNode,
        from: Named<'_>,
        target_dir: &LiveNode,
        to: Named<'_>,
    ) -> Result<RenamedFiles, ZplError> {
        let source = self.named(source_dir, from.name)?;
        let target = self.named_if_any(&target_dir.state().read(), to.name)?;
        Ok(RenamedFiles { source, target })
    }

    /// Whether the names still refer to the locked files.
    fn is_found(
        &self,
        locked: &Locked<'_>,
        found: &RenamedFiles,
        from: Named<'_>,
        to: Named<'_>,
    ) -> Result<bool, ZplError> {
        let target = self.entry(self.of(locked, to.directory)?, to.name)?;
        let target_is_same =
            target.map(|entry| entry.object) == found.target.as_ref().map(|node| node.id());
        let source = self.of(locked, from.directory)?;
        Ok(target_is_same && self.still_named(source, from.name, found.source.id())?)
    }

    fn of<'a>(&self, locked: &'a Locked<'_>, id: ObjectId) -> Result<&'a NodeState, ZplError> {
        locked.get(id).ok_or(ZplError::NotFound { place: self.place(id) })
    }

    /// Refuses to move a directory into itself. No other directories move meanwhile.
    fn check_inside(
        &self,
        found: &RenamedFiles,
        from: Named<'_>,
        to: Named<'_>,
        mode: RenameMode,
    ) -> Result<(), ZplError> {
        let mut moved = vec![(&found.source, to.directory)];
        if let (RenameMode::Exchange, Some(target)) = (mode, &found.target) {
            moved.push((target, from.directory));
        }
        for (node, into) in moved {
            let is_directory = node.state().read().znode().is_directory();
            if is_directory && self.is_inside(into, node.id())? {
                let place = self.place(node.id());
                return Err(ZplError::Invalid { place, problem: "it would come into itself" });
            }
        }
        Ok(())
    }

    /// Whether a directory is, or is inside, another one.
    fn is_inside(&self, directory: ObjectId, outer: ObjectId) -> Result<bool, ZplError> {
        let mut at = directory;
        for _ in 0..MAX_DEPTH {
            if at == outer {
                return Ok(true);
            }
            if at == self.root() {
                return Ok(false);
            }
            at = self.node(at)?.state().read().znode().parent;
        }
        let source = FormatError::invalid("znode", "directories inside of each other in a circle");
        Err(ZplError::Corrupt { place: self.place(directory), source })
    }

    /// Refuses what kinds, flags and projects forbid.
    fn check_rename(
        &self,
        locked: &Locked<'_>,
        found: &RenamedFiles,
        from: Named<'_>,
        to: Named<'_>,
        mode: RenameMode,
    ) -> Result<(), ZplError> {
        let (source_dir, target_dir) =
            (self.of(locked, from.directory)?, self.of(locked, to.directory)?);
        let source = self.of(locked, found.source.id())?;
        self.check_removable(source_dir, source)?;
        self.check_accepts_names(target_dir)?;
        let moves = from.directory != to.directory;
        if moves {
            self.check_project(source, target_dir)?;
        }
        let is_directory = source.znode().is_directory();
        let full = target_dir.znode().links >= MAX_LINKS;
        if moves && is_directory && full {
            return Err(ZplError::TooManyLinks { place: target_dir.place() });
        }
        let Some(target) = &found.target else {
            if mode == RenameMode::Exchange {
                return Err(ZplError::NotFound { place: target_dir.place() });
            }
            return Ok(());
        };
        let target = self.of(locked, target.id())?;
        if mode == RenameMode::NoReplace {
            return Err(ZplError::Exists { place: target_dir.place() });
        }
        self.check_removable(target_dir, target)?;
        if mode == RenameMode::Exchange {
            if moves {
                self.check_project(target, source_dir)?;
            }
            return Ok(());
        }
        let place = target.place();
        match (is_directory, target.znode().is_directory()) {
            (true, false) => Err(ZplError::NotDirectory { place }),
            (false, true) => Err(ZplError::IsDirectory { place }),
            _ => self.check_empty(target),
        }
    }

    /// Renames, and returns whether the target has lost its last name.
    fn rename_locked(
        &self,
        locked: &mut Locked<'_>,
        found: &RenamedFiles,
        from: Named<'_>,
        to: Named<'_>,
        mode: RenameMode,
        caller: Caller,
    ) -> Result<bool, ZplError> {
        let source = found.source.id();
        let is_same = found.target.as_ref().is_some_and(|target| target.id() == source);
        if is_same && mode == RenameMode::NoReplace {
            return Err(ZplError::Exists { place: self.place(to.directory) });
        }
        let old_name = self.stored_name(self.of(locked, from.directory)?, from.name)?;
        let same_entry = is_same
            && from.directory == to.directory
            && self.stored_name(self.of(locked, to.directory)?, to.name)? == old_name;
        // Two names of one file are left alone; one name may change case or form.
        if is_same && (!same_entry || old_name == to.name || mode == RenameMode::Exchange) {
            return Ok(false);
        }
        let plan = if same_entry {
            self.check_removable(self.of(locked, from.directory)?, self.of(locked, source)?)?;
            self.plan_respelling(locked, source, to, old_name)?
        } else {
            self.check_rename(locked, found, from, to, mode)?;
            match (mode, &found.target) {
                (RenameMode::Exchange, Some(target)) => {
                    self.plan_exchange(locked, found.source.id(), target.id(), from, to)?
                }
                _ => self.plan_move(locked, found, from, to, mode, caller)?,
            }
        };
        let lost = plan.loses_target;
        self.perform_rename(locked, found, (from, to), plan, (mode, caller))?;
        Ok(lost)
    }

    fn plan_respelling(
        &self,
        locked: &Locked<'_>,
        source: ObjectId,
        to: Named<'_>,
        old_name: Vec<u8>,
    ) -> Result<Plan, ZplError> {
        let entry =
            DirectoryEntry { object: source, kind: Some(self.of(locked, source)?.znode().kind) };
        let steps = vec![
            Step::Remove { directory: to.directory, name: old_name, entry },
            Step::Add { directory: to.directory, name: to.name.to_vec(), entry },
        ];
        let mut names = NameChanges::default();
        names.touch(to.directory);
        let mut changes = self.prepare_names(locked, &names)?;
        changes.push((source, self.prepare_moved(locked, source, to.directory)?));
        Ok(Plan { steps, changes, whiteout: None, loses_target: false })
    }

    fn plan_exchange(
        &self,
        locked: &Locked<'_>,
        source: ObjectId,
        target: ObjectId,
        from: Named<'_>,
        to: Named<'_>,
    ) -> Result<Plan, ZplError> {
        let kind = |id| Ok::<_, ZplError>(self.of(locked, id)?.znode().kind);
        let (source_kind, target_kind) = (kind(source)?, kind(target)?);
        let source_entry = DirectoryEntry { object: source, kind: Some(source_kind) };
        let target_entry = DirectoryEntry { object: target, kind: Some(target_kind) };
        let old_source = self.stored_name(self.of(locked, from.directory)?, from.name)?;
        let old_target = self.stored_name(self.of(locked, to.directory)?, to.name)?;
        let step = |directory, name: &Vec<u8>, out, into| {
            [
                Step::Remove { directory, name: name.clone(), entry: out },
                Step::Add { directory, name: name.clone(), entry: into },
            ]
        };
        let steps = [
            step(to.directory, &old_target, target_entry, source_entry),
            step(from.directory, &old_source, source_entry, target_entry),
        ];
        let mut names = NameChanges::default();
        names.remove(from.directory, source_kind);
        names.add(from.directory, target_kind);
        names.remove(to.directory, target_kind);
        names.add(to.directory, source_kind);
        let mut changes = self.prepare_names(locked, &names)?;
        changes.push((source, self.prepare_moved(locked, source, to.directory)?));
        changes.push((target, self.prepare_moved(locked, target, from.directory)?));
        let steps = steps.into_iter().flatten().collect();
        Ok(Plan { steps, changes, whiteout: None, loses_target: false })
    }

    fn plan_move(
        &self,
        locked: &Locked<'_>,
        found: &RenamedFiles,
        from: Named<'_>,
        to: Named<'_>,
        mode: RenameMode,
        caller: Caller,
    ) -> Result<Plan, ZplError> {
        let source = found.source.id();
        let source_kind = self.of(locked, source)?.znode().kind;
        let entry = DirectoryEntry { object: source, kind: Some(source_kind) };
        let mut names = NameChanges::default();
        let mut steps = Vec::new();
        let mut changes = Vec::new();
        let mut loses_target = false;
        if let Some(target) = &found.target {
            let state = self.of(locked, target.id())?;
            let kind = state.znode().kind;
            let name = self.stored_name(self.of(locked, to.directory)?, to.name)?;
            let entry = DirectoryEntry { object: target.id(), kind: Some(kind) };
            steps.push(Step::Remove { directory: to.directory, name, entry });
            names.remove(to.directory, kind);
            loses_target = links_after(state) == 0;
            changes.push((target.id(), self.prepare_unlinked(state)?));
        }
        steps.push(Step::Add { directory: to.directory, name: to.name.to_vec(), entry });
        names.add(to.directory, source_kind);
        let old_name = self.stored_name(self.of(locked, from.directory)?, from.name)?;
        steps.push(Step::Remove { directory: from.directory, name: old_name, entry });
        names.remove(from.directory, source_kind);
        let mut whiteout = None;
        if mode == RenameMode::Whiteout {
            names.add(from.directory, FileKind::CharDevice);
            whiteout = Some(self.whiteout(self.of(locked, from.directory)?, caller)?);
        }
        changes.extend(self.prepare_names(locked, &names)?);
        changes.push((source, self.prepare_moved(locked, source, to.directory)?));
        Ok(Plan { steps, changes, whiteout, loses_target })
    }

    /// The device that hides a name.
    fn whiteout(&self, directory: &NodeState, caller: Caller) -> Result<Draft, ZplError> {
        let (uid, gid) = (Fuid::posix(caller.uid), Fuid::posix(caller.gid));
        self.check_objects(&Charged { uid, gid, project: 0 })?;
        let seed = NodeSeed {
            kind: FileKind::CharDevice,
            permissions: 0,
            uid,
            gid,
            parent: directory.object().id(),
            project: None,
            flags: FileFlags::default(),
            device: Some(DeviceNumber::default()),
            target: None,
            links: 1,
            now: self.options().clock.now(),
            logged: self.source.replay.take_whiteout(),
        };
        self.draft(&seed, |_, _| {})
    }

    /// The new attributes of a file moved into a directory.
    fn prepare_moved(
        &self,
        locked: &Locked<'_>,
        object: ObjectId,
        into: ObjectId,
    ) -> Result<Prepared, ZplError> {
        let inherits = self.of(locked, into)?.znode().flags.contains(FileFlags::PROJINHERIT);
        let state = self.of(locked, object)?;
        let kind = state.znode().kind;
        let inherits = inherits && matches!(kind, FileKind::Regular | FileKind::Directory);
        self.prepare(state, |values, schema| {
            values.set_u64(schema, Attribute::Parent, into.0);
            self.touch(values, schema, Touch::Attributes);
            values.change_flags(schema, |flags| {
                let flags = flags.with(FileFlags::AV_MODIFIED);
                if inherits { flags.with(FileFlags::PROJINHERIT) } else { flags }
            });
        })
    }

    fn perform_rename(
        &self,
        locked: &mut Locked<'_>,
        found: &RenamedFiles,
        (from, to): (Named<'_>, Named<'_>),
        plan: Plan,
        (mode, caller): (RenameMode, Caller),
    ) -> Result<(), ZplError> {
        let Plan { mut steps, changes, whiteout, loses_target } = plan;
        let adding = self.naming_bytes(self.of(locked, to.directory)?, Naming::Name(to.name))?;
        let demand = (changes.len() as u64 + 2) * DNODE_BYTES + 2 * adding;
        let objects: Vec<_> = locked.states().map(|state| state.object().clone()).collect();
        let unlinked = self.unlinked.lock().object().clone();
        let mut objects: Vec<_> = objects.iter().collect();
        if loses_target {
            objects.push(&unlinked);
        }
        let tx = self.begin(&objects, SpaceDemand::Takes(demand))?;
        let mut made = None;
        if let Some(mut draft) = whiteout {
            let object = draft.allocate(self, &tx)?;
            draft.make(self, &tx, object.clone())?;
            let entry = DirectoryEntry { object: object.id(), kind: Some(FileKind::CharDevice) };
            let name = from.name.to_vec();
            steps.push(Step::Add { directory: from.directory, name, entry });
            made = Some(object);
        }
        let lost = found.target.as_ref().filter(|_| loses_target).map(|target| target.id());
        if let Err(error) = self.replace_entries(&tx, locked, &steps, lost) {
            if let Some(object) = made {
                object.destroy(&tx)?;
            }
            return Err(error);
        }
        for (id, change) in changes {
            let place = self.place(id);
            change.apply(&tx, locked.get_mut(id).ok_or(ZplError::NotFound { place })?)?;
        }
        self.promote_records(found.source.id());
        if let Some(target) = &found.target {
            if loses_target {
                self.forget_records(target.id());
            } else {
                self.promote_records(target.id());
            }
        }
        let made = made.as_ref().map(|object| (object, caller));
        self.log_rename(&tx, (from, to), mode, made)
    }

    /// Changes entries, by which the file `lost` loses its last name: it is then added to the
    /// unlinked set. If one step fails, all are reverted.
    fn replace_entries(
        &self,
        tx: &dyn Transaction,
        locked: &mut Locked<'_>,
        steps: &[Step],
        lost: Option<ObjectId>,
    ) -> Result<(), ZplError> {
        if let Some(lost) = lost {
            self.queue(tx, lost)?;
        }
        let changed = self.change_entries(tx, locked, steps);
        if let (Some(lost), Err(_)) = (lost, &changed) {
            self.unqueue(tx, lost)?;
        }
        changed
    }
}
