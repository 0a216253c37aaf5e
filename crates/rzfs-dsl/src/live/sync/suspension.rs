//! Waiting for devices that fail: a pool that cannot write, or read what it is about to change, is
//! suspended until somebody has mended it, and then goes on where it was (property `failmode`,
//! `zpool clear`).
//!
//! ```text
//! founding ── the pool is made ──> running
//! running ── I/O of a txg fails, also when tried again ──> suspended ── clear ──> tried again
//!                                                               └── pool is let go of ──> given up
//! ```

use crate::live::LiveError;
use crate::live::administration::ChangeError;
use crate::live::pool::{Inner, LivePool};
use crate::pool::FailMode;
use parking_lot::{Condvar, Mutex};
use rzfs_blockdev::BlockDevice;
use rzfs_dmu::txg::WhileSuspended;
use rzfs_dmu::{BlockError, DeviceWaiter};
use rzfs_format::Guid;
use rzfs_vdev::LeafDevices;
use std::collections::HashMap;
use std::sync::Arc;

/// Whether the thread that syncs may go on.
#[derive(Debug)]
pub(crate) struct Suspension {
    state: Mutex<State>,
    changed: Condvar,
    fail_mode: Mutex<FailMode>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The pool is being made: nobody has it yet who could mend it.
    Founding,
    Running,
    Suspended,
    /// Nobody will mend the pool any more.
    GivenUp,
}

impl Suspension {
    /// Of a pool that waits when devices fail.
    pub(crate) fn new(fail_mode: FailMode) -> Self {
        Self::of_state(State::Running, fail_mode)
    }

    /// Of a pool that is being made, and does not wait before [`Suspension::begin`].
    pub(crate) fn of_new_pool(fail_mode: FailMode) -> Self {
        Self::of_state(State::Founding, fail_mode)
    }

    fn of_state(state: State, fail_mode: FailMode) -> Self {
        let (state, fail_mode) = (Mutex::new(state), Mutex::new(fail_mode));
        Self { state, changed: Condvar::new(), fail_mode }
    }

    /// The pool is made.
    pub(crate) fn begin(&self) {
        let mut state = self.state.lock();
        if *state == State::Founding {
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
}

impl DeviceWaiter for Inner {
    fn wait(&self, error: &BlockError) -> bool {
        self.suspend(error.clone().into()).is_ok()
    }
}

impl Inner {
    /// Suspends the pool until what failed is to be tried again.
    ///
    /// # Errors
    /// The error itself, when the pool is let go of instead, or nobody has it yet.
    pub(crate) fn suspend(&self, error: LiveError) -> Result<(), LiveError> {
        let mut state = self.suspension.state.lock();
        if matches!(*state, State::Founding | State::GivenUp) {
            return Err(error);
        }
        tracing::error!(%error, pool = self.name, "the pool is suspended");
        let meanwhile = match self.suspension.fail_mode() {
            FailMode::Wait => WhileSuspended::Wait,
            FailMode::Continue => WhileSuspended::Refuse,
            FailMode::Panic => {
                self.environment.halt(&format!("pool '{}': {error}", self.name));
                return Err(error);
            }
        };
        let reason = Arc::new(error);
        self.failure.lock().wait(Arc::clone(&reason));
        *state = State::Suspended;
        self.engine.suspend(meanwhile);
        while *state == State::Suspended {
            self.suspension.changed.wait(&mut state);
        }
        if *state == State::GivenUp {
            return Err(LiveError::Suspended { reason: Some(reason) });
        }
        tracing::info!(pool = self.name, "what failed is tried again");
        Ok(())
    }

    /// Lets a suspended pool try again what failed. Returns whether it was suspended.
    fn resume(&self) -> bool {
        let mut state = self.suspension.state.lock();
        let was_suspended = *state == State::Suspended;
        if was_suspended {
            self.failure.lock().resume();
            self.engine.resume();
            *state = State::Running;
            self.suspension.changed.notify_all();
        }
        was_suspended
    }
}

impl LivePool {
    /// Whether the pool waits for its devices.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.engine().is_suspended()
    }

    /// What becomes of writers while the pool cannot write (`failmode`).
    #[must_use]
    pub fn fail_mode(&self) -> FailMode {
        self.inner().suspension.fail_mode()
    }

    /// Forgets the errors of a vdev and of those below it, or of all; uses devices again that
    /// answer, and lets a suspended pool go on.
    ///
    /// # Errors
    /// [`ChangeError`]: there is no such vdev, or the pool is suspended again, or for good.
    pub fn clear(&self, vdev: Option<Guid>) -> Result<(), ChangeError> {
        self.clear_with(vdev, &HashMap::<Guid, Arc<dyn BlockDevice>>::new())
    }

    /// As [`LivePool::clear`]; devices that were missing, or went away and have come back, are
    /// opened by `devices`.
    ///
    /// # Errors
    /// As [`LivePool::clear`].
    pub fn clear_with(
        &self,
        vdev: Option<Guid>,
        devices: &dyn LeafDevices,
    ) -> Result<(), ChangeError> {
        let trust = self.vdevs().trust_in_logs();
        if !self.vdevs().clear(vdev, devices) {
            return Err(ChangeError::NoSuchDevice);
        }
        self.inner().allocator.retry_maps();
        // What was acknowledged is not to depend on logs that may have lost it.
        let lost_trust = self.vdevs().trust_in_logs() != trust;
        if self.inner().resume() || self.failure().is_some() || lost_trust {
            self.sync().map_err(|_| ChangeError::Suspended { reason: self.failure() })?;
        }
        self.inner().resume_sweeps();
        Ok(())
    }

    /// Ends the wait for devices: whoever waits gets an error, and nothing is written any more. A
    /// pool that is not suspended does not wait later either.
    pub fn give_up_waiting(&self) {
        self.inner().suspension.give_up();
    }
}
