//! The objects that differ between two related sets.
//!
//! Both dnode trees are followed from the top, and only where their pointers differ: what two
//! snapshots share is not read.

use super::{Objset, slots_of};
use crate::tree::{Damage, Tree, Visited, repeated};
use crate::{Block, DmuError};
use rzfs_format::dnode::{self, Dnode};
use rzfs_format::{FormatError, ObjectId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

/// The numbers of objects that differ, in order: those in only one set, and those whose dnodes
/// differ at all, times of access included. Unreadable ones yield an error in their place, and the
/// iteration continues.
pub struct ObjsetChanges {
    older: Objset,
    newer: Objset,
    first: ObjectId,
    /// The next dnode block to compare.
    next: Option<u64>,
    seen: [Visited; 2],
    found: VecDeque<Result<ObjectId, DmuError>>,
}

impl Objset {
    /// The objects from `first` on that differ between this set and an older one.
    #[must_use]
    pub fn changes_since(&self, older: &Self, first: ObjectId) -> ObjsetChanges {
        let (older, newer) = (older.clone(), self.clone());
        let slots = newer.meta_tree().as_ref().map_or(1, slots_of);
        let (seen, found) = (Default::default(), VecDeque::new());
        ObjsetChanges { older, newer, first, next: Some(first.0 / slots), seen, found }
    }
}

impl ObjsetChanges {
    /// Compares the next dnode block that differs.
    fn advance(&mut self) {
        let Some(from) = self.next.take() else { return };
        let (older, newer) = (self.older.clone(), self.newer.clone());
        let trees = match (older.meta_tree(), newer.meta_tree()) {
            (Some(older), Some(newer)) => [older, newer],
            // A set without objects.
            (one, other) => {
                let Some(tree) = one.or(other) else { return };
                let empty = Dnode { pointers: Vec::new(), ..tree.dnode.clone() };
                return self.compare_with(from, [Tree { dnode: &empty, ..tree }, tree]);
            }
        };
        self.compare_with(from, trees);
    }

    fn compare_with(&mut self, from: u64, trees: [Tree<'_>; 2]) {
        let [older, newer] = &trees;
        if slots_of(older) != slots_of(newer)
            || older.dnode.pointers_shift() != newer.dnode.pointers_shift()
        {
            let source = FormatError::invalid("meta-dnode", "its blocks are of another size");
            self.found.push_back(Err(DmuError::Corrupt { bookmark: newer.bookmark(0, 0), source }));
            return;
        }
        let levels = older.dnode.levels.max(newer.dnode.levels);
        let count = older.dnode.pointers.len().max(newer.dnode.pointers.len()) as u64;
        let mut search = Search { trees: &trees, seen: &mut self.seen, from };
        match search.first_difference(levels - 1, 0..count) {
            Ok(None) => {}
            Ok(Some(block)) => {
                self.next = block.checked_add(1);
                match compare(&trees, block) {
                    Ok(objects) => {
                        let wanted = objects.into_iter().filter(|id| *id >= self.first);
                        self.found.extend(wanted.map(Ok));
                    }
                    Err(error) => self.found.push_back(Err(error)),
                }
            }
            Err(damage) => {
                self.found.push_back(Err(damage.error));
                self.next = Some(damage.end);
            }
        }
    }
}

impl Iterator for ObjsetChanges {
    type Item = Result<ObjectId, DmuError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.found.is_empty() && self.next.is_some() {
            self.advance();
        }
        self.found.pop_front()
    }
}

/// A search for the differences between two trees.
struct Search<'a, 't> {
    trees: &'a [Tree<'t>; 2],
    seen: &'a mut [Visited; 2],
    from: u64,
}

impl Search<'_, '_> {
    /// The first data block from `from` on whose pointers differ, searching below these blocks of
    /// `level`.
    fn first_difference(
        &mut self,
        level: u8,
        blocks: Range<u64>,
    ) -> Result<Option<u64>, Box<Damage>> {
        let [older, newer] = self.trees;
        let shift = newer.dnode.pointers_shift();
        let skipped = newer.dnode.ancestor(rzfs_format::BlockId(self.from), level).0;
        let blocks = blocks.start.max(skipped)..blocks.end;
        let last = older.dnode.max_block_id.0.max(newer.dnode.max_block_id.0);
        let sides = self.trees.map(|tree| side(&tree, level, blocks.clone()));
        let [older_side, newer_side] = sides;
        for (block, pair) in blocks.zip(older_side.into_iter().zip(newer_side)) {
            let Some(start) = newer.first_below(level, block) else { return Ok(None) };
            if start > last {
                return Ok(None);
            }
            let damage = |error| newer.damage(level, block, error);
            let pair = [pair.0.map_err(damage)?, pair.1.map_err(damage)?];
            let is_same = pair[0] == pair[1] && pair.iter().all(Option::is_some);
            if is_same {
                continue;
            }
            if level == 0 {
                return Ok(Some(block));
            }
            for (seen, pointer) in self.seen.iter_mut().zip(pair.iter().flatten()) {
                if !pointer.is_hole() && seen.is_repeated(pointer, level, block) {
                    return Err(damage(repeated(newer.bookmark(level, block))));
                }
            }
            let below = block << shift..(block + 1) << shift;
            if let Some(found) = self.first_difference(level - 1, below)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

/// The pointers of a tree to blocks of a level; `None` where the tree is not as high, so that its
/// descendants must be searched.
fn side(
    tree: &Tree<'_>,
    level: u8,
    blocks: Range<u64>,
) -> Vec<Result<Option<rzfs_format::BlockPointer>, DmuError>> {
    if level >= tree.dnode.levels {
        return blocks.map(|_| Ok(None)).collect();
    }
    tree.pointers(level, blocks).into_iter().map(|pointer| pointer.map(Some)).collect()
}

/// The objects that differ in a dnode block.
fn compare(trees: &[Tree<'_>; 2], block: u64) -> Result<BTreeSet<ObjectId>, DmuError> {
    let [older, newer] = trees;
    let [older, newer] = [dnodes(older, block)?, dnodes(newer, block)?];
    let is_other = |id: &&ObjectId| older.get(id) != newer.get(id);
    Ok(older.keys().chain(newer.keys()).filter(is_other).copied().collect())
}

/// The dnodes of a block, with their numbers.
fn dnodes(tree: &Tree<'_>, block: u64) -> Result<BTreeMap<ObjectId, Dnode>, DmuError> {
    let read = tree.read(0, block, tree.pointers(0, block..block + 1));
    let Some(Block { data, order }) = read.into_iter().next().transpose()?.flatten() else {
        return Ok(BTreeMap::new());
    };
    let first = block * slots_of(tree);
    let mut dnodes = BTreeMap::new();
    for (slot, dnode) in dnode::slots(&data, order) {
        let id = ObjectId(first + slot as u64);
        let objset = tree.objset;
        let dnode = dnode.map_err(|source| DmuError::Dnode { objset, object: id, source })?;
        dnodes.extend(dnode.map(|dnode| (id, dnode)));
    }
    Ok(dnodes)
}
