//! Writing blocks (spec 07, sections 6.1, 9.1 and 11.4).
//!
//! A block goes to every leaf that has a part of it. It is written when it can be read back: from
//! one side of a mirror, or with no more columns of a stripe lost than there is parity. What a
//! leaf did not get is noted in its dirty time log, under the block's birth; a block that is not
//! written at all is for whoever wanted it to try again.

mod layout;
mod queue;

use crate::error::{LeafFailure, VdevError};
use crate::label;
use crate::tree::{Vdev, VdevTree};
use bytes::Bytes;
use layout::BlockLayout;
use queue::WriteQueue;
use rzfs_blockdev::BlockDevice;
use rzfs_format::{Dva, Guid, Txg, VdevId};
use std::sync::Arc;

/// A block to write.
#[derive(Clone, Debug)]
pub struct BlockWrite {
    /// Where it goes; of a gang block, one of its pieces.
    pub dva: Dva,
    /// Its physical birth.
    pub birth: Txg,
    /// What is stored of it: PSIZE bytes, a multiple of 512.
    pub data: Bytes,
}

/// Who waits for a batch of writes, which decides how many of them a leaf has at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteClass {
    /// Somebody waits: the intent log.
    Sync,
    /// The txg that syncs.
    Async,
}

/// How well a block is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coverage {
    /// Every leaf has its part.
    Full,
    /// Some leaf lacks its part.
    Partial,
}

impl VdevTree {
    /// Writes blocks, and waits for all devices; the results are in the order of the writes.
    ///
    /// Neighbouring writes of a device are joined, whichever blocks they belong to. Nothing is
    /// durable before [`VdevTree::flush`].
    #[must_use]
    pub fn write(&self, writes: Vec<BlockWrite>) -> Vec<Result<Coverage, VdevError>> {
        self.write_as(WriteClass::Async, writes)
    }

    /// Writes blocks for somebody, as [`Self::write`] does for the txg that syncs.
    #[must_use]
    pub fn write_as(
        &self,
        class: WriteClass,
        writes: Vec<BlockWrite>,
    ) -> Vec<Result<Coverage, VdevError>> {
        let mut queue = WriteQueue::new(self, class);
        let mut layouts = Vec::with_capacity(writes.len());
        for (task, write) in writes.iter().enumerate() {
            let layout = self.layout(write);
            if let Ok(layout) = &layout {
                queue.extend(layout.parts(task));
            }
            layouts.push(layout);
        }
        let mut lacking = Vec::new();
        for (part, error) in queue.run() {
            if let Some(Ok(layout)) = layouts.get_mut(part.task) {
                layout.fail(part.column, error);
            }
            lacking.push((part.task, part.leaf));
        }
        let outcome = |layout: Result<BlockLayout, _>| layout.and_then(BlockLayout::outcome);
        let outcomes: Vec<_> = layouts.into_iter().map(outcome).collect();
        for (task, leaf) in lacking {
            if let (Some(write), Some(Ok(_))) = (writes.get(task), outcomes.get(task))
                && let Some(leaf) = self.leaf(leaf)
            {
                leaf.missing().add(write.birth);
            }
        }
        outcomes
    }

    /// Makes everything durable that was written before. A device without a write cache has
    /// nothing to do.
    #[must_use]
    pub fn flush(&self) -> Vec<LeafFailure> {
        Self::flush_leaves(self.leaves())
    }

    /// Makes durable what was written to these top-level vdevs, as [`VdevTree::flush`] does for
    /// all.
    #[must_use]
    pub fn flush_below<'v>(&self, tops: impl IntoIterator<Item = &'v VdevId>) -> Vec<LeafFailure> {
        let tops = tops.into_iter().filter_map(|vdev| self.top_level(*vdev));
        Self::flush_leaves(tops.flat_map(Vdev::leaves_below))
    }

    fn flush_leaves<'a>(leaves: impl Iterator<Item = Vdev<'a>>) -> Vec<LeafFailure> {
        let usable = |leaf: &Vdev<'_>| leaf.health().is_usable();
        let leaves: Vec<(Guid, &Arc<dyn BlockDevice>)> =
            leaves.filter(usable).filter_map(|leaf| Some((leaf.guid(), leaf.device()?))).collect();
        let answers = label::flush(leaves.iter().map(|(_, device)| *device));
        let failures = leaves.iter().zip(answers).filter_map(|((leaf, _), answer)| {
            let error = answer.err()?;
            Some(LeafFailure { leaf: *leaf, error })
        });
        failures.collect()
    }
}
