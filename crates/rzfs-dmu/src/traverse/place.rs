//! Where a walk resumes: what part of a tree precedes a bookmark, in either order.
//!
//! A block stands for the data blocks below it, and a block of the meta-dnode's tree for the
//! objects whose dnodes are below it. Parents first, blocks are ordered by their first data block,
//! the highest level first. Children first, they are ordered by their last one, the lowest level
//! first.

use crate::tree::Tree;
use rzfs_format::dnode::{Dnode, SLOT_SIZE};
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockId, Level, ObjectId, ObjsetId};
use std::cmp::Reverse;
use std::ops::Range;

/// Whether a block or its descendants come first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    ParentsFirst,
    ChildrenFirst,
}

/// What remains to be visited of a block and its descendants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rest {
    Nothing,
    /// All or some of its descendants.
    Below,
    /// The block, but no descendants.
    Itself,
    /// The block, and all or some of its descendants.
    Both,
}

impl Rest {
    pub(super) const fn has_below(self) -> bool {
        matches!(self, Self::Below | Self::Both)
    }

    pub(super) const fn has_itself(self) -> bool {
        matches!(self, Self::Itself | Self::Both)
    }
}

/// The progress of earlier walks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    pub(super) order: Order,
    /// The block to visit next; the first one if `None`.
    pub(super) next: Option<Bookmark>,
}

impl Progress {
    pub(super) fn rest_of_root(self) -> Rest {
        let Some(next) = self.next else { return Rest::Both };
        match (self.order, next.level == Level::ROOT) {
            (Order::ParentsFirst, true) | (Order::ChildrenFirst, false) => Rest::Both,
            (Order::ParentsFirst, false) => Rest::Below,
            (Order::ChildrenFirst, true) => Rest::Itself,
        }
    }

    pub(super) fn rest(self, tree: &Tree<'_>, level: u8, block: u64) -> Rest {
        let Some(next) = self.next.filter(|next| next.level != Level::ROOT) else {
            return Rest::Both;
        };
        let here = data_blocks(tree.dnode, level, block);
        if tree.object == next.object {
            let next_level = next.level.0.max(0).unsigned_abs();
            let there = data_blocks(tree.dnode, next_level, next.block.0);
            return match self.order {
                Order::ParentsFirst if here.end <= there.start => Rest::Nothing,
                Order::ParentsFirst => {
                    let is_visited =
                        (here.start, Reverse(level)) < (there.start, Reverse(next_level));
                    if is_visited { Rest::Below } else { Rest::Both }
                }
                Order::ChildrenFirst => match (here.end, level).cmp(&(there.end, next_level)) {
                    std::cmp::Ordering::Less => Rest::Nothing,
                    std::cmp::Ordering::Equal => Rest::Itself,
                    std::cmp::Ordering::Greater => Rest::Both,
                },
            };
        }
        if tree.object == ObjectId::META_DNODE {
            let slots = u128::from(tree.dnode.data_block_size) / SLOT_SIZE as u128;
            let (first, end) = (here.start.saturating_mul(slots), here.end.saturating_mul(slots));
            let object = u128::from(next.object.0);
            return if next.object >= ObjectId::END || end <= object {
                Rest::Nothing
            } else if self.order == Order::ParentsFirst && first <= object {
                Rest::Below
            } else {
                Rest::Both
            };
        }
        if self.is_past(tree.object) { Rest::Nothing } else { Rest::Both }
    }

    /// Whether an object, other than the meta-dnode, was completely visited by an earlier walk. The
    /// result does not matter when the next block belongs to the meta-dnode: finished objects are
    /// then below finished blocks.
    pub(super) fn is_past(self, object: ObjectId) -> bool {
        self.next.is_some_and(|next| {
            next.level != Level::ROOT && next.object != ObjectId::META_DNODE && object < next.object
        })
    }

    /// Where a walk resumes that stops at a block with this rest.
    pub(super) fn retry(self, rest: Rest, bookmark: Bookmark) -> Bookmark {
        match (rest, self.next) {
            (Rest::Below, Some(next)) => next,
            _ => bookmark,
        }
    }

    /// A position before all blocks of an object.
    pub(super) const fn first_of(self, objset: ObjsetId, object: ObjectId) -> Bookmark {
        let level = match self.order {
            Order::ParentsFirst => Level(i8::MAX),
            Order::ChildrenFirst => Level::DATA,
        };
        Bookmark { objset, object, level, block: BlockId(0) }
    }
}

/// The data blocks below a block; a spill block follows all others.
fn data_blocks(dnode: &Dnode, level: u8, block: u64) -> Range<u128> {
    if block == BlockId::SPILL.0 {
        return u128::MAX - 1..u128::MAX;
    }
    let shift = u32::from(level) * dnode.pointers_shift();
    let below =
        |block: u128| if shift > block.leading_zeros() { u128::MAX } else { block << shift };
    let first = if block == 0 { 0 } else { below(block.into()) };
    first..below(u128::from(block) + 1)
}
