//! Freeing a whole object: its data, its indirect blocks, its spill block.

use super::{DirtyTree, SyncContext, SyncError};
use crate::DmuError;
use crate::tree::{Tree, Visited, repeated};
use rzfs_format::BlockPointer;

/// Indirect blocks read together.
const AHEAD: usize = 32;

/// Frees everything below the dnode on disk. Blocks below a damaged indirect block are leaked:
/// their places are unknown, and waiting would not help. The dnode's used space shows how much that
/// is.
pub(crate) fn kill_object(
    context: &mut SyncContext<'_>,
    tree: &mut DirtyTree,
) -> Result<(), SyncError> {
    let top = tree.old.levels - 1;
    let pointers = tree.old.pointers.clone();
    let found = kill_below(context, (tree, &mut Visited::default()), (top, 0), &pointers)?;
    if let Some(spill) = tree.old.spill {
        tree.kill(context, &spill);
    }
    if found == Completeness::Incomplete {
        context.accounting.lost(tree.new.used);
    }
    Ok(())
}

/// Whether all blocks of a tree were found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Completeness {
    Complete,
    Incomplete,
}

/// Frees the blocks of `level` from `first` on, given their pointers, and all their descendants:
/// each indirect block only at the first of its places.
fn kill_below(
    context: &mut SyncContext<'_>,
    (tree, visited): (&mut DirtyTree, &mut Visited),
    (level, first): (u8, u64),
    pointers: &[BlockPointer],
) -> Result<Completeness, SyncError> {
    let shift = tree.old.pointers_shift();
    let mut found = Completeness::Complete;
    for (chunk, first) in pointers.chunks(AHEAD).zip((first..).step_by(AHEAD)) {
        let mut chunk = chunk.to_vec();
        if level > 0 {
            for (pointer, block) in chunk.iter_mut().zip(first..) {
                if !pointer.is_hole() && visited.is_repeated(pointer, level, block) {
                    found = leak(repeated(tree.bookmark(level, block)))?;
                    *pointer = BlockPointer::HOLE;
                }
            }
            let wanted = chunk.iter().copied().map(Ok).collect();
            let parents = on_disk(tree, context).read(level, first, wanted);
            for (parent, block) in parents.into_iter().zip(first..) {
                let parent = match parent {
                    Ok(Some(parent)) => parent,
                    Ok(None) => continue,
                    Err(error) => {
                        found = leak(error)?;
                        continue;
                    }
                };
                let below = block << shift;
                let children = on_disk(tree, context).children(level - 1, below, &parent);
                let mut known = Vec::with_capacity(children.len());
                for child in children {
                    match child {
                        Ok(child) => known.push(child),
                        Err(error) => {
                            found = leak(error)?;
                            known.push(BlockPointer::HOLE);
                        }
                    }
                }
                let part = kill_below(context, (tree, visited), (level - 1, below), &known)?;
                if part == Completeness::Incomplete {
                    found = part;
                }
            }
        }
        for pointer in &chunk {
            tree.kill(context, pointer);
        }
    }
    Ok(found)
}

/// Skips what cannot be found because of damage. Blocks that devices failed to return still exist.
fn leak(error: DmuError) -> Result<Completeness, SyncError> {
    if !error.is_damage() {
        return Err(error.into());
    }
    tracing::warn!(%error, "space of an object is leaked");
    Ok(Completeness::Incomplete)
}

fn on_disk<'a>(tree: &'a DirtyTree, context: &'a SyncContext<'_>) -> Tree<'a> {
    tree.on_disk(context.writer.pipeline())
}
