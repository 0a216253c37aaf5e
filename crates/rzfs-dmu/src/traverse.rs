//! Visiting every block pointer of an object set.
//!
//! Scrubs, `zdb -b` and send need all pointers born after some txg, each once, parents before
//! children. A tree whose root was born no later than that txg has nothing new below it and is
//! skipped. Neighbouring indirect and dnode blocks are read together; memory is bounded by one
//! batch for each level.

use crate::tree::Tree;
use crate::{Block, BlockPipeline, BlockRequest, DmuError};
use rzfs_codec::crypto::DatasetKey;
use rzfs_format::dnode::{self, Dnode, SLOT_SIZE};
use rzfs_format::objset::ObjsetBlock;
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockId, BlockPointer, Level, ObjectId, ObjsetId, Txg};
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
        if let Some(meta) = &objset.meta_dnode {
            self.object(ObjectId::META_DNODE, meta, visitor);
        }
        let special = [ObjectId::USER_USED, ObjectId::GROUP_USED, ObjectId::PROJECT_USED];
        for (id, dnode) in special.into_iter().zip(&objset.accounting) {
            if let Some(dnode) = dnode {
                self.object(id, dnode, visitor);
            }
        }
    }

    /// Visits the blocks of one object; for the meta-dnode those of all objects.
    fn object(&self, id: ObjectId, dnode: &Dnode, visitor: &mut dyn Visitor) {
        let tree =
            Tree { pipeline: self.pipeline, key: self.key, objset: self.objset, object: id, dnode };
        let top = dnode.levels - 1;
        let pointers = tree.pointers(top, 0..dnode.pointers.len() as u64);
        self.blocks(&tree, top, 0, pointers, visitor);
        let spill = dnode.spill.filter(|spill| self.is_new(spill));
        if let Some(spill) = spill {
            let bookmark = Bookmark {
                objset: self.objset,
                object: id,
                level: Level::DATA,
                block: BlockId::SPILL,
            };
            visitor.pointer(bookmark, &spill, Some(dnode));
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
        visitor: &mut dyn Visitor,
    ) {
        let descend = level > 0 || tree.object == ObjectId::META_DNODE;
        let mut batch = Vec::new();
        for (pointer, block) in pointers.into_iter().zip(first..) {
            match pointer {
                Err(error) => visitor.damage(error),
                Ok(pointer) if self.is_new(&pointer) => {
                    visitor.pointer(tree.bookmark(level, block), &pointer, Some(tree.dnode));
                    if descend {
                        batch.push((block, pointer));
                    }
                }
                Ok(_) => {}
            }
            if batch.len() == BATCH {
                self.below(tree, level, std::mem::take(&mut batch), visitor);
            }
        }
        self.below(tree, level, batch, visitor);
    }

    /// Reads blocks of `level` and visits what they point to.
    fn below(
        &self,
        tree: &Tree<'_>,
        level: u8,
        batch: Vec<(u64, BlockPointer)>,
        visitor: &mut dyn Visitor,
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
                    visitor.damage(DmuError::Block { bookmark: request.bookmark, source });
                }
                Ok(contents) if level == 0 => self.dnodes(tree, block, &contents, visitor),
                Ok(contents) => {
                    let first = block << tree.dnode.pointers_shift();
                    let children = tree.children(level - 1, first, &contents);
                    self.blocks(tree, level - 1, first, children, visitor);
                }
            }
        }
    }

    /// Visits the objects of a block of dnodes.
    fn dnodes(&self, tree: &Tree<'_>, block: u64, contents: &Block, visitor: &mut dyn Visitor) {
        let slots = u64::from(tree.dnode.data_block_size) / SLOT_SIZE as u64;
        for (slot, dnode) in dnode::slots(&contents.data, contents.order) {
            let object = ObjectId(block * slots + slot as u64);
            match dnode {
                Ok(None) => {}
                Ok(Some(dnode)) => self.object(object, &dnode, visitor),
                Err(source) => {
                    visitor.damage(DmuError::Dnode { objset: self.objset, object, source });
                }
            }
        }
    }
}
