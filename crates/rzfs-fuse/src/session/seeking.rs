//! Finding data and holes in files of which the kernel may have pages.
//!
//! ```text
//! request ── look ──┬─> no hole, or none over which the kernel has pages ─────────> reply
//!                   └─> its pages over the hole are dropped, by a thread ── look ─> reply
//! ```
//! What is stored through a shared mapping is only in the kernel's pages until these are written back,
//! and nobody is told: what is a hole here may be data there. So a hole is reported after the kernel
//! has dropped its pages over it, which writes back what was stored. Pages over data stay.

use super::Session;
use crate::adapter::Seeking;
use crate::answer::Answer;
use crate::kernel_cache::PageDropper;
use fuser::{INodeNo, ReplyLseek};
use std::ops::Range;
use std::sync::Arc;

/// How often a hole that somebody goes on changing is looked at again.
const MOST_LOOKS: usize = 16;

/// The pages that were dropped for a search.
#[derive(Default)]
struct DroppedPages {
    /// Where they were, the last time.
    range: Range<u64>,
    times: usize,
}

/// What follows from a look.
enum Next<'p> {
    Reply(Answer<i64>),
    /// What is stored in pages over this hole comes first.
    Drop(&'p PageDropper, Range<u64>),
}

impl Session {
    /// Answers with the next data or hole of a file.
    pub(super) fn seek(self: &Arc<Self>, inode: INodeNo, seeking: Seeking, reply: ReplyLseek) {
        self.seek_after(DroppedPages::default(), inode, seeking, reply);
    }

    fn seek_after(
        self: &Arc<Self>,
        dropped: DroppedPages,
        inode: INodeNo,
        seeking: Seeking,
        reply: ReplyLseek,
    ) {
        match self.look_for(inode, seeking, &dropped) {
            Next::Reply(Ok(found)) => reply.offset(found),
            Next::Reply(Err(error)) => reply.error(error),
            Next::Drop(pages, range) => {
                let bytes = (range.start, range.end.saturating_sub(range.start));
                let dropped = DroppedPages { range, times: dropped.times.saturating_add(1) };
                let session = Arc::clone(self);
                pages.drop_pages_before(inode, bytes, move || {
                    session.seek_after(dropped, inode, seeking, reply);
                });
            }
        }
    }

    fn look_for(&self, outer: INodeNo, seeking: Seeking, dropped: &DroppedPages) -> Next<'_> {
        let _pass = self.enter();
        let looked = self.inner(outer).and_then(|(_, adapter, inode)| {
            let sought = adapter.seek(inode, seeking)?;
            let is_sure = sought.hole.is_empty()
                || dropped.range.start <= sought.hole.start && sought.hole.end <= dropped.range.end
                || !adapter.has_pages(inode);
            let pages = match &self.pages {
                Some(pages) if !is_sure => pages,
                _ => return Ok(Next::Reply(sought.found)),
            };
            // A suspended pool takes nothing back: then the hole counts as data, which it may be.
            let is_possible = dropped.times < MOST_LOOKS && pages.has_room();
            if is_possible && !adapter.head().live().is_some_and(|live| live.is_suspended()) {
                Ok(Next::Drop(pages, sought.hole))
            } else {
                Ok(Next::Reply(adapter.seek_in_data(inode, seeking)))
            }
        });
        looked.unwrap_or_else(|error| Next::Reply(Err(error)))
    }
}
