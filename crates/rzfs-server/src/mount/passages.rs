//! Streams of snapshots between a pool and its peers.

use super::locked::locked;
use crate::daemon::Line;
use std::sync::{Arc, Mutex};

/// The passing streams. A pool with any is in use.
#[derive(Clone, Debug, Default)]
pub(super) struct Passages(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    passing: Vec<Line>,
    /// How many ends of the pool are under way or waiting.
    ends: usize,
}

/// A passing stream, as long as this is held.
#[derive(Debug)]
pub(super) struct Passage {
    line: Line,
    all: Passages,
}

/// No stream begins while this is held.
#[derive(Debug)]
pub(super) struct Closed(Passages);

impl Passages {
    /// Registers a stream; `None` if the pool may be about to close.
    pub(super) fn begin(&self, line: &Line) -> Option<Passage> {
        let mut state = locked(&self.0);
        if state.ends > 0 {
            return None;
        }
        state.passing.push(line.clone());
        Some(Passage { line: line.clone(), all: self.clone() })
    }

    /// Blocks new streams; `None` if some are passing, which go on.
    pub(super) fn close(&self) -> Option<Closed> {
        let mut state = locked(&self.0);
        if !state.passing.is_empty() {
            return None;
        }
        state.ends += 1;
        Some(Closed(self.clone()))
    }

    /// Blocks new streams, and ends the passing ones.
    pub(super) fn break_off(&self) -> Closed {
        let mut state = locked(&self.0);
        state.ends += 1;
        state.passing.iter().for_each(Line::break_off);
        Closed(self.clone())
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        locked(&self.all.0).passing.retain(|line| !line.is(&self.line));
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        locked(&self.0.0).ends -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn nothing_begins_while_the_pool_may_go() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (line, all) = (Line::new(ours), Passages::default());
        let passing = all.begin(&line).unwrap();
        assert!(all.close().is_none(), "one passes");
        drop(passing);
        let (one, another) = (all.close().unwrap(), all.close().unwrap());
        drop(one);
        assert!(all.begin(&line).is_none());
        drop(another);
        let passing = all.begin(&line).unwrap();
        let forced = all.break_off();
        assert_eq!(theirs.read(&mut [0; 8]).unwrap(), 0, "it is broken off");
        assert!(all.begin(&line).is_none());
        drop((passing, forced));
        assert!(all.close().is_some());
    }
}
