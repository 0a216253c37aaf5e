//! Commits of many threads that share their writes.
//!
//! ```text
//! A: commit ── leads: writes, flushes ─────────┐ done
//! B:    commit ── waits ───────────────────────┴─ leads: writes for B, C and D ─┐ done
//! C:       commit ── waits ─────────────────────────────────────────────────────┤ done
//! D:          commit ── waits ──────────────────────────────────────────────────┘ done
//! ```
//! One thread writes at a time. Those who come meanwhile are served together by the next one.

use super::pending::{CommitScope, Scopes};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rzfs_dmu::txg::Stopped;

#[derive(Default, Debug)]
struct State {
    /// What those who wait want.
    scopes: Scopes,
    /// Numbers given to commits so far.
    joined: u64,
    /// Commits with smaller numbers are done.
    done: u64,
    has_leader: bool,
    /// A commit has failed, and so would all others.
    is_stopped: bool,
}

/// Whose turn it is.
#[derive(Default, Debug)]
pub(super) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

/// The right to write; others take over when it is dropped.
struct Lead<'a>(&'a Turns);

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.has_leader = false;
        // What it was to write is not written.
        state.is_stopped |= std::thread::panicking();
        drop(state);
        self.0.changed.notify_all();
    }
}

impl Turns {
    /// Has `write` called, by this or by another thread, for these scopes, and waits until it has
    /// returned.
    pub(super) fn commit(
        &self,
        scopes: &[CommitScope],
        write: impl Fn(&Scopes) -> Result<(), Stopped>,
    ) -> Result<(), Stopped> {
        let mut state = self.state.lock();
        scopes.iter().for_each(|scope| state.scopes.add(*scope));
        let number = state.joined;
        state.joined += 1;
        loop {
            if state.done > number {
                return Ok(());
            }
            if state.is_stopped {
                return Err(Stopped);
            }
            if state.has_leader {
                self.changed.wait(&mut state);
            } else {
                state = self.lead(state, &write);
            }
        }
    }

    /// Writes for all who wait at this moment.
    fn lead<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        write: &impl Fn(&Scopes) -> Result<(), Stopped>,
    ) -> MutexGuard<'a, State> {
        state.has_leader = true;
        let scopes = std::mem::take(&mut state.scopes);
        let served = state.joined;
        drop(state);
        let lead = Lead(self);
        let result = write(&scopes);
        let mut state = self.state.lock();
        match result {
            Ok(()) => state.done = served,
            Err(Stopped) => state.is_stopped = true,
        }
        drop(state);
        drop(lead);
        self.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_format::ObjectId;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc::channel;

    #[test]
    fn who_comes_meanwhile_is_served_together() {
        const OTHERS: u32 = 8;
        let turns = Turns::default();
        let writes = AtomicU32::new(0);
        let (started, has_started) = channel();
        let (go, may_go) = channel();
        let may_go = Mutex::new(may_go);
        let count = |_: &Scopes| {
            writes.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                turns.commit(&[CommitScope::All], |scopes| {
                    started.send(()).unwrap();
                    may_go.lock().recv().unwrap();
                    count(scopes)
                })
            });
            has_started.recv().unwrap();
            for object in 0..OTHERS {
                let file = CommitScope::File(ObjectId(object.into()));
                let turns = &turns;
                scope.spawn(move || turns.commit(&[file], count));
            }
            while turns.state.lock().joined <= OTHERS.into() {
                std::thread::yield_now();
            }
            go.send(()).unwrap();
        });
        assert_eq!(writes.load(Ordering::SeqCst), 2);
        assert_eq!(turns.state.lock().done, u64::from(OTHERS) + 1);
    }

    #[test]
    fn who_is_not_served_is_told() {
        let turns = Turns::default();
        assert_eq!(turns.commit(&[CommitScope::All], |_| Err(Stopped)), Err(Stopped));
        assert_eq!(turns.commit(&[CommitScope::All], |_| Ok(())), Err(Stopped));
    }

    #[test]
    fn nobody_waits_for_a_leader_that_panics() {
        let turns = Turns::default();
        let panicking = std::panic::AssertUnwindSafe(|| {
            turns.commit(&[CommitScope::All], |_| panic!("a test"))
        });
        assert!(std::panic::catch_unwind(panicking).is_err());
        assert_eq!(turns.commit(&[CommitScope::All], |_| Ok(())), Err(Stopped));
    }
}
