//! Removing names (spec 05, sections 3.4 and 3.6).

use super::admission::{DNODE_BYTES, claimed_dnodes};
use super::change::{Prepared, Touch};
use super::file_system::LiveFileSystem;
use super::node::{LiveNode, Locked, NodeState, lock_in_order};
use crate::directory::dangling_at;
use crate::entry::CONTROL_NAME;
use crate::error::{Place, ZplError};
use crate::sync::Arc;
use rzfs_dmu::live::Transaction;
use rzfs_dsl::live::SpaceDemand;
use rzfs_format::ObjectId;
use rzfs_format::dirent::FileKind;
use rzfs_format::sa::Attribute;
use rzfs_format::znode::FileFlags;

/// Which kind of file is removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Removal {
    /// Anything but a directory.
    File,
    /// A directory.
    Directory,
}

impl LiveFileSystem {
    /// Removes the entry that a name matches from a directory.
    pub(super) fn remove_name(
        &self,
        tx: &dyn Transaction,
        directory: &mut NodeState,
        name: &[u8],
    ) -> Result<(), ZplError> {
        let object = directory.object().clone();
        let place = directory.place();
        let removed = directory.change_names(|zap| {
            let matching = self.name_rules.matching_in(zap);
            let removed = zap.writer(object.zap_blocks(tx)).remove_matching(name, matching);
            removed.map_err(|source| place.zap_failure(source))
        })?;
        if removed { Ok(()) } else { Err(ZplError::NotFound { place }) }
    }

    /// The file under a name, to change both: neither is locked any more.
    pub(super) fn named(
        &self,
        directory: &LiveNode,
        name: &[u8],
    ) -> Result<Arc<LiveNode>, ZplError> {
        let state = directory.state().read();
        let place = state.place();
        self.named_if_any(&state, name)?.ok_or(ZplError::NotFound { place })
    }

    /// The file under a name, if there is one. The directory stays locked until the file is found:
    /// a file that loses its name in between is gone, which would look like damage.
    pub(super) fn named_if_any(
        &self,
        directory: &NodeState,
        name: &[u8],
    ) -> Result<Option<Arc<LiveNode>>, ZplError> {
        directory.require_directory()?;
        let Some(entry) = self.entry(directory, name)? else { return Ok(None) };
        let file = self.node(entry.object);
        let place = directory.place();
        file.map(Some).map_err(|source| dangling_at(place, entry.object, source))
    }

    /// Whether a name still refers to a file, now that both are locked.
    pub(super) fn still_named(
        &self,
        directory: &NodeState,
        name: &[u8],
        object: ObjectId,
    ) -> Result<bool, ZplError> {
        Ok(self.entry(directory, name)?.is_some_and(|entry| entry.object == object))
    }

    /// Refuses a removal that the flags of the file or the directory forbid.
    pub(super) fn check_removable(
        &self,
        directory: &NodeState,
        state: &NodeState,
    ) -> Result<(), ZplError> {
        let fixed = [FileFlags::IMMUTABLE, FileFlags::APPENDONLY];
        let stays = [FileFlags::IMMUTABLE, FileFlags::APPENDONLY, FileFlags::NOUNLINK];
        self.check_flags(directory, &fixed)?;
        self.check_flags(state, &stays)
    }

    /// The new attributes of a file that loses a name; a directory loses all.
    pub(super) fn prepare_unlinked(&self, state: &NodeState) -> Result<Prepared, ZplError> {
        let links = links_after(state);
        self.prepare(state, |values, schema| {
            values.set_u64(schema, Attribute::Links, links);
            self.touch(values, schema, Touch::Attributes);
        })
    }

    /// Refuses to remove a directory that is not empty.
    pub(super) fn check_empty(&self, state: &NodeState) -> Result<(), ZplError> {
        if state.znode().is_directory() && state.names()?.entry_count() > 0 {
            return Err(ZplError::NotEmpty { place: state.place() });
        }
        Ok(())
    }

    /// Removes a name of a file that is not a directory.
    ///
    /// # Errors
    /// There is no such name, it is a directory's, or a flag of the file or the directory forbids
    /// it.
    pub fn unlink(&self, directory: ObjectId, name: &[u8]) -> Result<(), ZplError> {
        self.remove(directory, name, Removal::File)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// There is no such name, it is not a directory's, the directory is not empty, or a flag
    /// forbids it.
    pub fn rmdir(&self, directory: ObjectId, name: &[u8]) -> Result<(), ZplError> {
        self.remove(directory, name, Removal::Directory)
    }

    fn remove(&self, directory: ObjectId, name: &[u8], removal: Removal) -> Result<(), ZplError> {
        self.check_old_name(self.place(directory), name)?;
        let parent = self.node(directory)?;
        loop {
            let file = self.named(&parent, name)?;
            if file.id() == directory {
                return Err(ZplError::NotPermitted { place: self.place(directory) });
            }
            let mut locked = lock_in_order(&[&parent, &file]);
            if !self.is_still_named(&locked, directory, name, file.id())? {
                continue;
            }
            let is_last = self.remove_locked(&mut locked, directory, name, file.id(), removal)?;
            drop(locked);
            let committed = self.commit_always(directory);
            if is_last {
                self.reclaim_unused(&file);
            }
            return committed;
        }
    }

    fn is_still_named(
        &self,
        locked: &Locked<'_>,
        directory: ObjectId,
        name: &[u8],
        object: ObjectId,
    ) -> Result<bool, ZplError> {
        let place = self.place(directory);
        let state = locked.get(directory).ok_or(ZplError::NotFound { place })?;
        self.still_named(state, name, object)
    }

    /// Refuses to remove or move `.` and `..`.
    pub(super) fn check_old_name(&self, directory: Place, name: &[u8]) -> Result<(), ZplError> {
        let is_control = name == CONTROL_NAME && self.has_control_in(directory.object);
        match name {
            b"." | b"" => {
                Err(ZplError::Invalid { place: directory, problem: "the name of itself" })
            }
            b".." => Err(ZplError::NotEmpty { place: directory }),
            _ if is_control => Err(ZplError::NotPermitted { place: directory }),
            _ => self.check_known_name(directory, name),
        }
    }

    /// Removes a name; returns whether it was the last one.
    fn remove_locked(
        &self,
        locked: &mut Locked<'_>,
        directory: ObjectId,
        name: &[u8],
        object: ObjectId,
        removal: Removal,
    ) -> Result<bool, ZplError> {
        let place = self.place(object);
        let gone = || ZplError::NotFound { place };
        let (parent, state) =
            (locked.get(directory).ok_or_else(gone)?, locked.get(object).ok_or_else(gone)?);
        match (removal, state.znode().is_directory()) {
            (Removal::File, true) => return Err(ZplError::IsDirectory { place }),
            (Removal::Directory, false) => return Err(ZplError::NotDirectory { place }),
            _ => {}
        }
        self.check_removable(parent, state)?;
        self.check_empty(state)?;
        // A file that cannot be freed keeps its name, except in replay.
        if links_after(state) == 0 && !self.source.replay.is_on() {
            state.object().check_tree()?;
        }
        let kind = state.znode().kind;
        let is_last = links_after(state) == 0;
        let file = self.prepare_unlinked(state)?;
        let names = self.prepare(parent, |values, schema| {
            self.change_names(parent, values, schema, -1, kind);
        })?;
        let unlinked = self.unlinked.lock().object().clone();
        let mut objects = vec![parent.object(), state.object()];
        if is_last {
            objects.push(&unlinked);
        }
        // A block of the directory takes no more space than a dnode.
        let demand = SpaceDemand::Frees(4 * DNODE_BYTES);
        let claimed = |txg| claimed_dnodes(&objects, txg);
        let tx = self.begin_unless_claimed(&objects, demand, claimed)?;
        if is_last {
            self.queue(&tx, object)?;
        }
        let parent = locked.get_mut(directory).ok_or_else(gone)?;
        if let Err(error) = self.remove_name(&tx, parent, name) {
            if is_last {
                self.unqueue(&tx, object)?;
            }
            return Err(error);
        }
        names.apply(&tx, parent)?;
        file.apply(&tx, locked.get_mut(object).ok_or_else(gone)?)?;
        if is_last {
            self.forget_records(object);
        }
        self.log_removal(&tx, directory, name, kind);
        Ok(is_last)
    }
}

/// Links of a file after it lost a name: none for a directory.
pub(super) fn links_after(state: &NodeState) -> u64 {
    match state.znode().kind {
        FileKind::Directory => 0,
        _ => state.znode().links.saturating_sub(1),
    }
}
