//! The queue of removed files that are freed piece by piece, and its thread.
//!
//! The thread exists while files wait. What fails for a reason that may pass, as devices that are
//! away, is tried again now and then.

use crate::sync::{Arc, Condvar, Mutex};
use rzfs_clock::{Clock, Waited};
use rzfs_dmu::txg::TxgEngine;
use rzfs_format::{ObjectId, Txg};
use std::collections::VecDeque;
use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

/// How long files rest that could not be freed: at first, and at most.
const RESTS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(256)];

/// What is left to be done for a removed file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rest {
    /// Nothing, or nothing that can be done before the next mount.
    Nothing,
    /// Another piece, when a group is on disk.
    After(Txg),
    /// What could not be done now, but perhaps can be later.
    Failed,
}

/// Frees a piece of a file and says what is left; `None` when its file system is closed.
type FreePiece = Box<dyn Fn(ObjectId) -> Option<Rest> + Send + Sync>;

/// The removed files that wait for their next piece to be freed, and the thread that does it.
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
    /// How long these rest, which is longer every time.
    rest: Duration,
    /// Whether there is a thread.
    is_running: bool,
    /// The thread has nothing to do before those that failed have rested.
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
    /// Says how files are freed.
    pub(super) fn attach(
        &self,
        free_piece: impl Fn(ObjectId) -> Option<Rest> + Send + Sync + 'static,
    ) {
        // It is attached once.
        let _ = self.free_piece.set(Box::new(free_piece));
    }

    /// Whether space will be free without anybody doing anything.
    pub(super) fn is_busy(&self) -> bool {
        let state = self.state.lock();
        state.is_running && !state.is_resting
    }

    /// Keeps a file of which something is left, with a thread that goes on with it.
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

    /// Has a thread go on with the files that wait, unless there is one.
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

    /// Goes on with files until there are none. The file system is held only while it is used, so
    /// that it can be closed.
    fn run(&self, engine: &TxgEngine) {
        while let Some(until) = self.next(engine.clock()) {
            match engine.wait_synced_in_background(until) {
                Ok(()) => self.take_turn(),
                // A pool that syncs nothing frees nothing either, until it is imported again.
                Err(_) => self.state.lock().clear(),
            }
        }
    }

    /// What the next file waits for. The thread ends when there is none.
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

    /// Leaves what waits where it is; when this is back, nothing is freed until
    /// [`Reclaimer::resume`].
    pub(super) fn pause(&self) {
        self.state.lock().is_paused = true;
        self.changed.notify_all();
        drop(self.turn.lock());
    }

    /// Whether what waits is left where it is.
    pub(super) fn is_paused(&self) -> bool {
        self.state.lock().is_paused
    }

    /// Goes on with what waits.
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
