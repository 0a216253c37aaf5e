//! ZAPs kept open between uses.

use rzfs_format::ObjectId;
use rzfs_zap::Zap;
use std::collections::HashMap;

/// The open ZAPs of an object set. Those unused by a txg are closed at its end, so that only
/// frequently changed ones stay in memory.
#[derive(Debug)]
pub(crate) struct OpenZaps<B> {
    zaps: HashMap<ObjectId, OpenZap<B>>,
}

#[derive(Debug)]
struct OpenZap<B> {
    zap: Zap<B>,
    /// Whether it was used since idle ones were last closed.
    is_used: bool,
}

impl<B> Default for OpenZaps<B> {
    fn default() -> Self {
        Self { zaps: HashMap::new() }
    }
}

impl<B> OpenZaps<B> {
    /// Takes an open ZAP out.
    pub(crate) fn take(&mut self, id: ObjectId) -> Option<Zap<B>> {
        self.zaps.remove(&id).map(|open| open.zap)
    }

    /// Puts a used ZAP back.
    pub(crate) fn keep(&mut self, id: ObjectId, zap: Zap<B>) {
        self.zaps.insert(id, OpenZap { zap, is_used: true });
    }

    /// Closes those not used since the last call.
    pub(crate) fn close_idle(&mut self) {
        self.zaps.retain(|_, open| std::mem::take(&mut open.is_used));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_zap::{MemoryBlocks, ZapBuilder};

    #[test]
    fn what_a_txg_does_not_use_is_closed_at_its_end() {
        let zap = || Zap::open(ZapBuilder::new(7).build().unwrap()).unwrap();
        let mut open = OpenZaps::<MemoryBlocks>::default();
        let (busy, idle) = (ObjectId(1), ObjectId(2));
        open.keep(busy, zap());
        open.keep(idle, zap());
        open.close_idle();
        let used = open.take(busy).unwrap();
        open.keep(busy, used);
        open.close_idle();
        assert!(open.take(idle).is_none());
        assert!(open.take(busy).is_some());
    }
}
