//! Visiting every block pointer of an object set.
//!
//! A [`Traversal`] passes each pointer below a root block, and that of the root itself, to a
//! [`Visitor`], once, in one of two orders:
//!
//! ```text
//! parents first   root ─> meta-dnode's tree ─> block of dnodes ─> blocks of its objects ...
//!                   ─> accounting objects: projects, groups, users
//! children first  blocks of objects ... ─> block of dnodes ─> ... ─> meta-dnode's tree
//!                   ─> accounting objects ─> root
//! ```
//!
//! In either order objects are visited by number and blocks by offset, a spill block last. Scrubs,
//! `zdb -b` and send need parents first; freeing a dataset needs children first, so that a block is
//! freed when nothing is left below it (spec 04, section 4.5).
//!
//! - **Old blocks are skipped.** A block is never older than its descendants, so a tree whose root
//!   was not born after the txg of interest is not read.
//! - **A walk can stop anywhere and resume later**, since both orders are total: the bookmark of
//!   the next block suffices. It is stored on disk for datasets being destroyed.
//! - **Damage is local.** The visitor is notified and decides; descendants are skipped.
//! - **Memory is bounded** by one batch of blocks for each level, which are read together, and some
//!   32 bytes for each indirect block.

mod place;

use crate::in_force::Always;
use crate::tree::{Tree, identity, repeated};
use crate::{Block, BlockPipeline, BlockRequest, DmuError};
use place::{Order, Progress, Rest};
use rzfs_codec::crypto::DatasetKey;
use rzfs_format::dnode::{self, Dnode, SLOT_SIZE};
use rzfs_format::objset::ObjsetBlock;
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockId, BlockPointer, ObjectId, ObjsetId, Txg, VdevId};
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Indirect or dnode blocks read together.
const BATCH: usize = 64;

/// A block pointer and its location.
#[derive(Clone, Copy, Debug)]
pub struct Visit<'a> {
    /// Its place.
    pub bookmark: Bookmark,
    /// The pointer.
    pub pointer: &'a BlockPointer,
    /// The object it belongs to; `None` for the root block of an object set.
    pub dnode: Option<&'a Dnode>,
}

/// A slot of a dnode block that can start a dnode: slots inside a large one are not included.
#[derive(Clone, Copy, Debug)]
pub struct DnodeSlot<'a> {
    /// The object of the slot.
    pub object: ObjectId,
    /// Its dnode; `None` when the slot is free.
    pub dnode: Option<&'a Dnode>,
    /// The stored dnode, in the byte order of the block; 512 bytes of a free one.
    pub bytes: &'a [u8],
}

/// Receives the events of a traversal. When a method breaks, the walk ends, and the next one can
/// resume at that event.
pub trait Visitor {
    /// A block pointer that is not a hole.
    fn block(&mut self, visit: &Visit<'_>) -> ControlFlow<()>;

    /// A slot of a dnode block, before the blocks of its object. Dnodes of any age are reported
    /// with their block.
    fn slot(&mut self, _slot: &DnodeSlot<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// A hole, at the level at which it begins; holes after the last block of an object are only
    /// reported on request. One without a birth txg always existed, or its age is unknown.
    fn hole(&mut self, _hole: &Visit<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// Something that cannot be read. Its descendants are not visited; the block itself is visited
    /// next, if there is a pointer to it.
    fn damage(&mut self, error: DmuError) -> ControlFlow<()>;
}

/// Continue, or stop with the bookmark to resume at.
type Flow = ControlFlow<Bookmark>;

/// A walk over the block pointers of one object set.
#[derive(Clone, Copy, Debug)]
pub struct Traversal<'a> {
    pipeline: &'a BlockPipeline,
    objset: ObjsetId,
    key: Option<&'a Arc<DatasetKey>>,
    after: Txg,
    up_to: Txg,
    extent: Extent,
    progress: Progress,
}

/// How far holes of an object are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Extent {
    /// To its last block.
    LastBlock,
    /// To the end of the tree's addressable range.
    Tree,
}

impl<'a> Traversal<'a> {
    /// A walk that visits blocks before their descendants. `objset` is for bookmarks.
    #[must_use]
    pub const fn parents_first(pipeline: &'a BlockPipeline, objset: ObjsetId) -> Self {
        Self::new(pipeline, objset, Order::ParentsFirst)
    }

    /// A walk that visits blocks after their descendants. `objset` is for bookmarks.
    #[must_use]
    pub const fn children_first(pipeline: &'a BlockPipeline, objset: ObjsetId) -> Self {
        Self::new(pipeline, objset, Order::ChildrenFirst)
    }

    const fn new(pipeline: &'a BlockPipeline, objset: ObjsetId, order: Order) -> Self {
        let progress = Progress { order, next: None };
        Self {
            pipeline,
            objset,
            key: None,
            after: Txg(0),
            up_to: Txg(u64::MAX),
            extent: Extent::LastBlock,
            progress,
        }
    }

    /// Verifies the MACs of an encrypted set. All pointers are visited without its key, too.
    #[must_use]
    pub(crate) const fn with_key(mut self, key: Option<&'a Arc<DatasetKey>>) -> Self {
        self.key = key;
        self
    }

    /// Skips blocks not born after `txg`.
    #[must_use]
    pub const fn born_after(mut self, txg: Txg) -> Self {
        self.after = txg;
        self
    }

    /// Skips blocks born after `txg`; their descendants may be older.
    #[must_use]
    pub const fn born_up_to(mut self, txg: Txg) -> Self {
        self.up_to = txg;
        self
    }

    /// Also shows holes after the last blocks of objects, as far as there are pointers.
    #[must_use]
    pub const fn with_holes_past_the_end(mut self) -> Self {
        self.extent = Extent::Tree;
        self
    }

    /// Resumes an earlier walk in the same order.
    #[must_use]
    pub const fn resumed_at(mut self, next: Option<Bookmark>) -> Self {
        self.progress.next = next;
        self
    }

    /// Visits everything below (and including) the root block that `root` points to. Returns where
    /// to resume if the visitor stopped. At an unreadable block this is the block itself: parents
    /// first it is retried, children first its descendants are skipped.
    pub fn run(&self, root: &BlockPointer, visitor: &mut dyn Visitor) -> Option<Bookmark> {
        if !self.is_new(root) {
            return None;
        }
        let mut state = State { visitor, visited: HashSet::new() };
        self.root(root, &mut state).break_value()
    }

    fn root(&self, root: &BlockPointer, state: &mut State<'_>) -> Flow {
        let bookmark = Bookmark::root(self.objset);
        let visit = Visit { bookmark, pointer: root, dnode: None };
        let rest = self.progress.rest_of_root();
        let contents = rest.has_below().then(|| self.read_root(root));
        self.around(rest, &visit, contents, state, |objset: ObjsetBlock, state| {
            if let Some(meta) = &objset.meta_dnode {
                self.object(ObjectId::META_DNODE, meta, state)?;
            }
            let accounting = ObjectId::ACCOUNTING.into_iter().zip(&objset.accounting);
            for (id, dnode) in accounting.rev() {
                if let Some(dnode) = dnode {
                    self.object(id, dnode, state)?;
                }
            }
            Flow::Continue(())
        })
    }

    fn read_root(&self, root: &BlockPointer) -> Result<ObjsetBlock, DmuError> {
        let bookmark = Bookmark::root(self.objset);
        let request = BlockRequest { pointer: root, bookmark, key: self.key };
        let block = self.pipeline.read(request);
        let block = block.map_err(|source| DmuError::Block { bookmark, source })?;
        ObjsetBlock::decode(&block.data, block.order)
            .map_err(|source| DmuError::Corrupt { bookmark, source })
    }

    /// Visits a block and its descendants, in the order of this walk.
    fn around<Contents>(
        &self,
        rest: Rest,
        visit: &Visit<'_>,
        contents: Option<Result<Contents, DmuError>>,
        state: &mut State<'_>,
        below: impl FnOnce(Contents, &mut State<'_>) -> Flow,
    ) -> Flow {
        let contents = match contents.transpose() {
            Ok(contents) => contents,
            Err(error) => {
                state.damage(self.progress.retry(rest, visit.bookmark), error)?;
                None
            }
        };
        let is_visited = rest.has_itself() && visit.pointer.logical_birth() <= self.up_to;
        if is_visited && self.progress.order == Order::ParentsFirst {
            state.block(visit)?;
        }
        if let Some(contents) = contents {
            below(contents, state)?;
        }
        if is_visited && self.progress.order == Order::ChildrenFirst {
            state.block(visit)?;
        }
        Flow::Continue(())
    }

    /// Visits the blocks of one object; for the meta-dnode those of all objects.
    fn object(&self, id: ObjectId, dnode: &Dnode, state: &mut State<'_>) -> Flow {
        let tree = Tree {
            pipeline: self.pipeline,
            key: self.key,
            objset: self.objset,
            object: id,
            dnode,
            existence: None,
            owner: &Always,
        };
        let top = dnode.levels - 1;
        let pointers = tree.pointers(top, 0..dnode.pointers.len() as u64);
        self.blocks(&tree, top, 0, pointers, state)?;
        match &dnode.spill {
            Some(spill) if self.is_new(spill) => {
                let block = BlockId::SPILL.0;
                let rest = self.progress.rest(&tree, 0, block);
                let bookmark = tree.bookmark(0, block);
                let visit = Visit { bookmark, pointer: spill, dnode: Some(dnode) };
                self.around(rest, &visit, None, state, |(), _| Flow::Continue(()))
            }
            _ => Flow::Continue(()),
        }
    }

    fn is_new(&self, pointer: &BlockPointer) -> bool {
        !pointer.is_hole() && !pointer.is_redacted() && pointer.logical_birth() > self.after
    }

    /// Whether a hole of an object is one that the walk shows.
    fn is_shown(&self, hole: &BlockPointer, tree: &Tree<'_>, level: u8, block: u64) -> bool {
        let birth = hole.logical_birth();
        let is_born = birth == Txg(0) || (birth > self.after && birth <= self.up_to);
        let last = match self.extent {
            Extent::LastBlock => tree.dnode.max_block_id.0,
            Extent::Tree => u64::MAX,
        };
        let first = tree.first_below(level, block);
        is_born && first.is_some_and(|first| first <= last)
    }

    /// Visits the blocks of `level` from `first` on, and their descendants.
    fn blocks(
        &self,
        tree: &Tree<'_>,
        level: u8,
        first: u64,
        pointers: Vec<Result<BlockPointer, DmuError>>,
        state: &mut State<'_>,
    ) -> Flow {
        let is_leaf = level == 0 && tree.object != ObjectId::META_DNODE;
        let mut batch = Vec::new();
        let mut reads = 0;
        // There are many dnode blocks; only neighbours are compared.
        let mut neighbours = HashSet::new();
        for (pointer, block) in pointers.into_iter().zip(first..) {
            let rest = self.progress.rest(tree, level, block);
            let is_of_interest = match &pointer {
                Ok(hole) if hole.is_hole() => self.is_shown(hole, tree, level, block),
                Ok(pointer) => self.is_new(pointer),
                Err(_) => true,
            };
            if rest == Rest::Nothing || !is_of_interest {
                continue;
            }
            let mut entry = Entry { block, rest, pointer, contents: None };
            if is_leaf {
                self.entry(tree, level, entry, state)?;
                continue;
            }
            let known = if level == 0 { &mut neighbours } else { &mut state.visited };
            if let Ok(pointer) = &entry.pointer
                && identity(pointer).is_some_and(|at| !known.insert(at))
            {
                entry.pointer = Err(repeated(tree.bookmark(level, block)));
            }
            reads += usize::from(entry.is_read());
            batch.push(entry);
            if reads == BATCH {
                self.batch(tree, level, std::mem::take(&mut batch), state)?;
                reads = 0;
            }
        }
        self.batch(tree, level, batch, state)
    }

    /// Visits blocks and their descendants, which are read together.
    fn batch(
        &self,
        tree: &Tree<'_>,
        level: u8,
        mut batch: Vec<Entry>,
        state: &mut State<'_>,
    ) -> Flow {
        self.read(tree, level, &mut batch);
        batch.into_iter().try_for_each(|entry| self.entry(tree, level, entry, state))
    }

    fn read(&self, tree: &Tree<'_>, level: u8, batch: &mut [Entry]) {
        let requests: Vec<BlockRequest<'_>> = batch
            .iter()
            .filter(|entry| entry.is_read())
            .filter_map(|entry| {
                let bookmark = tree.bookmark(level, entry.block);
                Some(BlockRequest {
                    pointer: entry.pointer.as_ref().ok()?,
                    bookmark,
                    key: self.key,
                })
            })
            .collect();
        let contents = self.pipeline.read_many(&requests);
        for (entry, contents) in batch.iter_mut().filter(|entry| entry.is_read()).zip(contents) {
            let bookmark = tree.bookmark(level, entry.block);
            let contents = contents.map_err(|source| DmuError::Block { bookmark, source });
            entry.contents = Some(contents);
        }
    }

    fn entry(&self, tree: &Tree<'_>, level: u8, entry: Entry, state: &mut State<'_>) -> Flow {
        let Entry { block, rest, pointer, contents } = entry;
        let bookmark = tree.bookmark(level, block);
        let pointer = match pointer {
            Ok(pointer) => pointer,
            Err(error) => return state.damage(self.progress.retry(rest, bookmark), error),
        };
        let visit = Visit { bookmark, pointer: &pointer, dnode: Some(tree.dnode) };
        if pointer.is_hole() {
            return if rest.has_itself() { state.hole(&visit) } else { Flow::Continue(()) };
        }
        self.around(rest, &visit, contents, state, |contents: Block, state| {
            if level == 0 {
                return self.dnodes(tree, block, &contents, state);
            }
            let first = block << tree.dnode.pointers_shift();
            let children = tree.children(level - 1, first, &contents);
            self.blocks(tree, level - 1, first, children, state)
        })
    }

    /// Visits the objects of a dnode block.
    fn dnodes(&self, tree: &Tree<'_>, block: u64, contents: &Block, state: &mut State<'_>) -> Flow {
        let slots = u64::from(tree.dnode.data_block_size) / SLOT_SIZE as u64;
        for (slot, dnode) in dnode::slots(&contents.data, contents.order) {
            let object = ObjectId(block * slots + slot as u64);
            if self.progress.is_past(object) {
                continue;
            }
            match dnode {
                Ok(dnode) => {
                    let first = self.progress.first_of(self.objset, object);
                    let count = dnode.as_ref().map_or(1, |dnode| usize::from(dnode.slots));
                    let bytes = contents.data.get(slot * SLOT_SIZE..(slot + count) * SLOT_SIZE);
                    let bytes = bytes.unwrap_or_default();
                    let shown = DnodeSlot { object, dnode: dnode.as_ref(), bytes };
                    flow(state.visitor.slot(&shown), first)?;
                    if let Some(dnode) = &dnode {
                        self.object(object, dnode, state)?;
                    }
                }
                Err(source) => {
                    let error = DmuError::Dnode { objset: self.objset, object, source };
                    state.damage(self.progress.first_of(self.objset, object), error)?;
                }
            }
        }
        Flow::Continue(())
    }
}

/// A pointer of a tree, with its target if needed.
struct Entry {
    block: u64,
    rest: Rest,
    pointer: Result<BlockPointer, DmuError>,
    contents: Option<Result<Block, DmuError>>,
}

impl Entry {
    fn is_read(&self) -> bool {
        self.rest.has_below() && self.pointer.as_ref().is_ok_and(|pointer| !pointer.is_hole())
    }
}

struct State<'a> {
    visitor: &'a mut dyn Visitor,
    /// The indirect blocks so far. Each belongs to one place of one tree; damage that repeats them
    /// would make the walk of a small pool endless.
    visited: HashSet<(VdevId, u64)>,
}

impl State<'_> {
    fn block(&mut self, visit: &Visit<'_>) -> Flow {
        flow(self.visitor.block(visit), visit.bookmark)
    }

    fn hole(&mut self, hole: &Visit<'_>) -> Flow {
        flow(self.visitor.hole(hole), hole.bookmark)
    }

    fn damage(&mut self, retry: Bookmark, error: DmuError) -> Flow {
        flow(self.visitor.damage(error), retry)
    }
}

fn flow(answer: ControlFlow<()>, next: Bookmark) -> Flow {
    match answer {
        ControlFlow::Continue(()) => Flow::Continue(()),
        ControlFlow::Break(()) => Flow::Break(next),
    }
}
