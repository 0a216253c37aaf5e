//! Waiting for room for dirty data (spec 06, section 18).

use super::{BeginError, Patience, State, Stopped, SuspendedPolicy, TxgEngine};
use crate::txg::DirtyLimits;
use parking_lot::MutexGuard;

/// Permission to start a transaction.
struct Room<'a> {
    state: MutexGuard<'a, State>,
    /// Whether it had to wait.
    has_waited: bool,
}

impl TxgEngine {
    /// Waits until a transaction that frees space may start: only while the dirty limit is reached.
    pub(crate) fn wait_to_free(&self, patience: Patience) -> Result<(), BeginError> {
        let limits = self.options.limits;
        let has_room = |dirty, suspended| match suspended {
            None => dirty < limits.max,
            Some(SuspendedPolicy::Wait) => dirty < limits.max_while_suspended(),
            Some(SuspendedPolicy::Refuse) => false,
        };
        self.wait_for_room(patience, has_room).map(drop)
    }

    /// Waits according to the delay curve.
    pub(crate) fn throttle(&self, patience: Patience) -> Result<(), BeginError> {
        let limits = self.options.limits;
        let DirtyLimits { max, delay, .. } = limits;
        let has_room = |dirty, suspended| match (suspended, patience) {
            (None, _) => dirty < max,
            (Some(SuspendedPolicy::Wait), Patience::Leave) => dirty < limits.max_while_suspended(),
            (Some(_), _) => false,
        };
        let Room { mut state, has_waited } = self.wait_for_room(patience, has_room)?;
        if state.suspended.is_some() {
            return Ok(());
        }
        let wait = delay.delay(self.dirty_total(), max);
        if wait.is_zero() {
            return Ok(());
        }
        self.counters.count_delay(has_waited);
        // One after the other, so that the delay is the time between two transactions.
        let now = self.clock.now();
        let at = (now + wait).max(state.last_wakeup + wait);
        state.last_wakeup = at;
        drop(state);
        self.clock.sleep(at.saturating_sub(now).min(delay.max));
        Ok(())
    }

    /// Waits until `has_room` accepts the dirty bytes and, while the pool is suspended, the policy
    /// for transactions.
    fn wait_for_room(
        &self,
        patience: Patience,
        has_room: impl Fn(u64, Option<SuspendedPolicy>) -> bool,
    ) -> Result<Room<'_>, BeginError> {
        let mut state = self.state.lock();
        let mut has_waited = false;
        loop {
            let suspended = state.suspended;
            if state.is_over || suspended == Some(SuspendedPolicy::Refuse) {
                return Err(Stopped.into());
            }
            if has_room(self.dirty_total(), suspended) {
                return Ok(Room { state, has_waited });
            }
            if suspended.is_some() && patience == Patience::Leave {
                return Err(BeginError::Suspended);
            }
            if !std::mem::replace(&mut has_waited, true) {
                self.counters.count_wait(suspended.is_some());
            }
            state.wanted = state.wanted.max(state.open);
            self.changed.notify_all();
            self.changed.wait(&mut state);
        }
    }
}
