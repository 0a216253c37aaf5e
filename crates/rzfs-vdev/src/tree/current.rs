//! The tree of a pool that changes: whichever it has now.

use super::VdevTree;
use parking_lot::RwLock;
use std::sync::Arc;

/// The present tree of a pool.
///
/// Who works with vdevs takes the tree once for each piece of work. A tree that was replaced
/// meanwhile is good for all blocks that there were when it was taken: nothing is put on new
/// vdevs before the tree that has them is here.
#[derive(Debug)]
pub struct CurrentTree(RwLock<Arc<VdevTree>>);

impl CurrentTree {
    /// The tree to begin with.
    #[must_use]
    pub fn new(tree: Arc<VdevTree>) -> Arc<Self> {
        Arc::new(Self(RwLock::new(tree)))
    }

    /// The tree as it is now.
    #[must_use]
    pub fn get(&self) -> Arc<VdevTree> {
        Arc::clone(&self.0.read())
    }

    /// Replaces the tree by one that has grown out of it.
    pub fn replace(&self, tree: Arc<VdevTree>) {
        *self.0.write() = tree;
    }
}
