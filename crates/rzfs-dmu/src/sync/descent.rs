//! Descending to the changes in an object.
//!
//! Each indirect block above written or freed data is read once on the way. One with only freed
//! blocks below it is freed with them, without being rewritten. The places of the others are then
//! known.
//!
//! ```text
//!            level 3                 freed: ░
//!         ┌─────┴─────┐
//!      level 2    ░level 2░          becomes a hole in the block above it
//!     ┌───┴───┐     ┌─┴─┐
//!  ░level 1  level 1  ...            becomes a hole │ a group of leaves: it is loaded and written
//! ```

use super::{DirtyTree, SyncContext, SyncError};
use crate::tree::{AHEAD, Tree, Visited, repeated};
use crate::write::HoleRequest;
use crate::{Block, DmuError};
use rzfs_format::BlockPointer;
use std::collections::BTreeSet;

/// Descends a tree: frees indirect blocks that have only freed blocks below them, with these, and
/// records the places of others that will be written. Returns the groups of level 1 in which some
/// blocks are freed and others are not.
pub(super) fn descend(
    context: &mut SyncContext<'_>,
    tree: &mut DirtyTree,
) -> Result<BTreeSet<u64>, SyncError> {
    let (groups, visited) = (BTreeSet::new(), Visited::default());
    let mut descent = Descent { context, tree, groups, visited };
    if let Some(top) = descent.tree.old.levels.checked_sub(1).filter(|top| *top > 0) {
        let count = descent.tree.old.pointers.len() as u64;
        let pointers = descent.on_disk().pointers(top, 0..count);
        let below = descent.look_at(top, (0..).zip(pointers))?;
        descent.leave_holes(top, below.gone);
    }
    Ok(descent.groups)
}

/// Whether blocks remain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rest {
    Nothing,
    Something,
}

/// The fate of indirect blocks.
struct Outcome {
    /// Those that were freed.
    gone: Vec<(u64, BlockPointer)>,
    rest: Rest,
}

struct Descent<'a, 'b> {
    context: &'a mut SyncContext<'b>,
    tree: &'a mut DirtyTree,
    groups: BTreeSet<u64>,
    visited: Visited,
}

impl Descent<'_, '_> {
    fn on_disk(&self) -> Tree<'_> {
        self.tree.on_disk(self.context.writer.pipeline())
    }

    /// Examines indirect blocks of `level`, given their numbers and pointers.
    fn look_at(
        &mut self,
        level: u8,
        pointers: impl Iterator<Item = (u64, Result<BlockPointer, DmuError>)>,
    ) -> Result<Outcome, SyncError> {
        let mut outcome = Outcome { gone: Vec::new(), rest: Rest::Nothing };
        let mut wanted = Vec::new();
        for (block, pointer) in pointers {
            let frees = self.tree.has_freed(level, block);
            match pointer {
                Ok(pointer) if pointer.is_hole() => continue,
                Ok(pointer) if frees || self.tree.has_new(level, block) => {
                    if self.visited.is_repeated(&pointer, level, block) {
                        stays(&repeated(self.tree.bookmark(level, block)));
                        outcome.rest = Rest::Something;
                        continue;
                    }
                    if frees || level > 1 {
                        wanted.push((block, pointer));
                        continue;
                    }
                    self.tree.note_place(level, block, pointer);
                }
                Err(error) if frees => stays(&error),
                _ => {}
            }
            outcome.rest = Rest::Something;
        }
        for chunk in wanted.chunks(AHEAD as usize) {
            let numbers = chunk.iter().map(|(block, _)| *block);
            let pointers = chunk.iter().map(|(_, pointer)| Ok(*pointer)).collect();
            let contents = self.on_disk().begin(level, numbers, pointers).finish();
            for ((block, pointer), contents) in chunk.iter().zip(contents) {
                match self.look_into(level, *block, contents)? {
                    Rest::Nothing => {
                        self.tree.kill(self.context, pointer);
                        outcome.gone.push((*block, *pointer));
                    }
                    Rest::Something => {
                        self.tree.note_place(level, *block, *pointer);
                        outcome.rest = Rest::Something;
                    }
                }
            }
        }
        Ok(outcome)
    }

    /// Frees what is to be freed below an indirect block.
    fn look_into(
        &mut self,
        level: u8,
        block: u64,
        contents: Result<Option<Block>, DmuError>,
    ) -> Result<Rest, SyncError> {
        let contents = match contents {
            Ok(Some(contents)) => contents,
            Ok(None) => return Ok(Rest::Something),
            // A block that devices failed to return still exists.
            Err(error) if !error.is_damage() => return Err(error.into()),
            Err(error) => {
                stays(&error);
                return Ok(Rest::Something);
            }
        };
        let is_whole = self.tree.is_freed(level, block);
        let first = block << self.tree.old.pointers_shift();
        let children = self.on_disk().present_children(level - 1, first, &contents);
        if level == 1 {
            if !is_whole || children.iter().any(|(_, child)| child.is_err()) {
                self.groups.insert(block);
                return Ok(Rest::Something);
            }
            for child in children.into_iter().filter_map(|(_, child)| child.ok()) {
                self.tree.kill(self.context, &child);
            }
            return Ok(Rest::Nothing);
        }
        let below = self.look_at(level - 1, children.into_iter())?;
        if is_whole && below.rest == Rest::Nothing {
            return Ok(Rest::Nothing);
        }
        self.leave_holes(level - 1, below.gone);
        Ok(Rest::Something)
    }

    /// Records holes for the parents in place of indirect blocks of `level`.
    fn leave_holes(&mut self, level: u8, gone: Vec<(u64, BlockPointer)>) {
        let policy = self.tree.policy(self.context, level);
        let size = u64::from(self.tree.old.indirect_size());
        let request = HoleRequest { policy, size, txg: self.context.write.txg };
        for (block, old) in gone {
            self.tree.leave_hole(level, block, self.context.writer.hole_after(&old, request));
        }
    }
}

/// Logs that a block damaged after its check stays where it is; a later write of it will fail.
fn stays(error: &DmuError) {
    tracing::warn!(%error, "blocks are not freed");
}
