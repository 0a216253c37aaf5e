//! Freeing a whole object: its data, its indirect blocks, its spill block.

use super::{DirtyTree, SyncContext, SyncError};
use crate::tree::Tree;
use rzfs_format::BlockPointer;

/// Indirect blocks that are read together.
const AHEAD: usize = 32;

/// Kills everything below the dnode that is on disk.
pub(crate) fn kill_object(
    context: &mut SyncContext<'_>,
    tree: &mut DirtyTree,
) -> Result<(), SyncError> {
    let top = tree.old.levels - 1;
    let pointers = tree.old.pointers.clone();
    kill_below(context, tree, top, 0, &pointers)?;
    if let Some(spill) = tree.old.spill {
        tree.kill(context, &spill);
    }
    Ok(())
}

/// Kills the blocks of `level` from `first` on, given their pointers, and all below them.
fn kill_below(
    context: &mut SyncContext<'_>,
    tree: &mut DirtyTree,
    level: u8,
    first: u64,
    pointers: &[BlockPointer],
) -> Result<(), SyncError> {
    let shift = tree.old.pointers_shift();
    for (chunk, first) in pointers.chunks(AHEAD).zip((first..).step_by(AHEAD)) {
        if level > 0 {
            let wanted = chunk.iter().copied().map(Ok).collect();
            let parents = on_disk(tree, context).read(level, first, wanted);
            for (parent, block) in parents.into_iter().zip(first..) {
                let Some(parent) = parent? else { continue };
                let below = block << shift;
                let children = on_disk(tree, context).children(level - 1, below, &parent);
                let children: Vec<_> = children.into_iter().collect::<Result<_, _>>()?;
                kill_below(context, tree, level - 1, below, &children)?;
            }
        }
        for pointer in chunk {
            tree.kill(context, pointer);
        }
    }
    Ok(())
}

fn on_disk<'a>(tree: &'a DirtyTree, context: &'a SyncContext<'_>) -> Tree<'a> {
    tree.on_disk(context.writer.pipeline())
}
