//! Writing blocks (spec 07, sections 6.1, 9.1 and 11.4).
//!
//! A block goes to every leaf that has a part of it. It counts as written when it can be read back:
//! from one side of a mirror, or with no more columns of a stripe lost than there is parity. A leaf
//! owes what it did not get: it is written again with the next flush, and recorded in its dirty
//! time log, under the block's birth, if that finally fails ([`VdevTree::make_durable`]). A block
//! that is not written at all must be retried by the caller.

mod flush;
mod layout;
mod queue;

pub use flush::{Durability, LogTrust, NotDurable};
pub use layout::{BlockWrite, Coverage};
pub use queue::WriteClass;

use crate::error::VdevError;
use crate::tree::VdevTree;
use layout::BlockLayout;
use queue::WriteQueue;

impl VdevTree {
    /// Writes blocks, and waits for all devices; the results are in the order of the writes.
    ///
    /// Adjacent writes of a device are joined, whichever blocks they belong to. Nothing is durable
    /// before [`VdevTree::make_durable`], and until then all of it stays in memory.
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
                queue.extend(layout.parts(task, write.birth));
            }
            layouts.push(layout);
        }
        let failed = queue.run();
        for (part, error) in &failed {
            if let Some(Ok(layout)) = layouts.get_mut(part.task) {
                layout.fail(part.column, error.clone());
            }
        }
        let outcome = |layout: Result<BlockLayout, _>| layout.and_then(BlockLayout::outcome);
        let outcomes: Vec<_> = layouts.into_iter().map(outcome).collect();
        queue.end(&failed, |task| outcomes.get(task).is_some_and(Result::is_ok));
        outcomes
    }
}
