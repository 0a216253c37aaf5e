//! Freeing large amounts over many transaction groups (spec 05, section 3.6).
//!
//! A group keeps every block that dies in it in memory until it is on disk, so all files of a pool
//! together free a bounded number of blocks in each
//! ([`TxgOptions::max_frees`](rzfs_dmu::txg::TxgOptions)). Anything more is freed piece by piece,
//! from the end on:
//!
//! ```text
//! removal     a piece of the file, which is in the unlinked set ──> ... ──> its number
//! truncation  to a length in between ──> ... ──> to the one that is wanted
//! hole        the end of it ──> ... ──> its beginning
//! ```
//! Callers that truncate a file or punch a hole wait; every intermediate state is one that a
//! shorter change would leave, so a crash needs no special handling. Removed files are left to the
//! thread of the [`Reclaimer`](super::reclaimer::Reclaimer), or to the next mount if it comes
//! first.

use super::admission::{DNODE_BYTES, Freeing, Progress};
use super::file_system::LiveFileSystem;
use super::node::{LiveNode, NodeState};
use super::reclaimer::Rest;
use super::unlinked_set::key;
use crate::error::ZplError;
use crate::node::decode_znode;
use crate::object::FileObject;
use rzfs_dmu::DmuError;
use rzfs_dmu::live::{Extent, LiveObject, Transaction};
use rzfs_dsl::live::SpaceDemand;
use rzfs_format::znode::FileFlags;
use rzfs_format::{BlockId, FormatError, ObjectId, Txg};

impl LiveFileSystem {
    /// Continues to free a removed file in the background.
    pub(super) fn reclaim_later(&self, object: ObjectId, rest: Rest) {
        self.reclaimer.add(object, rest, &self.engine);
    }

    /// Leaves files not reclaimed yet in the unlinked set: the file system is being closed. After
    /// this returns, it is not used for that until it [resumes](Self::resume_reclaiming).
    pub fn pause_reclaiming(&self) {
        self.reclaimer.pause();
    }

    /// Resumes reclaiming: the file system is not being closed after all.
    pub fn resume_reclaiming(&self) {
        self.reclaimer.resume(&self.engine);
    }

    /// Frees the ends of removed files, `most` blocks together; returns the group, or `None` if
    /// they have no blocks on disk.
    pub(super) fn shorten(&self, files: &[LiveObject], most: u64) -> Result<Option<Txg>, ZplError> {
        let mut left = most;
        let (mut shortened, mut ends, mut edges) = (Vec::new(), Vec::new(), 0_u64);
        for file in files.iter().filter(|file| file.blocks_on_disk() > 0) {
            if left == 0 {
                break;
            }
            let piece = file.last_piece(BlockId(0)..BlockId(u64::MAX), left)?;
            let checked = file.check_blocks(piece.first..BlockId(u64::MAX))?;
            left = left.saturating_sub(piece.blocks);
            edges = edges.saturating_add(self.edge_bytes(file)?);
            shortened.push(file);
            ends.push((piece.first, checked));
        }
        if shortened.is_empty() {
            return Ok(None);
        }
        let tx = match self.begin_freeing(&shortened, edges, most - left)? {
            Freeing::Begun(tx) => tx,
            Freeing::After(txg) => return Ok(Some(txg)),
        };
        for (file, (first, checked)) in shortened.into_iter().zip(ends) {
            let block_size = u64::from(file.data_block_size()?);
            let offset = first.0.saturating_mul(block_size);
            file.free_checked(&tx, offset, Extent::ToEnd, &checked)?;
        }
        Ok(Some(tx.txg()))
    }

    /// Frees an unlinked file, unless it is held.
    pub(super) fn reclaim_unused(&self, node: &LiveNode) {
        if node.unlinked() {
            self.reclaim_or_leave(node.id());
        }
    }

    /// Frees an unlinked file, a long one piece by piece. A damaged one stays in the unlinked set
    /// until the next mount.
    pub(super) fn reclaim_or_leave(&self, object: ObjectId) {
        loop {
            let rest = self.reclaim_or_leave_rest(object);
            if !self.source.replay.is_on() {
                return self.reclaim_later(object, rest);
            }
            // Later log records may concern another file of this number.
            match rest {
                Rest::After(until) if self.wait_synced(until).is_ok() => {}
                _ => return,
            }
        }
    }

    /// Frees an unlinked file as far as the open group allows; returns the remaining work.
    pub(super) fn reclaim_or_leave_rest(&self, object: ObjectId) -> Rest {
        match self.reclaim(object) {
            Ok(Progress::Paused { until, rest: () }) => Rest::After(until),
            Ok(Progress::Done(())) => Rest::Nothing,
            // Nothing reaches the disk before the pool resumes.
            Err(ZplError::Suspended) => Rest::After(self.engine.open_txg()),
            Err(error) => {
                tracing::warn!(%error, %object, "a removed file keeps its space");
                if may_pass(&error) { Rest::Failed } else { Rest::Nothing }
            }
        }
    }

    /// Frees an unlinked file that is not held, with its extended attributes, as far as the open
    /// group allows.
    fn reclaim(&self, object: ObjectId) -> Result<Progress<()>, ZplError> {
        // It may have spanned many groups: by now the number may be another file's.
        if self.unlinked.lock().table()?.number(&key(object))?.is_none() {
            return Ok(Progress::Done(()));
        }
        let live = match self.objset().object(object) {
            Ok(live) => live,
            Err(DmuError::NotAllocated { .. }) => {
                return self.forget_missing(object).map(Progress::Done);
            }
            Err(error) => return Err(error.into()),
        };
        let ObjectsToDestroy { objects: goes, divisible } = self.objects_to_destroy(live)?;
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
                // As a whole, it is freed as far as it can be found.
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

    /// An unlinked file and the objects destroyed with it.
    fn objects_to_destroy(&self, file: LiveObject) -> Result<ObjectsToDestroy, ZplError> {
        let znode = decode_znode(&file, &self.source.schema.read())?;
        let state = NodeState::new(file.clone(), znode, &self.source.open_names);
        let mut objects = Vec::new();
        if let Some(directory) = self.xattr_directory(&state)? {
            objects.push(file);
            objects.extend(self.entries_of(&directory)?);
            let divisible = objects.len();
            objects.push(directory.object().clone());
            return Ok(ObjectsToDestroy { objects, divisible });
        }
        if state.znode().is_directory() {
            objects.extend(self.leftovers(&state)?);
        }
        let is_needed = state.znode().flags.contains(FileFlags::XATTR);
        let divisible = objects.len() + usize::from(!is_needed);
        objects.push(file);
        Ok(ObjectsToDestroy { objects, divisible })
    }

    /// Destroys the objects of an unlinked file.
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
            self.source.nodes.remove(object.id());
        }
        self.counters.count_freed();
        Ok(())
    }

    /// The files of an extended attribute directory in the unlinked set; none for other
    /// directories, which are empty.
    fn leftovers(&self, directory: &NodeState) -> Result<Vec<LiveObject>, ZplError> {
        let is_hidden = directory.znode().flags.contains(FileFlags::XATTR);
        if is_hidden { self.entries_of(directory) } else { Ok(Vec::new()) }
    }

    /// The objects in an extended attribute directory. Objects of other kinds are left alone.
    pub(super) fn entries_of(&self, directory: &NodeState) -> Result<Vec<LiveObject>, ZplError> {
        let mut found = Vec::new();
        let schema = self.source.schema.read();
        for entry in directory.names()?.entries() {
            let entry = entry.map_err(|source| directory.object().zap_failure(source))?;
            let value = crate::directory::entry_value(directory.place(), &entry)?;
            let Ok(object) = self.objset().object(value.object) else { continue };
            let flags = decode_znode(&object, &schema).map(|znode| (znode.flags, znode.parent));
            let is_part = flags.is_ok_and(|(flags, parent)| {
                flags.contains(FileFlags::XATTR) && parent == directory.object().id()
            });
            if is_part && !found.iter().any(|known: &LiveObject| known.id() == object.id()) {
                found.push(object);
            }
            if found.len() > MAX_XATTRS {
                let problem = FormatError::invalid("xattr directory", "too many entries");
                return Err(directory.corrupt(problem));
            }
        }
        Ok(found)
    }

    fn forget_missing(&self, object: ObjectId) -> Result<(), ZplError> {
        let unlinked = self.unlinked.lock().object().clone();
        let tx = self.begin(&[&unlinked], SpaceDemand::Frees(DNODE_BYTES))?;
        self.unqueue(&tx, object)
    }
}

/// Whether a failed operation may succeed later: devices come back, and space is freed.
fn may_pass(error: &ZplError) -> bool {
    match error {
        ZplError::Stopped(_) | ZplError::NoSpace { .. } => true,
        ZplError::Dmu(error) => !error.is_damage(),
        _ => false,
    }
}

/// The objects destroyed with a file.
struct ObjectsToDestroy {
    objects: Vec<LiveObject>,
    /// This many of them, from the first on, may be freed piece by piece: not a directory of
    /// attributes, which is needed to find these.
    divisible: usize,
}

/// Maximum number of files in an extended attribute directory.
const MAX_XATTRS: usize = 64 << 10;
