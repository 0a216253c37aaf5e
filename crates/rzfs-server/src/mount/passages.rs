//! Streams of snapshots that pass between a pool and its peers.

use super::locked::locked;
use crate::daemon::Line;
use std::sync::{Arc, Mutex};

/// Streams that pass. A pool that has some is in use.
#[derive(Clone, Debug, Default)]
pub(super) struct Passages(Arc<Mutex<Vec<Line>>>);

/// A stream that passes, for as long as somebody has this.
#[derive(Debug)]
pub(super) struct Passage {
    line: Line,
    all: Passages,
}

impl Passages {
    /// A stream begins.
    pub(super) fn begin(&self, line: &Line) -> Passage {
        locked(&self.0).push(line.clone());
        Passage { line: line.clone(), all: self.clone() }
    }

    /// Whether none passes.
    pub(super) fn is_empty(&self) -> bool {
        locked(&self.0).is_empty()
    }

    /// Ends all of them.
    pub(super) fn break_off(&self) {
        locked(&self.0).iter().for_each(Line::break_off);
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        locked(&self.all.0).retain(|line| !line.is(&self.line));
    }
}
