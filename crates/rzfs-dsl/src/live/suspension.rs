//! Waiting for failing devices: a pool that cannot write, or read what it is about to change, is
//! suspended until it is repaired, and then continues where it was (property `failmode`,
//! `zpool clear`).
//!
//! ```text
//! unattended ── somebody has the pool ──> running
//! running ── I/O of a txg fails, also when tried again ──> suspended ── clear ──> tried again
//!                                                               └── pool is let go of ──> given up
//! ```

mod failure;

use super::LiveError;
use super::environment::Environment;
use crate::pool::FailMode;
use failure::Failure;
use parking_lot::{Condvar, Mutex};
use rzfs_dmu::txg::{SuspendedPolicy, TxgEngine};
use rzfs_dmu::{BlockError, DeviceWaiter};
use std::sync::Arc;

/// Whether a pool can be written, and why not.
#[derive(Debug)]
pub(crate) struct Suspension {
    pool: String,
    environment: Arc<dyn Environment>,
    engine: Arc<TxgEngine>,
    /// Taken before the locks of `failure` and of the engine.
    state: Mutex<State>,
    changed: Condvar,
    fail_mode: Mutex<FailMode>,
    failure: Mutex<Failure>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The pool is being created or opened: nothing could repair it yet.
    Unattended,
    Running,
    Suspended,
    /// The pool will not be repaired any more.
    GivenUp,
}

impl Suspension {
    /// For a pool that is being created or opened, and does not wait for devices before
    /// [`Suspension::begin`].
    pub(crate) fn new(
        pool: &str,
        environment: &Arc<dyn Environment>,
        engine: &Arc<TxgEngine>,
        fail_mode: FailMode,
    ) -> Self {
        Self {
            pool: pool.to_owned(),
            environment: Arc::clone(environment),
            engine: Arc::clone(engine),
            state: Mutex::new(State::Unattended),
            changed: Condvar::new(),
            fail_mode: Mutex::new(fail_mode),
            failure: Mutex::default(),
        }
    }

    /// Marks the pool as attended.
    pub(crate) fn begin(&self) {
        let mut state = self.state.lock();
        if *state == State::Unattended {
            *state = State::Running;
        }
    }

    /// Sets what happens to writers while the pool is suspended.
    pub(crate) fn set_fail_mode(&self, fail_mode: FailMode) {
        *self.fail_mode.lock() = fail_mode;
    }

    pub(crate) fn fail_mode(&self) -> FailMode {
        *self.fail_mode.lock()
    }

    /// Ends all waiting, now and later.
    pub(crate) fn give_up(&self) {
        *self.state.lock() = State::GivenUp;
        self.changed.notify_all();
    }

    /// Suspends the pool until the failed operation is to be retried.
    ///
    /// # Errors
    /// The error itself, when the pool is released instead, or not attended yet.
    pub(crate) fn suspend(&self, error: LiveError) -> Result<(), LiveError> {
        let mut state = self.state.lock();
        if matches!(*state, State::Unattended | State::GivenUp) {
            return Err(error);
        }
        tracing::error!(%error, pool = self.pool, "the pool is suspended");
        let meanwhile = match self.fail_mode() {
            FailMode::Wait => SuspendedPolicy::Wait,
            FailMode::Continue => SuspendedPolicy::Refuse,
            FailMode::Panic => {
                self.environment.halt(&format!("pool '{}': {error}", self.pool));
                return Err(error);
            }
        };
        let reason = Arc::new(error);
        self.failure.lock().wait(Arc::clone(&reason));
        *state = State::Suspended;
        self.engine.suspend(meanwhile);
        while *state == State::Suspended {
            self.changed.wait(&mut state);
        }
        if *state == State::GivenUp {
            return Err(LiveError::Suspended { reason: Some(reason) });
        }
        tracing::info!(pool = self.pool, "what failed is tried again");
        Ok(())
    }

    /// Retries the failed operation of a suspended pool. Returns whether it was suspended.
    pub(crate) fn resume(&self) -> bool {
        let mut state = self.state.lock();
        let was_suspended = *state == State::Suspended;
        if was_suspended {
            self.failure.lock().resume();
            self.engine.resume();
            *state = State::Running;
            self.changed.notify_all();
        }
        was_suspended
    }

    /// Stops writing for good, for this reason unless there already is one, and notifies all
    /// waiters.
    pub(crate) fn fail(&self, error: LiveError) {
        tracing::error!(%error, "the pool is suspended");
        self.failure.lock().end(error);
        self.engine.fail();
    }

    /// Why the pool is not written, if so.
    pub(crate) fn reason(&self) -> Option<Arc<LiveError>> {
        self.failure.lock().reason()
    }
}

impl DeviceWaiter for Suspension {
    fn wait(&self, error: &BlockError) -> bool {
        self.suspend(error.clone().into()).is_ok()
    }
}
