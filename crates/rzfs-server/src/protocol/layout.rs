//! The vdevs of a pool as they would be.

use serde::{Deserialize, Serialize};

/// The vdevs of a pool as they would be: a tree of names, one after the other.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Layout {
    /// What is above comes before what is below it.
    pub lines: Vec<LayoutLine>,
}

/// A name in a [`Layout`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LayoutLine {
    /// How many there are above it.
    pub depth: u32,
    /// The pool, a class of vdevs, a vdev, or a device.
    pub name: String,
}
