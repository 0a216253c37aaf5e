//! The queue of removed files being freed piece by piece, and its thread.
//!
//! The thread exists while files wait. Temporary failures, such as missing devices, are retried
//! from time to time.

use crate::sync::{Arc, Condvar, Mutex};
use rzfs_clock::{Clock, Waited};
use rzfs_dmu::txg::TxgEngine;
use rzfs_format::{ObjectId, Txg};
use std::collections::VecDeque;
use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

/// Initial and maximum retry interval of files that could not be freed.
const RESTS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(256)];

/// The remaining work for a removed file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rest {
    /// None, or none before the next mount.
    Nothing,
    /// Another piece, when a group is on disk.
    After(Txg),
    /// A piece that failed, but may succeed later.
    Failed,
}

/// Frees a piece of a file and returns the remaining work; `None` when its file system is closed.
type FreePiece = Box<dyn Fn(ObjectId) -> Option<Rest> + Send + Sync>;

/// The removed files waiting to be freed, and their thread.
#[derive(Default)]
pub(super) struct Reclaimer {
    free_piece: OnceLock<FreePiece>,
    state: Mutex<State>,
    changed: Condvar,
    /// Held while the thread uses the file system.
    turn: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// Files, with the groups that have to be on disk first.
    waiting: VecDeque<(ObjectId, Txg)>,
    /// Those that could not be freed.
    failed: Vec<ObjectId>,
    /// The retry interval, which grows with every failure.
    rest: Duration,
    /// Whether there is a thread.
    is_running: bool,
    /// The thread is idle until failed files are due for a retry.
    is_resting: bool,
    /// Files wait, without a thread.
    is_paused: bool,
}

impl State {
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.failed.is_empty()
    }

    /// Leaves everything to the next mount.
    fn clear(&mut self) {
        self.waiting.clear();
        self.failed.clear();
    }
}

impl Reclaimer {
    /// Sets how files are freed.
    pub(super) fn attach(
        &self,
        free_piece: impl Fn(ObjectId) -> Option<Rest> + Send + Sync + 'static,
    ) {
        // It is attached once.
        let _ = self.free_piece.set(Box::new(free_piece));
    }

    /// Whether space will become free by itself.
    pub(super) fn is_busy(&self) -> bool {
        let state = self.state.lock();
        state.is_running && !state.is_resting
    }

    /// Queues a file with remaining work, with a thread to process it.
    pub(super) fn add(self: &Arc<Self>, object: ObjectId, rest: Rest, engine: &Arc<TxgEngine>) {
        let mut state = self.state.lock();
        match rest {
            Rest::Nothing => return,
            Rest::After(until) => state.waiting.push_back((object, until)),
            Rest::Failed => state.failed.push(object),
        }
        self.changed.notify_all();
        self.start(&mut state, engine);
    }

    /// Starts a thread for the waiting files, unless there is one.
    fn start(self: &Arc<Self>, state: &mut State, engine: &Arc<TxgEngine>) {
        if state.is_paused || state.is_running || state.is_idle() {
            return;
        }
        let (this, engine) = (Arc::clone(self), Arc::clone(engine));
        let work = move || this.run(&engine);
        match std::thread::Builder::new().name("rzfs-reclaim".to_owned()).spawn(work) {
            Ok(_) => state.is_running = true,
            Err(error) => {
                tracing::warn!(%error, "removed files keep their space until the next mount");
                state.clear();
            }
        }
    }

    /// Processes files until there are none. The file system is only held while it is used, so that
    /// it can be closed.
    fn run(&self, engine: &TxgEngine) {
        while let Some(until) = self.next(engine.clock()) {
            match engine.wait_synced_in_background(until) {
                Ok(()) => self.take_turn(),
                // A pool that no longer syncs frees nothing either, until it is imported again.
                Err(_) => self.state.lock().clear(),
            }
        }
    }

    /// The group the next file waits for. The thread ends when there is none.
    fn next(&self, clock: &Clock) -> Option<Txg> {
        let mut state = self.state.lock();
        while !state.is_paused && !state.is_idle() {
            if let Some((_, until)) = state.waiting.front() {
                return Some(*until);
            }
            let [shortest, longest] = RESTS;
            let rest = state.rest.clamp(shortest, longest);
            state.is_resting = true;
            let is_over = clock.wait_for(&self.changed, &mut state, rest) == Waited::Elapsed;
            state.is_resting = false;
            if is_over {
                state.rest = rest.saturating_mul(2);
                let failed = std::mem::take(&mut state.failed);
                state.waiting.extend(failed.into_iter().map(|object| (object, Txg(0))));
            }
        }
        state.is_running = false;
        None
    }

    /// Frees a piece of the next file.
    fn take_turn(&self) {
        let _turn = self.turn.lock();
        let mut state = self.state.lock();
        if state.is_paused {
            return;
        }
        let Some((object, _)) = state.waiting.pop_front() else { return state.clear() };
        drop(state);
        let rest = self.free_piece.get().and_then(|free_piece| free_piece(object));
        let mut state = self.state.lock();
        match rest {
            None => return state.clear(),
            Some(Rest::Failed) => return state.failed.push(object),
            Some(Rest::After(until)) => state.waiting.push_front((object, until)),
            Some(Rest::Nothing) => {}
        }
        state.rest = Duration::ZERO;
    }

    /// Pauses freeing: after this returns, nothing is freed until [`Reclaimer::resume`].
    pub(super) fn pause(&self) {
        self.state.lock().is_paused = true;
        self.changed.notify_all();
        drop(self.turn.lock());
    }

    /// Whether freeing is paused.
    pub(super) fn is_paused(&self) -> bool {
        self.state.lock().is_paused
    }

    /// Resumes freeing.
    pub(super) fn resume(self: &Arc<Self>, engine: &Arc<TxgEngine>) {
        let mut state = self.state.lock();
        state.is_paused = false;
        self.start(&mut state, engine);
    }
}

impl fmt::Debug for Reclaimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reclaimer").field("state", &self.state).finish_non_exhaustive()
    }
}
