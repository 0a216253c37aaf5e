//! Writing the trees of many objects, level by level.

use super::descent::descend;
use super::tree::{DirtyTree, Group};
use super::{BATCH_BYTES, BATCH_GROUPS, SyncContext, SyncError};
use crate::write::{Change, HoleRequest, WriteRequest};
use rzfs_format::BlockPointer;

/// A group to write: the index of its tree, its number.
type Place = (usize, u64);

/// Writes the dirty data of all trees, which updates the levels, pointers and used space of their
/// `new` dnodes.
pub(crate) fn sync_trees(
    context: &mut SyncContext<'_>,
    trees: &mut [DirtyTree],
) -> Result<(), SyncError> {
    let mut places = Vec::new();
    for (index, tree) in trees.iter_mut().enumerate() {
        let mut groups = tree.leaf_groups();
        groups.append(&mut descend(context, tree)?);
        places.extend(groups.into_iter().map(|group| (index, group)));
    }
    let mut rest = places.as_slice();
    while !rest.is_empty() {
        let (batch, later) = rest.split_at(batch_len(trees, rest));
        sync_leaves(context, trees, batch)?;
        rest = later;
    }
    let levels = trees.iter().map(|tree| tree.new.levels).max().unwrap_or(1);
    for level in 2..=levels {
        trees.iter_mut().for_each(|tree| tree.take_holes(level - 1));
        finish_tops(trees, level);
        sync_level(context, trees, level)?;
    }
    Ok(())
}

/// How many of the groups fit in one batch; at least one.
fn batch_len(trees: &[DirtyTree], places: &[Place]) -> usize {
    let mut bytes = 0;
    for (count, (tree, group)) in places.iter().enumerate() {
        let Some(tree) = trees.get(*tree) else { continue };
        bytes += blocks_of(tree, *group).map(|(_, block)| block.data.len()).sum::<usize>();
        if count > 0 && (bytes > BATCH_BYTES || count >= BATCH_GROUPS) {
            return count;
        }
    }
    places.len()
}

/// The data blocks of a group to write.
fn blocks_of(
    tree: &DirtyTree,
    group: u64,
) -> impl Iterator<Item = (&u64, &super::tree::LeafBlock)> + use<'_> {
    let shift = tree.new.pointers_shift();
    let range = if tree.new.levels == 1 {
        0..=u64::MAX
    } else {
        let first = group << shift;
        first..=first | ((1 << shift) - 1)
    };
    tree.blocks.range(range)
}

/// Writes and frees the data blocks of some groups, then the groups themselves.
fn sync_leaves(
    context: &mut SyncContext<'_>,
    trees: &mut [DirtyTree],
    places: &[Place],
) -> Result<(), SyncError> {
    let mut groups = Vec::with_capacity(places.len());
    let mut requests = Vec::new();
    let mut targets = Vec::new();
    for &(index, block) in places {
        let Some(tree) = trees.get_mut(index) else { continue };
        let mut group = load_leaf_group(context, tree, block)?;
        free_leaves(context, tree, &mut group);
        share_leaves(context, tree, &mut group);
        let first = first_child(tree, block);
        adopt_leaves(context, tree, &mut group);
        for (number, leaf) in blocks_of(tree, block).filter(|(_, leaf)| leaf.placed.is_none()) {
            let child = (number - first) as usize;
            targets.push((index, groups.len(), child));
            requests.push(WriteRequest {
                data: leaf.data.clone(),
                policy: tree.policy(context, 0),
                old: group.children.get(child).copied().unwrap_or_default(),
                bookmark: tree.bookmark(0, *number),
                fill: leaf.fill,
            });
        }
        groups.push((index, group));
    }
    let changes = context.writer.write(context.write, &requests)?;
    for (((index, group, child), request), change) in
        targets.into_iter().zip(&requests).zip(changes)
    {
        let (Some(tree), Some((_, group))) = (trees.get_mut(index), groups.get_mut(group)) else {
            continue;
        };
        if let Some(pointer) = tree.apply(context, &request.old, change)
            && let Some(slot) = group.children.get_mut(child)
        {
            *slot = pointer;
            group.is_changed = true;
        }
    }
    write_groups(context, trees, 1, groups)
}

/// Takes over blocks of a group that are already on disk.
fn adopt_leaves(context: &mut SyncContext<'_>, tree: &mut DirtyTree, group: &mut Group) {
    let first = first_child(tree, group.block);
    let placed = blocks_of(tree, group.block);
    let placed: Vec<_> =
        placed.filter_map(|(number, leaf)| Some((*number, leaf.placed?))).collect();
    for (number, pointer) in placed {
        if let Some(slot) = group.children.get_mut((number - first) as usize) {
            tree.apply(context, slot, Change::Replaced(pointer));
            *slot = pointer;
            group.is_changed = true;
        }
    }
}

/// The pointers to data: of an indirect block, or of the dnode if there is none.
fn load_leaf_group(
    context: &SyncContext<'_>,
    tree: &DirtyTree,
    block: u64,
) -> Result<Group, SyncError> {
    if tree.new.levels == 1 {
        let children = tree.old.pointers.clone();
        return Ok(Group { block, old: BlockPointer::HOLE, children, is_changed: false });
    }
    Ok(tree.load(context.writer.pipeline(), 1, block)?)
}

/// The number of a group's first data block.
fn first_child(tree: &DirtyTree, group: u64) -> u64 {
    if tree.new.levels == 1 { 0 } else { group << tree.new.pointers_shift() }
}

/// Frees the blocks of a group that are in the tree's freed ranges.
fn free_leaves(context: &mut SyncContext<'_>, tree: &mut DirtyTree, group: &mut Group) {
    let first = first_child(tree, group.block);
    let end = first.saturating_add(group.children.len() as u64);
    let overlapping = |range: &&std::ops::Range<u64>| range.start < end && range.end > first;
    let ranges: Vec<_> = tree.freed.iter().filter(overlapping).cloned().collect();
    let policy = tree.policy(context, 0);
    let size = u64::from(tree.old.data_block_size);
    for range in ranges {
        for number in range.start.max(first)..range.end.min(end) {
            let Some(child) = group.children.get_mut((number - first) as usize) else { continue };
            let is_replaced =
                tree.blocks.contains_key(&number) || tree.clones.contains_key(&number);
            // The target of a damaged pointer is unknown.
            if child.is_hole()
                || is_replaced
                || !tree.is_sound(context.writer.pipeline(), number, child)
            {
                continue;
            }
            let request = HoleRequest { policy, size, txg: context.write.txg };
            let hole = context.writer.hole_after(child, request);
            let old = std::mem::replace(child, hole);
            tree.kill(context, &old);
            group.is_changed = true;
        }
    }
}

/// Adds shared blocks to a group.
fn share_leaves(context: &mut SyncContext<'_>, tree: &mut DirtyTree, group: &mut Group) {
    if tree.clones.is_empty() {
        return;
    }
    let first = first_child(tree, group.block);
    let end = first.saturating_add(group.children.len() as u64);
    let clones: Vec<_> = tree.clones.range(first..end).map(|(at, of)| (*at, *of)).collect();
    for (number, pointer) in clones {
        let Some(child) = group.children.get_mut((number - first) as usize) else { continue };
        let shared = tree.share(context, &pointer);
        let old = std::mem::replace(child, shared);
        tree.kill(context, &old);
        group.is_changed = true;
    }
}

/// Writes the indirect blocks of one level of all trees that are higher.
fn sync_level(
    context: &mut SyncContext<'_>,
    trees: &mut [DirtyTree],
    level: u8,
) -> Result<(), SyncError> {
    let mut work = Vec::new();
    for (index, tree) in trees.iter_mut().enumerate().filter(|(_, tree)| tree.new.levels > level) {
        work.extend(tree.inner_groups(level).into_iter().map(|group| (index, group)));
        tree.updates.clear();
    }
    let mut work = work.into_iter().peekable();
    while work.peek().is_some() {
        let mut groups = Vec::new();
        for (index, (block, updates)) in work.by_ref().take(BATCH_GROUPS) {
            let Some(tree) = trees.get(index) else { continue };
            let mut group = tree.load(context.writer.pipeline(), level, block)?;
            let mask = (1_u64 << tree.new.pointers_shift()) - 1;
            for (child, pointer) in updates {
                if let Some(slot) = group.children.get_mut((child & mask) as usize) {
                    *slot = pointer;
                    group.is_changed = true;
                }
            }
            groups.push((index, group));
        }
        write_groups(context, trees, level, groups)?;
    }
    Ok(())
}

/// Writes indirect blocks of `level`; the pointers to them become updates of the level above.
/// The group of a tree without indirect blocks is its dnode.
fn write_groups(
    context: &mut SyncContext<'_>,
    trees: &mut [DirtyTree],
    level: u8,
    groups: Vec<(usize, Group)>,
) -> Result<(), SyncError> {
    let mut requests = Vec::new();
    let mut targets = Vec::new();
    for (index, group) in groups {
        let Some(tree) = trees.get_mut(index).filter(|_| group.is_changed) else { continue };
        if tree.new.levels == level {
            tree.new.pointers = group.children;
            continue;
        }
        let fill = group.children.iter().map(BlockPointer::fill).fold(0, u64::saturating_add);
        requests.push(WriteRequest {
            data: tree.encode(&group.children),
            policy: tree.policy(context, level),
            old: group.old,
            bookmark: tree.bookmark(level, group.block),
            fill,
        });
        targets.push((index, group.block));
    }
    let changes = context.writer.write(context.write, &requests)?;
    for (((index, block), request), change) in targets.into_iter().zip(&requests).zip(changes) {
        let Some(tree) = trees.get_mut(index) else { continue };
        if let Some(pointer) = tree.apply(context, &request.old, change) {
            tree.updates.insert(block, pointer);
        }
    }
    Ok(())
}

/// Puts the new pointers into the dnodes of trees whose top level was just written.
fn finish_tops(trees: &mut [DirtyTree], level: u8) {
    for tree in trees.iter_mut().filter(|tree| tree.new.levels == level) {
        if tree.new.levels > tree.old.levels {
            tree.new.pointers.fill(BlockPointer::HOLE);
        }
        for (block, pointer) in std::mem::take(&mut tree.updates) {
            if let Some(slot) = tree.new.pointers.get_mut(block as usize) {
                *slot = pointer;
            }
        }
    }
}
