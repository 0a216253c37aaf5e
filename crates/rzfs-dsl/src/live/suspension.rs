//! Waiting for devices that fail: a pool that cannot write, or read what it is about to change, is
//! suspended until somebody has mended it, and then goes on where it was (property `failmode`,
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

/// Whether a pool is written, and why not.
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
    /// The pool is being made or opened: nobody has it yet who could mend it.
    Unattended,
    Running,
    Suspended,
    /// Nobody will mend the pool any more.
    GivenUp,
}

impl Suspension {
    /// Of a pool that is being made or opened, and does not wait for devices before
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

    /// Somebody has the pool.
    pub(crate) fn begin(&self) {
        let mut state = self.state.lock();
        if *state == State::Unattended {
            *state = State::Running;
        }
    }

    /// What becomes of writers while the pool is suspended.
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

    /// Suspends the pool until what failed is to be tried again.
    ///
    /// # Errors
    /// The error itself, when the pool is let go of instead, or nobody has it yet.
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

    /// Lets a suspended pool try again what failed. Returns whether it was suspended.
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

    /// Nothing is written any more, for this reason unless there is one already, and everybody who
    /// waits for that is told.
    pub(crate) fn fail(&self, error: LiveError) {
        tracing::error!(%error, "the pool is suspended");
        self.failure.lock().end(error);
        self.engine.fail();
    }

    /// Why the pool is not written, if it is not.
    pub(crate) fn reason(&self) -> Option<Arc<LiveError>> {
        self.failure.lock().reason()
    }
}

impl DeviceWaiter for Suspension {
    fn wait(&self, error: &BlockError) -> bool {
        self.suspend(error.clone().into()).is_ok()
    }
}
