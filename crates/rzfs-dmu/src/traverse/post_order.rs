//! Visiting every block pointer of an object set, children before parents, a part at a time.
//!
//! This is how datasets are destroyed: a block is freed when nothing is below it any more, and
//! whoever breaks off remembers the block that comes next. Until then it and all above it are on
//! disk, so the walk can go on from there in a later txg, also in OpenZFS (spec 04, section 4.5).
//!
//! ```text
//! blocks of objects ... ─> block of dnodes ─> ... ─> meta-dnode's tree
//!   ─> accounting objects: projects, groups, users ─> root block
//! ```

use super::BATCH;
use crate::tree::{Tree, identity, repeated};
use crate::{Block, BlockPipeline, BlockRequest, DmuError};
use rzfs_format::dnode::{self, Dnode, SLOT_SIZE};
use rzfs_format::objset::ObjsetBlock;
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockId, BlockPointer, Level, ObjectId, ObjsetId, Txg, VdevId};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// What a walk reports to.
pub trait PostOrderVisitor {
    /// A block pointer that is not a hole, after all below it. When this breaks off, the block is
    /// the first one of the next walk.
    fn leave(&mut self, bookmark: Bookmark, pointer: &BlockPointer) -> ControlFlow<()>;

    /// A block that cannot be read; what is below it is not visited, but itself is.
    fn damage(&mut self, error: DmuError);
}

/// A walk over the block pointers of one object set, children before parents.
#[derive(Clone, Copy, Debug)]
pub struct PostOrderTraversal<'a> {
    /// Where blocks come from.
    pub pipeline: &'a BlockPipeline,
    /// The objset's number, for bookmarks.
    pub objset: ObjsetId,
    /// Only blocks born after this txg are visited.
    pub after: Txg,
    /// The block that an earlier walk was to visit next.
    pub resume: Option<Bookmark>,
}

/// Goes on, or where the next walk has to.
type Flow = ControlFlow<Bookmark>;

/// A pointer of a tree, with what it points to when that is needed.
struct Entry {
    block: u64,
    pointer: BlockPointer,
    contents: Option<Result<Block, DmuError>>,
}

struct State<'a> {
    visitor: &'a mut dyn PostOrderVisitor,
    /// The indirect blocks so far; damage that leads to one again and again would make a small
    /// pool a walk without end.
    visited: HashSet<(VdevId, u64)>,
}

impl PostOrderTraversal<'_> {
    /// Visits everything below the root block that `root` points to, and that at last. Answers
    /// with the block to go on with if the visitor broke off.
    pub fn run(&self, root: &BlockPointer, visitor: &mut dyn PostOrderVisitor) -> Option<Bookmark> {
        if root.is_hole() || root.logical_birth() <= self.after {
            return None;
        }
        let bookmark = Bookmark::root(self.objset);
        if self.resume != Some(bookmark)
            && let ControlFlow::Break(next) = self.below_root(bookmark, root, visitor)
        {
            return Some(next);
        }
        visitor.leave(bookmark, root).is_break().then_some(bookmark)
    }

    fn below_root(
        &self,
        bookmark: Bookmark,
        root: &BlockPointer,
        visitor: &mut dyn PostOrderVisitor,
    ) -> Flow {
        let request = BlockRequest { pointer: root, bookmark, key: None };
        let block = match self.pipeline.read(request) {
            Ok(block) => block,
            Err(source) => {
                visitor.damage(DmuError::Block { bookmark, source });
                return Flow::Continue(());
            }
        };
        let objset = match ObjsetBlock::decode(&block.data, block.order) {
            Ok(objset) => objset,
            Err(source) => {
                visitor.damage(DmuError::Corrupt { bookmark, source });
                return Flow::Continue(());
            }
        };
        let mut state = State { visitor, visited: HashSet::new() };
        if let Some(meta) = &objset.meta_dnode {
            self.object(ObjectId::META_DNODE, meta, &mut state)?;
        }
        let [users, groups, projects] = &objset.accounting;
        for (id, dnode) in [
            (ObjectId::PROJECT_USED, projects),
            (ObjectId::GROUP_USED, groups),
            (ObjectId::USER_USED, users),
        ] {
            if let Some(dnode) = dnode {
                self.object(id, dnode, &mut state)?;
            }
        }
        Flow::Continue(())
    }

    /// Visits the blocks of one object; for the meta-dnode those of all objects.
    fn object(&self, id: ObjectId, dnode: &Dnode, state: &mut State<'_>) -> Flow {
        let tree =
            Tree { pipeline: self.pipeline, key: None, objset: self.objset, object: id, dnode };
        let top = dnode.levels - 1;
        let pointers = tree.pointers(top, 0..dnode.pointers.len() as u64);
        self.blocks(&tree, top, 0, pointers, state)?;
        match dnode.spill.filter(|spill| self.is_new(spill)) {
            Some(spill) if !self.is_done(&tree, 0, BlockId::SPILL.0) => {
                let bookmark = tree.bookmark(0, BlockId::SPILL.0);
                leave(state, bookmark, &spill)
            }
            _ => Flow::Continue(()),
        }
    }

    fn is_new(&self, pointer: &BlockPointer) -> bool {
        !pointer.is_hole() && !pointer.is_redacted() && pointer.logical_birth() > self.after
    }

    /// Whether an earlier walk has visited a block and all below it.
    fn is_done(&self, tree: &Tree<'_>, level: u8, block: u64) -> bool {
        let Some(resume) = self.resume else { return false };
        let (ours, theirs) = (tree.object, resume.object);
        if resume.level == Level::ROOT {
            return true;
        }
        if ours == theirs {
            let theirs = place_in_tree(tree, resume.level.0.max(0).unsigned_abs(), resume.block.0);
            return place_in_tree(tree, level, block) < theirs;
        }
        if ours == ObjectId::META_DNODE {
            let end = first_object_after(tree.dnode, level, block);
            return theirs >= ObjectId::END || end <= u128::from(theirs.0);
        }
        // A block of dnodes comes after all its objects, and accounting objects after all blocks.
        theirs != ObjectId::META_DNODE && ours.0 < theirs.0
    }

    /// Visits the blocks of `level` from `first` on, each after what is below it.
    fn blocks(
        &self,
        tree: &Tree<'_>,
        level: u8,
        first: u64,
        pointers: Vec<Result<BlockPointer, DmuError>>,
        state: &mut State<'_>,
    ) -> Flow {
        let mut batch = Vec::new();
        for (pointer, block) in pointers.into_iter().zip(first..) {
            match pointer {
                Err(error) => state.visitor.damage(error),
                Ok(pointer) if self.is_new(&pointer) && !self.is_done(tree, level, block) => {
                    let mut is_repeated =
                        || identity(&pointer).is_some_and(|at| !state.visited.insert(at));
                    if level > 0 && is_repeated() {
                        state.visitor.damage(repeated(tree.bookmark(level, block)));
                        continue;
                    }
                    batch.push(Entry { block, pointer, contents: None });
                }
                Ok(_) => {}
            }
            if batch.len() == BATCH {
                self.batch(tree, level, std::mem::take(&mut batch), state)?;
            }
        }
        self.batch(tree, level, batch, state)
    }

    /// Reads blocks together, and visits each after what is below it.
    fn batch(
        &self,
        tree: &Tree<'_>,
        level: u8,
        mut batch: Vec<Entry>,
        state: &mut State<'_>,
    ) -> Flow {
        if level > 0 || tree.object == ObjectId::META_DNODE {
            self.read(tree, level, &mut batch);
        }
        for Entry { block, pointer, contents } in batch {
            match contents {
                Some(Ok(contents)) if level == 0 => self.dnodes(tree, block, &contents, state)?,
                Some(Ok(contents)) => {
                    let first = block << tree.dnode.pointers_shift();
                    let children = tree.children(level - 1, first, &contents);
                    self.blocks(tree, level - 1, first, children, state)?;
                }
                Some(Err(error)) => state.visitor.damage(error),
                None => {}
            }
            leave(state, tree.bookmark(level, block), &pointer)?;
        }
        Flow::Continue(())
    }

    fn read(&self, tree: &Tree<'_>, level: u8, batch: &mut [Entry]) {
        let mut wanted: Vec<&mut Entry> = batch
            .iter_mut()
            .filter(|entry| self.resume != Some(tree.bookmark(level, entry.block)))
            .collect();
        let requests: Vec<BlockRequest<'_>> = wanted
            .iter()
            .map(|entry| BlockRequest {
                pointer: &entry.pointer,
                bookmark: tree.bookmark(level, entry.block),
                key: None,
            })
            .collect();
        let contents = self.pipeline.read_many(&requests);
        let bookmarks: Vec<_> = requests.iter().map(|request| request.bookmark).collect();
        for ((entry, contents), bookmark) in wanted.iter_mut().zip(contents).zip(bookmarks) {
            let contents = contents.map_err(|source| DmuError::Block { bookmark, source });
            entry.contents = Some(contents);
        }
    }

    /// Visits the objects of a block of dnodes.
    fn dnodes(&self, tree: &Tree<'_>, block: u64, contents: &Block, state: &mut State<'_>) -> Flow {
        let slots = u64::from(tree.dnode.data_block_size) / SLOT_SIZE as u64;
        for (slot, dnode) in dnode::slots(&contents.data, contents.order) {
            let object = ObjectId(block * slots + slot as u64);
            match dnode {
                Ok(None) => {}
                Ok(Some(dnode)) => self.object(object, &dnode, state)?,
                Err(source) => {
                    let objset = self.objset;
                    state.visitor.damage(DmuError::Dnode { objset, object, source });
                }
            }
        }
        Flow::Continue(())
    }
}

fn leave(state: &mut State<'_>, bookmark: Bookmark, pointer: &BlockPointer) -> Flow {
    match state.visitor.leave(bookmark, pointer) {
        ControlFlow::Continue(()) => Flow::Continue(()),
        ControlFlow::Break(()) => Flow::Break(bookmark),
    }
}

/// One after the last data block below a block: the order of blocks in a tree, lower levels first
/// where it is the same. A spill block comes after all others.
fn place_in_tree(tree: &Tree<'_>, level: u8, block: u64) -> (u128, u8) {
    if block == BlockId::SPILL.0 {
        return (u128::MAX, 0);
    }
    (blocks_before(tree.dnode, level, block), level)
}

fn blocks_before(dnode: &Dnode, level: u8, block: u64) -> u128 {
    let shift = u32::from(level) * dnode.pointers_shift();
    let end = u128::from(block) + 1;
    if shift > end.leading_zeros() { u128::MAX } else { end << shift }
}

/// The number after those of all objects whose dnodes are below a block of the meta-dnode.
fn first_object_after(meta: &Dnode, level: u8, block: u64) -> u128 {
    let slots = u128::from(meta.data_block_size) / SLOT_SIZE as u128;
    blocks_before(meta, level, block).saturating_mul(slots)
}
