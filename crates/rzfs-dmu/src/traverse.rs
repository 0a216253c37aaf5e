//! Visiting every block pointer of an object set.
//!
//! Scrubs, `zdb -b` and send need all pointers born after some txg, each once, parents before
//! children. A tree whose root was born no later than that txg has nothing new below it and is
//! skipped. Neighbouring indirect and dnode blocks are read together; memory is bounded by one
//! batch for each level, and some 32 bytes for each indirect block.

mod post_order;

pub use post_order::{PostOrderTraversal, PostOrderVisitor};

use crate::tree::{Tree, identity, repeated};
use crate::{Block, BlockPipeline, BlockRequest, DmuError};
use rzfs_codec::crypto::DatasetKey;
use rzfs_format::dnode::{self, Dnode, SLOT_SIZE};
use rzfs_format::objset::ObjsetBlock;
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockId, BlockPointer, Level, ObjectId, ObjsetId, Txg, VdevId};
use std::collections::HashSet;
use std::sync::Arc;

/// Indirect or dnode blocks that are read together.
const BATCH: usize = 64;

/// What a traversal reports to.
pub trait Visitor {
    /// A block pointer that is not a hole, with the dnode that it belongs to; `None` for the
    /// objset's root block.
    fn pointer(&mut self, bookmark: Bookmark, pointer: &BlockPointer, dnode: Option<&Dnode>);

    /// A block that cannot be read; what is below it is not visited.
    fn damage(&mut self, error: DmuError);
}

/// What goes through a traversal.
struct Walk<'a> {
    visitor: &'a mut dyn Visitor,
    /// The indirect blocks so far. Each belongs to one place of one tree; damage that leads to
    /// one again and again would make a small pool a walk without end.
    visited: HashSet<(VdevId, u64)>,
}

impl Walk<'_> {
    /// Whether this is not the first pointer to an indirect block.
    fn is_repeated(&mut self, pointer: &BlockPointer) -> bool {
        identity(pointer).is_some_and(|identity| !self.visited.insert(identity))
    }
}

/// A walk over the block pointers of one object set.
#[derive(Clone, Copy, Debug)]
pub struct Traversal<'a> {
    /// Where blocks come from.
    pub pipeline: &'a BlockPipeline,
    /// The objset's number, for bookmarks.
    pub objset: ObjsetId,
    /// Its key; not needed to see all pointers, but then MACs are not verified.
    pub key: Option<&'a Arc<DatasetKey>>,
    /// Only blocks born after this txg are visited.
    pub after: Txg,
}

impl Traversal<'_> {
    /// Visits everything below (and including) the root block that `root` points to.
    pub fn run(&self, root: &BlockPointer, visitor: &mut dyn Visitor) {
        if root.is_hole() || root.logical_birth() <= self.after {
            return;
        }
        let bookmark = Bookmark::root(self.objset);
        visitor.pointer(bookmark, root, None);
        let request = BlockRequest { pointer: root, bookmark, key: self.key };
        let block = match self.pipeline.read(request) {
            Ok(block) => block,
            Err(source) => return visitor.damage(DmuError::Block { bookmark, source }),
        };
        let objset = match ObjsetBlock::decode(&block.data, block.order) {
            Ok(objset) => objset,
            Err(source) => return visitor.damage(DmuError::Corrupt { bookmark, source }),
        };
        let mut walk = Walk { visitor, visited: HashSet::new() };
        if let Some(meta) = &objset.meta_dnode {
            self.object(ObjectId::META_DNODE, meta, &mut walk);
        }
        for (id, dnode) in ObjectId::ACCOUNTING.into_iter().zip(&objset.accounting) {
            if let Some(dnode) = dnode {
                self.object(id, dnode, &mut walk);
            }
        }
    }

    /// Visits the blocks of one object; for the meta-dnode those of all objects.
    fn object(&self, id: ObjectId, dnode: &Dnode, walk: &mut Walk<'_>) {
        let tree =
            Tree { pipeline: self.pipeline, key: self.key, objset: self.objset, object: id, dnode };
        let top = dnode.levels - 1;
        let pointers = tree.pointers(top, 0..dnode.pointers.len() as u64);
        self.blocks(&tree, top, 0, pointers, walk);
        let spill = dnode.spill.filter(|spill| self.is_new(spill));
        if let Some(spill) = spill {
            let bookmark = Bookmark {
                objset: self.objset,
                object: id,
                level: Level::DATA,
                block: BlockId::SPILL,
            };
            walk.visitor.pointer(bookmark, &spill, Some(dnode));
        }
    }

    fn is_new(&self, pointer: &BlockPointer) -> bool {
        !pointer.is_hole() && !pointer.is_redacted() && pointer.logical_birth() > self.after
    }

    /// Visits the blocks of `level` from `first` on, and what is below them.
    fn blocks(
        &self,
        tree: &Tree<'_>,
        level: u8,
        first: u64,
        pointers: Vec<Result<BlockPointer, DmuError>>,
        walk: &mut Walk<'_>,
    ) {
        let descend = level > 0 || tree.object == ObjectId::META_DNODE;
        let mut batch = Vec::new();
        // There are many blocks of dnodes; only neighbours are compared.
        let mut neighbours = HashSet::new();
        for (pointer, block) in pointers.into_iter().zip(first..) {
            match pointer {
                Err(error) => walk.visitor.damage(error),
                Ok(pointer) if self.is_new(&pointer) => {
                    let is_repeated = match level {
                        0 if descend => identity(&pointer).is_some_and(|at| !neighbours.insert(at)),
                        0 => false,
                        _ => walk.is_repeated(&pointer),
                    };
                    if is_repeated {
                        let bookmark = tree.bookmark(level, block);
                        walk.visitor.damage(repeated(bookmark));
                        continue;
                    }
                    walk.visitor.pointer(tree.bookmark(level, block), &pointer, Some(tree.dnode));
                    if descend {
                        batch.push((block, pointer));
                    }
                }
                Ok(_) => {}
            }
            if batch.len() == BATCH {
                self.below(tree, level, std::mem::take(&mut batch), walk);
            }
        }
        self.below(tree, level, batch, walk);
    }

    /// Reads blocks of `level` and visits what they point to.
    fn below(
        &self,
        tree: &Tree<'_>,
        level: u8,
        batch: Vec<(u64, BlockPointer)>,
        walk: &mut Walk<'_>,
    ) {
        let requests: Vec<BlockRequest<'_>> = batch
            .iter()
            .map(|(block, pointer)| BlockRequest {
                pointer,
                bookmark: tree.bookmark(level, *block),
                key: self.key,
            })
            .collect();
        for (request, result) in requests.iter().zip(self.pipeline.read_many(&requests)) {
            let block = request.bookmark.block.0;
            match result {
                Err(source) => {
                    walk.visitor.damage(DmuError::Block { bookmark: request.bookmark, source });
                }
                Ok(contents) if level == 0 => self.dnodes(tree, block, &contents, walk),
                Ok(contents) => {
                    let first = block << tree.dnode.pointers_shift();
                    let children = tree.children(level - 1, first, &contents);
                    self.blocks(tree, level - 1, first, children, walk);
                }
            }
        }
    }

    /// Visits the objects of a block of dnodes.
    fn dnodes(&self, tree: &Tree<'_>, block: u64, contents: &Block, walk: &mut Walk<'_>) {
        let slots = u64::from(tree.dnode.data_block_size) / SLOT_SIZE as u64;
        for (slot, dnode) in dnode::slots(&contents.data, contents.order) {
            let object = ObjectId(block * slots + slot as u64);
            match dnode {
                Ok(None) => {}
                Ok(Some(dnode)) => self.object(object, &dnode, walk),
                Err(source) => {
                    walk.visitor.damage(DmuError::Dnode { objset: self.objset, object, source });
                }
            }
        }
    }
}
