//! Concurrent commits of many threads that share their writes.
//!
//! ```text
//! A: commit ── leads: writes, flushes ─────────┐ done
//! B:    commit ── waits ───────────────────────┴─ leads: writes for B, C and D ─┐ done
//! C:       commit ── waits ─────────────────────────────────────────────────────┤ done
//! D:          commit ── waits ──────────────────────────────────────────────────┘ done
//! ```
//! One thread writes at a time. Commits that arrive meanwhile are served together by the next one.

use super::pending::{CommitScope, Scopes};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rzfs_dmu::txg::Stopped;
use std::sync::{Arc, OnceLock};

#[derive(Default, Debug)]
struct State {
    /// The scopes of the waiting commits.
    scopes: Scopes,
    /// The waiting commits.
    group: Arc<Group>,
    /// Commits so far.
    joined: u64,
    has_leader: bool,
    /// A leader has panicked: its writes are lost.
    is_stopped: bool,
}

/// Commits served together.
#[derive(Default, Debug)]
struct Group {
    result: OnceLock<Result<(), Stopped>>,
}

/// Assigns the turns to write.
#[derive(Default, Debug)]
pub(super) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

/// The right to write; released on drop.
struct Lead<'a>(&'a Turns);

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.has_leader = false;
        // Its writes are not done.
        state.is_stopped |= std::thread::panicking();
        drop(state);
        self.0.changed.notify_all();
    }
}

impl Turns {
    /// Calls `write` for these scopes, in this thread or another, and waits until it has returned.
    /// An error applies to the commits served together; later ones are served anew.
    pub(super) fn commit(
        &self,
        scopes: &[CommitScope],
        write: impl Fn(&Scopes) -> Result<(), Stopped>,
    ) -> Result<(), Stopped> {
        let mut state = self.state.lock();
        scopes.iter().for_each(|scope| state.scopes.add(*scope));
        state.joined += 1;
        let group = Arc::clone(&state.group);
        loop {
            if let Some(result) = group.result.get() {
                return *result;
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

    /// Writes for all current waiters.
    fn lead<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        write: &impl Fn(&Scopes) -> Result<(), Stopped>,
    ) -> MutexGuard<'a, State> {
        state.has_leader = true;
        let scopes = std::mem::take(&mut state.scopes);
        let group = std::mem::take(&mut state.group);
        drop(state);
        let lead = Lead(self);
        // This group's turn is exclusive.
        let _ = group.result.set(write(&scopes));
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
    }

    #[test]
    fn who_is_not_served_is_told_and_the_next_one_is_served_again() {
        let turns = Turns::default();
        assert_eq!(turns.commit(&[CommitScope::All], |_| Err(Stopped)), Err(Stopped));
        assert_eq!(turns.commit(&[CommitScope::All], |_| Ok(())), Ok(()));
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
