//! Freeing much over many transaction groups (spec 05, section 3.6).
//!
//! A group remembers every block that dies in it until it is on disk, so all files of a pool
//! together give up a bounded number of blocks in each
//! ([`TxgOptions::max_frees`](rzfs_dmu::txg::TxgOptions)). What is more goes piece by piece, from
//! the end on:
//!
//! ```text
//! removal     a piece of the file, which is in the unlinked set ──> ... ──> its number
//! truncation  to a length in between ──> ... ──> to the one that is wanted
//! hole        the end of it ──> ... ──> its beginning
//! ```
//! Whoever shortens a file or makes a hole waits; every state in between is one that a shorter
//! change would have left, so nobody has to know of it after a crash. Removed files wait for a
//! thread instead, and for the next mount if there is one before they are gone. What fails for a
//! reason that may pass, as devices that are away, is tried again now and then.

use super::change::Freeing;
use super::file_system::LiveFileSystem;
use crate::error::ZplError;
use crate::sync::{Arc, Condvar, Mutex};
use rzfs_dmu::live::{Extent, LiveObject};
use rzfs_dmu::txg::TxgEngine;
use rzfs_format::{BlockId, ObjectId, Txg};
use std::collections::VecDeque;
use std::sync::{OnceLock, Weak};
use std::time::Duration;

/// How long files rest that could not be freed: at first, and at most.
const RESTS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(256)];

/// How far something has come that may take several groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress<T, R = ()> {
    /// It is done.
    Done(T),
    /// There is more to do when a group is on disk.
    Paused { until: Txg, rest: R },
}

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

/// The removed files that wait for their next piece to be freed, and the thread that does it.
#[derive(Debug, Default)]
pub(super) struct Reclaimer {
    files: OnceLock<Weak<LiveFileSystem>>,
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
    /// Says whose files they are.
    pub(super) fn attach(&self, files: &Arc<LiveFileSystem>) {
        // It is attached once.
        let _ = self.files.set(Arc::downgrade(files));
    }

    /// Whether space will be free without anybody doing anything.
    pub(super) fn is_busy(&self) -> bool {
        let state = self.state.lock();
        state.is_running && !state.is_resting
    }

    /// Keeps a file of which something is left, with a thread that goes on with it.
    fn add(self: &Arc<Self>, object: ObjectId, rest: Rest, engine: &Arc<TxgEngine>) {
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
        while let Some(until) = self.next() {
            match engine.wait_synced_in_background(until) {
                Ok(()) => self.take_turn(),
                // A pool that syncs nothing frees nothing either, until it is imported again.
                Err(_) => self.state.lock().clear(),
            }
        }
    }

    /// What the next file waits for. The thread ends when there is none.
    fn next(&self) -> Option<Txg> {
        let mut state = self.state.lock();
        while !state.is_paused && !state.is_idle() {
            if let Some((_, until)) = state.waiting.front() {
                return Some(*until);
            }
            let [shortest, longest] = RESTS;
            let rest = state.rest.clamp(shortest, longest);
            state.is_resting = true;
            let is_over = self.changed.wait_for(&mut state, rest).timed_out();
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
        let files = self.files.get().and_then(Weak::upgrade);
        let mut state = self.state.lock();
        if state.is_paused {
            return;
        }
        let (Some(files), Some((object, _))) = (files, state.waiting.pop_front()) else {
            return state.clear();
        };
        drop(state);
        let rest = files.reclaim_or_leave_rest(object);
        let mut state = self.state.lock();
        match rest {
            Rest::Failed => return state.failed.push(object),
            Rest::After(until) => state.waiting.push_front((object, until)),
            Rest::Nothing => {}
        }
        state.rest = Duration::ZERO;
    }
}

impl LiveFileSystem {
    /// Goes on with a removed file in the background.
    pub(super) fn reclaim_later(&self, object: ObjectId, rest: Rest) {
        self.reclaimer.add(object, rest, &self.engine);
    }

    /// Leaves what is not reclaimed yet in the unlinked set: the file system is being closed.
    /// When this is back, nobody uses it for that until it [goes on](Self::resume_reclaiming).
    pub fn pause_reclaiming(&self) {
        self.reclaimer.state.lock().is_paused = true;
        self.reclaimer.changed.notify_all();
        drop(self.reclaimer.turn.lock());
    }

    /// Goes on with what is not reclaimed yet: the file system is not being closed after all.
    pub fn resume_reclaiming(&self) {
        let mut state = self.reclaimer.state.lock();
        state.is_paused = false;
        self.reclaimer.start(&mut state, &self.engine);
    }

    /// Frees the ends of removed files, `most` blocks together; says in which group, or that they
    /// have none on disk.
    pub(super) fn shorten(&self, files: &[LiveObject], most: u64) -> Result<Option<Txg>, ZplError> {
        let mut left = most;
        let (mut shortened, mut firsts, mut edges) = (Vec::new(), Vec::new(), 0_u64);
        for file in files.iter().filter(|file| file.blocks_on_disk() > 0) {
            if left == 0 {
                break;
            }
            let piece = file.last_piece(BlockId(0)..BlockId(u64::MAX), left)?;
            file.check_blocks(piece.first..BlockId(u64::MAX))?;
            left = left.saturating_sub(piece.blocks);
            edges = edges.saturating_add(self.edge_bytes(file)?);
            shortened.push(file);
            firsts.push(piece.first);
        }
        if shortened.is_empty() {
            return Ok(None);
        }
        let tx = match self.begin_freeing(&shortened, edges, most - left)? {
            Freeing::Begun(tx) => tx,
            Freeing::After(txg) => return Ok(Some(txg)),
        };
        for (file, first) in shortened.into_iter().zip(firsts) {
            let block_size = u64::from(file.data_block_size()?);
            file.free(&tx, first.0.saturating_mul(block_size), Extent::ToEnd)?;
        }
        Ok(Some(tx.txg()))
    }
}
