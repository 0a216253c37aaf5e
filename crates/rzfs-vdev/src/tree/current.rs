//! The current tree of a pool.

use super::VdevTree;
use parking_lot::RwLock;
use std::sync::Arc;

/// The current tree of a pool.
///
/// Users take the tree once for each operation. A replaced tree is still good for all blocks that
/// existed when it was taken: nothing is allocated on new vdevs before their tree is here.
#[derive(Debug)]
pub struct CurrentTree(RwLock<Arc<VdevTree>>);

impl CurrentTree {
    /// The initial tree.
    #[must_use]
    pub fn new(tree: Arc<VdevTree>) -> Arc<Self> {
        Arc::new(Self(RwLock::new(tree)))
    }

    /// The current tree.
    #[must_use]
    pub fn get(&self) -> Arc<VdevTree> {
        Arc::clone(&self.0.read())
    }

    /// Replaces the tree by one grown from it.
    pub fn replace(&self, tree: Arc<VdevTree>) {
        *self.0.write() = tree;
    }
}
