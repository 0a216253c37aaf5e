//! Syncing a live object set in one pass of a txg.

use super::buffer::DirtyBuffer;
use super::objset::{DirtyObjects, LiveObjset};
use super::state::ObjectCore;
use super::transaction::{SyncTx, Transaction};
use super::version::{Existence, SpillChange};
use crate::sync::{
    BlockAccounting, DirtyTree, LeafBlock, SyncContext, SyncError, empty_dnode, kill_object,
    sync_trees,
};
use crate::write::{Change, ObjsetPolicy, Part, Sealing, WriteContext, WriteRequest, is_zeros};
use crate::{DmuError, Objset};
use bytes::Bytes;
use rzfs_format::dnode::{self, Dnode, DnodeFlags, SLOT_SIZE, SLOTS_PER_BLOCK};
use rzfs_format::object_type::ObjectType;
use rzfs_format::objset::ObjsetBlock;
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockId, BlockPointer, ByteOrder, FormatError, Level, ObjectId};
use rzfs_zap::ZapError;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Levels of a new meta-dnode's tree in sets other than the MOS: enough for 2^48 objects.
const META_LEVELS: u8 = 6;
/// log2 of the size of a meta-dnode's indirect blocks.
const META_INDIRECT_SHIFT: u8 = 17;
/// Size of an objset block with project accounting, in bytes.
const OBJSET_BLOCK_SIZE: usize = 4096;

/// The owner of an object set: a dataset, or the pool.
pub trait SpaceOwner: BlockAccounting {
    /// Flags set on dnodes: which accounting counts them.
    fn dnode_flags(&self) -> DnodeFlags;

    /// Reports a change of an object from `old` to `new`.
    fn dnode_changed(&mut self, object: ObjectId, old: Option<&Dnode>, new: Option<&Dnode>);

    /// Writes the sums of [`SpaceOwner::dnode_changed`] to the set's accounting objects.
    ///
    /// # Errors
    /// They cannot be read.
    fn write_accounting(&mut self, objset: &LiveObjset, tx: &SyncTx<'_>) -> Result<(), DmuError>;
}

/// The result of syncing an object set.
#[derive(Clone, Copy, Debug)]
pub struct SyncedObjset {
    /// The pointer to its new root block.
    pub root: BlockPointer,
}

/// How a set is synced.
#[derive(Clone, Copy)]
struct SyncParts<'a> {
    tx: &'a SyncTx<'a>,
    policy: ObjsetPolicy,
    /// The set on disk.
    synced: &'a Objset,
    sealing: Sealing<'a>,
}

impl<'a> SyncParts<'a> {
    const fn write_context(self) -> WriteContext<'a> {
        self.tx.write_context(self.sealing)
    }

    const fn context<'b>(self, accounting: &'b mut dyn SpaceOwner) -> SyncContext<'b>
    where
        'a: 'b,
    {
        let (writer, write) = (self.tx.writer(), self.write_context());
        SyncContext { writer, write, policy: self.policy, accounting }
    }
}

fn sealing_of(set: &Objset) -> Sealing<'_> {
    match set.key() {
        Some(key) => Sealing::Key(key),
        None if set.is_locked() => Sealing::Locked,
        None => Sealing::Plain,
    }
}

/// An object and its parts to be synced.
struct Work {
    core: Arc<ObjectCore>,
    old: Option<Arc<Dnode>>,
    /// `None`: it is freed.
    tree: Option<DirtyTree>,
    spill: SpillWork,
    slots: u8,
    dirtied: u64,
    /// Placed blocks that are not needed.
    unused: Vec<BlockPointer>,
}

enum SpillWork {
    Kept,
    Written(Bytes),
    Removed,
}

impl LiveObjset {
    /// Writes all dirty data of the transaction's txg; `None` if there is none.
    ///
    /// # Errors
    /// [`SyncError`]: the txg cannot be completed; nothing of it counts.
    pub fn sync(
        &self,
        tx: &SyncTx<'_>,
        policy: ObjsetPolicy,
        owner: &mut dyn SpaceOwner,
    ) -> Result<Option<SyncedObjset>, SyncError> {
        let dirty = std::mem::take(&mut *self.dirty(tx.txg()).lock());
        let header = self.inner.headers.of(tx.txg());
        if dirty.is_empty() && header.is_none() {
            return Ok(None);
        }
        let synced = self.synced();
        let sealing = sealing_of(&synced);
        let is_encrypted = !matches!(sealing, Sealing::Plain);
        let how = SyncParts {
            tx,
            policy: ObjsetPolicy { is_encrypted, ..policy },
            synced: &synced,
            sealing,
        };
        let mut works = self.write_objects(how, owner, dirty)?;
        match owner.write_accounting(self, tx) {
            // Accounting is less important than the data.
            Err(error) if is_of_accounts(&error) => {
                tracing::warn!(%error, objset = %self.id(), "space is not accounted for");
            }
            result => result?,
        }
        let special = std::mem::take(&mut *self.dirty(tx.txg()).lock());
        works.extend(self.write_objects(how, owner, special)?);

        let mut block = synced.block().clone();
        block.order = ByteOrder::NATIVE;
        block.zil_header = match &header {
            Some(header) => header.encode(ByteOrder::NATIVE),
            None => synced.log_header()?.encode(ByteOrder::NATIVE),
        };
        if !works.is_empty() {
            self.write_dnodes(how, owner, &works, &mut block)?;
        }
        let root = self.write_root(how, owner, &mut block)?;
        self.replace_synced(|synced| synced.rewritten(root, block));
        if let Some(header) = &header {
            self.inner.headers.settle(tx.txg(), header);
        }
        self.settle(tx, works);
        Ok(Some(SyncedObjset { root }))
    }

    /// Writes the blocks of objects, which determines their new dnodes.
    fn write_objects(
        &self,
        how: SyncParts<'_>,
        owner: &mut dyn SpaceOwner,
        dirty: DirtyObjects,
    ) -> Result<Vec<Work>, SyncError> {
        let flags = owner.dnode_flags();
        let works = dirty.into_values().filter_map(|core| work(how, core, flags));
        let mut works: Vec<Work> = works.collect();
        let mut context = how.context(owner);
        let mut trees = Vec::with_capacity(works.len());
        for work in &mut works {
            trees.extend(work.tree.take());
            if let (None, Some(old)) =
                (trees.last().filter(|tree| tree.object == work.core.id), &work.old)
            {
                let (before, after) = ((**old).clone(), (**old).clone());
                let mut tree = DirtyTree::new(how.synced, work.core.id, before, after);
                kill_object(&mut context, &mut tree)?;
            }
        }
        sync_trees(&mut context, &mut trees)?;
        let mut trees = trees.into_iter().peekable();
        for work in &mut works {
            work.tree = trees.next_if(|tree| tree.object == work.core.id);
        }
        write_spills(&mut context, &mut works)?;
        for pointer in works.iter().flat_map(|work| &work.unused) {
            owner.born(pointer);
            owner.killed(pointer);
        }
        for work in &works {
            let new = work.tree.as_ref().map(|tree| &tree.new);
            if work.core.id < ObjectId::END {
                owner.dnode_changed(work.core.id, work.old.as_deref(), new);
            }
        }
        Ok(works)
    }

    /// Writes the dnode blocks, and puts dnodes of the root block into `block`.
    fn write_dnodes(
        &self,
        how: SyncParts<'_>,
        owner: &mut dyn SpaceOwner,
        works: &[Work],
        block: &mut ObjsetBlock,
    ) -> Result<(), SyncError> {
        let mut by_block: BTreeMap<u64, Vec<&Work>> = BTreeMap::new();
        for work in works {
            match ObjectId::ACCOUNTING.iter().position(|id| *id == work.core.id) {
                Some(index) => {
                    if let Some(slot) = block.accounting.get_mut(index) {
                        *slot = work.tree.as_ref().map(|tree| tree.new.clone());
                    }
                }
                None => {
                    by_block.entry(work.core.id.0 / SLOTS_PER_BLOCK as u64).or_default().push(work);
                }
            }
        }
        let meta = block.meta_dnode.clone().unwrap_or_else(|| new_meta_dnode(how.synced));
        let mut new = meta.clone();
        let last = by_block.keys().next_back().copied().unwrap_or_default();
        new.max_block_id = new.max_block_id.max(BlockId(last));
        new.flags = DnodeFlags(new.flags.0 | DnodeFlags::USED_BYTES);
        let mut tree = DirtyTree::new(how.synced, ObjectId::META_DNODE, meta, new);
        for (number, works) in by_block {
            tree.blocks.insert(number, self.dnode_block(how.synced, number, &works)?);
        }
        let mut context = how.context(owner);
        sync_trees(&mut context, std::slice::from_mut(&mut tree))?;
        block.meta_dnode = Some(tree.new);
        Ok(())
    }

    /// A dnode block with the new dnodes in it.
    fn dnode_block(
        &self,
        synced: &Objset,
        number: u64,
        works: &[&Work],
    ) -> Result<LeafBlock, SyncError> {
        let block = BlockId(number);
        let bookmark =
            Bookmark { objset: self.id(), object: ObjectId::META_DNODE, level: Level::DATA, block };
        let on_disk = synced.meta_object().filter(|meta| block <= meta.dnode().max_block_id);
        let mut bytes = match on_disk.map(|meta| meta.read_block(block)).transpose()? {
            Some(old) if old.order != ByteOrder::NATIVE && !is_zeros(&old.data) => {
                return Err(DmuError::ForeignOrder { bookmark }.into());
            }
            Some(old) => old.data.to_vec(),
            None => vec![0; dnode::BLOCK_SIZE],
        };
        for work in works {
            let at = (work.core.id.0 % SLOTS_PER_BLOCK as u64) as usize * SLOT_SIZE;
            let size = usize::from(work.slots) * SLOT_SIZE;
            let Some(slots) = bytes.get_mut(at..at + size) else {
                let source = FormatError::invalid("dnode", "it crosses the end of its block");
                return Err(DmuError::Corrupt { bookmark, source }.into());
            };
            match &work.tree {
                Some(tree) => tree.new.encode(slots, ByteOrder::NATIVE),
                None => slots.fill(0),
            }
        }
        let dnodes = dnode::slots(&bytes, ByteOrder::NATIVE);
        let fill = dnodes.filter(|(_, dnode)| !matches!(dnode, Ok(None))).count() as u64;
        Ok(LeafBlock { data: bytes.into(), fill, placed: None })
    }

    /// Writes the root block, with its MACs if the set is encrypted.
    fn write_root(
        &self,
        how: SyncParts<'_>,
        owner: &mut dyn SpaceOwner,
        block: &mut ObjsetBlock,
    ) -> Result<BlockPointer, SyncError> {
        let bookmark = Bookmark::root(self.id());
        let old = *how.synced.root();
        let size = if old.is_hole() { OBJSET_BLOCK_SIZE } else { old.logical_size() as usize };
        if let Sealing::Key(key) = how.sealing {
            let bytes = block.encode(size, ByteOrder::NATIVE);
            let macs = key.objset_macs(&bytes, ByteOrder::NATIVE);
            let macs = macs.map_err(|source| DmuError::Corrupt { bookmark, source })?;
            (block.portable_mac, block.local_mac) = (macs.portable, macs.local);
        }
        let pointers = block.meta_dnode.iter().flat_map(|meta| &meta.pointers);
        let request = WriteRequest {
            data: block.encode(size, ByteOrder::NATIVE).into(),
            policy: how.policy.block(ObjectType::OBJSET, Level::DATA, Part::Contents),
            old,
            bookmark,
            fill: pointers.map(BlockPointer::fill).fold(0, u64::saturating_add),
        };
        let change = how.tx.writer().write(how.write_context(), &[request])?.pop();
        Ok(match change.unwrap_or(Change::Unchanged) {
            Change::Unchanged => old,
            Change::Rewritten(root) => root,
            Change::Replaced(root) => {
                if !old.is_hole() {
                    owner.killed(&old);
                }
                owner.born(&root);
                root
            }
        })
    }

    /// Drops the versions that are now on disk.
    fn settle(&self, tx: &SyncTx<'_>, works: Vec<Work>) {
        let mut numbers = self.inner.numbers.lock();
        let mut written = 0;
        for work in works {
            let mut state = work.core.state.write();
            state.versions.pop_front();
            written += work.dirtied;
            match (&work.old, &work.tree) {
                (Some(_), None) => numbers.free(),
                (None, _) => numbers.settle(work.core.id, work.slots),
                _ => {}
            }
            state.synced = work.tree.map(|tree| Arc::new(tree.new));
        }
        tx.context().remove_dirty(written);
    }
}

/// Whether accounts are damaged, or are not what accounts have to be.
fn is_of_accounts(error: &DmuError) -> bool {
    let is_other = |source: &ZapError<DmuError>| !matches!(source, ZapError::Blocks(_));
    error.is_damage() || matches!(error, DmuError::Zap { source, .. } if is_other(source))
}

/// The work for an object; `None` if it is not dirty in this txg.
fn work(how: SyncParts<'_>, core: Arc<ObjectCore>, flags: DnodeFlags) -> Option<Work> {
    let state = core.state.read();
    let version = state.versions.front().filter(|version| version.txg == how.tx.txg())?;
    let old = state.synced.clone();
    let shape = &version.shape;
    let is_alive = version.existence == Existence::Alive;
    let tree = is_alive.then(|| {
        let mut new = shape.dnode(old.as_deref());
        // The accounting objects are not accounted.
        let accounted = if ObjectId::ACCOUNTING.contains(&core.id) { 0 } else { flags.0 };
        new.flags = DnodeFlags(new.flags.0 | accounted | DnodeFlags::USED_BYTES);
        new.order = ByteOrder::NATIVE;
        let on_disk = old.as_deref().cloned().unwrap_or_else(|| empty_dnode(&new));
        let mut tree = DirtyTree::new(how.synced, core.id, on_disk, new);
        let leaf = |(block, buffer): (&u64, &DirtyBuffer)| {
            let placed = version.placements.of(*block, buffer);
            (*block, LeafBlock { data: buffer.bytes(), fill: 1, placed })
        };
        tree.blocks = version.blocks.iter().map(leaf).collect();
        tree.clones.clone_from(&version.clones);
        tree.freed = version.freed.iter().collect();
        tree
    });
    let spill = match &version.spill {
        SpillChange::Kept => SpillWork::Kept,
        SpillChange::Written(buffer) => SpillWork::Written(buffer.bytes()),
        SpillChange::Removed => SpillWork::Removed,
    };
    let unused = version.placements.unused(&version.blocks);
    let (slots, dirtied) = (shape.slots, version.dirtied);
    drop(state);
    Some(Work { core, old, tree, spill, slots, dirtied, unused })
}

/// Writes and frees spill blocks.
fn write_spills(context: &mut SyncContext<'_>, works: &mut [Work]) -> Result<(), SyncError> {
    for work in works {
        let Some(tree) = &mut work.tree else { continue };
        let old = tree.old.spill.unwrap_or_default();
        match std::mem::replace(&mut work.spill, SpillWork::Kept) {
            SpillWork::Kept => {}
            SpillWork::Removed => {
                tree.kill(context, &old);
                tree.new.spill = None;
            }
            SpillWork::Written(data) => {
                let bookmark = Bookmark { block: BlockId::SPILL, ..tree.bookmark(0, 0) };
                let policy = context.policy.block(tree.new.bonus_type, Level::DATA, Part::Spill);
                let request = WriteRequest { data, policy, old, bookmark, fill: 1 };
                let change = context.writer.write(context.write, &[request])?.pop();
                if let Some(pointer) =
                    tree.apply(context, &old, change.unwrap_or(Change::Unchanged))
                {
                    tree.new.spill = Some(pointer);
                }
            }
        }
    }
    Ok(())
}

/// The meta-dnode of a set without objects so far.
fn new_meta_dnode(objset: &Objset) -> Dnode {
    let is_mos = objset.id() == rzfs_format::ObjsetId::MOS;
    Dnode {
        object_type: ObjectType::DNODE,
        bonus_type: ObjectType::NONE,
        indirect_shift: META_INDIRECT_SHIFT,
        levels: if is_mos { 1 } else { META_LEVELS },
        checksum: 0,
        compress: 0,
        flags: DnodeFlags(DnodeFlags::USED_BYTES),
        data_block_size: dnode::BLOCK_SIZE as u32,
        slots: 1,
        max_block_id: BlockId(0),
        used: 0,
        pointers: vec![BlockPointer::HOLE; 3],
        bonus: Vec::new(),
        spill: None,
        order: ByteOrder::NATIVE,
    }
}
