//! Files without names: those that are open live on, the others are reclaimed (spec 05, sections
//! 3.6 and 3.7).

use super::change::{DNODE_BYTES, Freeing};
use super::file_system::LiveFileSystem;
use super::node::{LiveNode, NodeState};
use super::options::SpaceDemand;
use super::reclaiming::{Progress, Rest};
use super::tables::Table;
use crate::error::ZplError;
use crate::node::decode_znode;
use crate::object::{FileObject, ObjectSource};
use crate::sync::Arc;
use rzfs_dmu::DmuError;
use rzfs_dmu::live::{LiveObject, LiveObjset, Transaction};
use rzfs_format::object_type::ObjectType;
use rzfs_format::znode::FileFlags;
use rzfs_format::{FormatError, ObjectId};
use rzfs_zap::ZapEntry;

/// Keeps a file while it is open, or known to the kernel. Dropping the last one of a file without
/// names reclaims it.
#[derive(Debug)]
pub struct Hold {
    file_system: Arc<LiveFileSystem>,
    node: Arc<LiveNode>,
}

impl Hold {
    /// The file.
    #[must_use]
    pub fn object(&self) -> ObjectId {
        self.node.id()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // The time of access is all that is lost if it cannot be written.
        let _ = self.file_system.flush_access_time(&self.node);
        if self.node.release() {
            self.file_system.reclaim_or_leave(self.node.id());
        }
    }
}

fn key(object: ObjectId) -> String {
    format!("{:x}", object.0)
}

/// The set of the files without names. One that is damaged keeps nobody from the other files.
#[derive(Debug)]
pub(super) struct UnlinkedSet {
    objset: LiveObjset,
    object: LiveObject,
    /// `None` if it could not be opened because of damage.
    table: Option<Table>,
}

impl UnlinkedSet {
    pub(super) fn open(objset: &LiveObjset, id: ObjectId) -> Result<Self, ZplError> {
        let object = objset.typed_object(id, ObjectType::UNLINKED_SET)?;
        let table = match Table::open(objset, id, ObjectType::UNLINKED_SET) {
            Err(ZplError::Dmu(error)) if error.is_damage() => {
                tracing::warn!(%error, "files without names keep their space");
                None
            }
            table => Some(table?),
        };
        Ok(Self { objset: objset.clone(), object, table })
    }

    pub(super) const fn object(&self) -> &LiveObject {
        &self.object
    }

    fn table(&mut self) -> Result<&mut Table, ZplError> {
        let table = match self.table.take() {
            Some(table) => table,
            None => Table::open(&self.objset, self.object.id(), ObjectType::UNLINKED_SET)?,
        };
        Ok(self.table.insert(table))
    }
}

impl LiveFileSystem {
    /// Keeps a file.
    ///
    /// # Errors
    /// No file has this number, or it is being reclaimed.
    pub fn hold(self: &Arc<Self>, object: ObjectId) -> Result<Hold, ZplError> {
        Ok(Hold { file_system: Arc::clone(self), node: self.hold_node(object)? })
    }

    /// Keeps a file until [`LiveNode::release`].
    pub(super) fn hold_node(&self, object: ObjectId) -> Result<Arc<LiveNode>, ZplError> {
        let node = self.node(object)?;
        if node.hold() { Ok(node) } else { Err(ZplError::NotFound { place: self.place(object) }) }
    }

    /// Puts a file into the unlinked set.
    pub(super) fn queue(&self, tx: &dyn Transaction, object: ObjectId) -> Result<(), ZplError> {
        self.unlinked.lock().table()?.set(tx, &key(object), object.0)
    }

    /// Takes a file out of the unlinked set.
    pub(super) fn unqueue(&self, tx: &dyn Transaction, object: ObjectId) -> Result<(), ZplError> {
        self.unlinked.lock().table()?.remove(tx, &key(object)).map(|_| ())
    }

    /// Frees a file that has lost its last name, unless somebody holds it.
    pub(super) fn reclaim_unused(&self, node: &LiveNode) {
        if node.unlinked() {
            self.reclaim_or_leave(node.id());
        }
    }

    /// Frees a file without names, a long one little by little. One that is damaged stays in the
    /// unlinked set until the next mount.
    pub(super) fn reclaim_or_leave(&self, object: ObjectId) {
        loop {
            let rest = self.reclaim_or_leave_rest(object);
            if !self.replay.is_on() {
                return self.reclaim_later(object, rest);
            }
            // What the log says next may be about another file of this number.
            match rest {
                Rest::After(until) if self.wait_synced(until).is_ok() => {}
                _ => return,
            }
        }
    }

    /// Frees a file without names as far as the open group can; says what is left.
    pub(super) fn reclaim_or_leave_rest(&self, object: ObjectId) -> Rest {
        match self.reclaim(object) {
            Ok(Progress::Paused { until, rest: () }) => Rest::After(until),
            Ok(Progress::Done(())) => Rest::Nothing,
            // Nothing is on disk before the pool goes on.
            Err(ZplError::Suspended) => Rest::After(self.engine.open_txg()),
            Err(error) => {
                tracing::warn!(%error, %object, "a removed file keeps its space");
                if may_pass(&error) { Rest::Failed } else { Rest::Nothing }
            }
        }
    }

    /// Frees a file without names that nobody holds, with its extended attributes, as far as the
    /// open group can.
    fn reclaim(&self, object: ObjectId) -> Result<Progress<()>, ZplError> {
        // It may have taken many groups: by now the number may be another file's.
        if self.unlinked.lock().table()?.number(&key(object))?.is_none() {
            return Ok(Progress::Done(()));
        }
        let live = match self.objset.object(object) {
            Ok(live) => live,
            Err(DmuError::NotAllocated { .. }) => {
                return self.forget_missing(object).map(Progress::Done);
            }
            Err(error) => return Err(error.into()),
        };
        let Doomed { objects: goes, divisible } = self.doomed_with(live)?;
        let blocks = goes.iter().map(LiveObject::blocks_on_disk).fold(0, u64::saturating_add);
        let (open, room) = self.engine.room_for_frees();
        if blocks > room {
            if room == 0 || blocks <= self.engine.max_frees() {
                return Ok(Progress::Paused { until: open, rest: () });
            }
            let divisible = goes.get(..divisible).unwrap_or_default();
            match self.shorten(divisible, room) {
                Ok(Some(until)) => return Ok(Progress::Paused { until, rest: () }),
                Ok(None) => {}
                // As a whole it goes as far as it can be found.
                Err(ZplError::Dmu(error)) if error.is_damage() => {}
                Err(error) => return Err(error),
            }
        }
        let unlinked = self.unlinked.lock().object().clone();
        let mut objects: Vec<&LiveObject> = goes.iter().collect();
        objects.push(&unlinked);
        match self.begin_freeing(&objects, DNODE_BYTES, blocks)? {
            Freeing::Begun(tx) => self.destroy_unlinked(&tx, object, &goes).map(Progress::Done),
            Freeing::After(until) => Ok(Progress::Paused { until, rest: () }),
        }
    }

    /// A file without names and what goes with it.
    fn doomed_with(&self, file: LiveObject) -> Result<Doomed, ZplError> {
        let znode = decode_znode(&file, &self.schema.read())?;
        let state = NodeState::new(file.clone(), znode);
        let mut objects = Vec::new();
        if let Some(directory) = self.xattr_directory_of(&state)? {
            objects.push(file);
            objects.extend(self.entries_of(&directory)?);
            let divisible = objects.len();
            objects.push(directory.object().clone());
            return Ok(Doomed { objects, divisible });
        }
        if state.znode().is_directory() {
            objects.extend(self.leftovers(&state)?);
        }
        let is_needed = state.znode().flags.contains(FileFlags::XATTR);
        let divisible = objects.len() + usize::from(!is_needed);
        objects.push(file);
        Ok(Doomed { objects, divisible })
    }

    /// Destroys the objects of a file without names.
    fn destroy_unlinked(
        &self,
        tx: &dyn Transaction,
        file: ObjectId,
        goes: &[LiveObject],
    ) -> Result<(), ZplError> {
        self.unqueue(tx, file)?;
        for object in goes {
            object.destroy(tx)?;
            self.streams.forget(object.id());
            self.nodes.remove(object.id());
        }
        Ok(())
    }

    /// The files of a directory of extended attributes that somebody put into the unlinked set;
    /// of no other directory, as those are empty.
    fn leftovers(&self, directory: &NodeState) -> Result<Vec<LiveObject>, ZplError> {
        let is_hidden = directory.znode().flags.contains(FileFlags::XATTR);
        if is_hidden { self.entries_of(directory) } else { Ok(Vec::new()) }
    }

    /// The objects that the entries of a directory of extended attributes lead to. What is no
    /// such file is left alone.
    pub(super) fn entries_of(&self, directory: &NodeState) -> Result<Vec<LiveObject>, ZplError> {
        let mut found = Vec::new();
        let schema = self.schema.read();
        for entry in directory.names()?.entries() {
            let entry = entry.map_err(|source| directory.object().zap_failure(source))?;
            let value = crate::directory::entry_value(directory.node.place(), &entry)?;
            let Ok(object) = self.objset.object(value.object) else { continue };
            let flags = decode_znode(&object, &schema).map(|znode| (znode.flags, znode.parent));
            let is_part = flags.is_ok_and(|(flags, parent)| {
                flags.contains(FileFlags::XATTR) && parent == directory.object().id()
            });
            if is_part && !found.iter().any(|known: &LiveObject| known.id() == object.id()) {
                found.push(object);
            }
            if found.len() > MAX_XATTRS {
                let problem = FormatError::invalid("xattr directory", "too many entries");
                return Err(directory.node.corrupt(problem));
            }
        }
        Ok(found)
    }

    fn forget_missing(&self, object: ObjectId) -> Result<(), ZplError> {
        let unlinked = self.unlinked.lock().object().clone();
        let tx = self.begin(&[&unlinked], SpaceDemand::Frees(DNODE_BYTES))?;
        self.unqueue(&tx, object)
    }

    /// Reads the unlinked set, as far as it can be read.
    fn read_unlinked(&self, into: &mut Vec<ZapEntry>) -> Result<(), ZplError> {
        let mut unlinked = self.unlinked.lock();
        let place = self.place(unlinked.object().id());
        for entry in unlinked.table()?.zap().entries() {
            into.push(entry.map_err(|source| place.zap_failure(source))?);
        }
        Ok(())
    }

    /// Reclaims the files that had lost their last names, but not their space, when the file
    /// system was closed, or begins to where it takes many groups; says how many there were. To be
    /// called once it is open, before anyone else uses it. One that is read-only keeps them.
    ///
    /// # Errors
    /// The unlinked set cannot be read.
    pub fn drain_unlinked(&self) -> Result<usize, ZplError> {
        if self.is_read_only() {
            return Ok(0);
        }
        let mut entries = Vec::new();
        match self.read_unlinked(&mut entries) {
            // What cannot be read of the set is leaked; the other files are there.
            Err(ZplError::Dmu(error)) if error.is_damage() => {
                tracing::warn!(%error, "files without names keep their space");
            }
            read => read?,
        }
        let mut found = 0;
        for entry in entries {
            let object = entry.value.first_u64().map(ObjectId);
            let is_sound = |id: &ObjectId| key(*id).as_bytes() == entry.name();
            let Some(object) = object.filter(is_sound) else { continue };
            if object == self.root() || object.0 < FIRST_FILE {
                continue;
            }
            let rest = self.reclaim_or_leave_rest(object);
            self.reclaim_later(object, rest);
            found += 1;
        }
        Ok(found)
    }
}

/// Whether what has failed may succeed later: devices come back, and space is found.
fn may_pass(error: &ZplError) -> bool {
    match error {
        ZplError::Stopped(_) | ZplError::NoSpace { .. } => true,
        ZplError::Dmu(error) => !error.is_damage(),
        _ => false,
    }
}

/// The objects that are destroyed with a file.
struct Doomed {
    objects: Vec<LiveObject>,
    /// So many of them, from the first on, may lose their blocks before: not a directory of
    /// attributes, which is needed to find these.
    divisible: usize,
}

/// Numbers below are no files: the meta-dnode and the master node.
const FIRST_FILE: u64 = 2;
/// Most files that a directory of extended attributes has.
const MAX_XATTRS: usize = 64 << 10;
