//! The projected vdevs of a pool.

use serde::{Deserialize, Serialize};

/// The projected vdevs of a pool: a tree of names as a list.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Layout {
    /// Parents come before children.
    pub lines: Vec<LayoutLine>,
}

/// A name in a [`Layout`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LayoutLine {
    /// Its number of ancestors.
    pub depth: u32,
    /// The pool, a class of vdevs, a vdev, or a device.
    pub name: String,
}
