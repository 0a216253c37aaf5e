//! Waiting until a group is on disk, and while the pool is suspended.

use super::{BeginError, Patience, Stopped, SuspendedPolicy, TxgEngine};
use rzfs_format::Txg;

impl TxgEngine {
    /// Says that the group that syncs cannot go on before [`TxgEngine::resume`].
    pub fn suspend(&self, meanwhile: SuspendedPolicy) {
        self.state.lock().suspended = Some(meanwhile);
        self.changed.notify_all();
    }

    /// Says that the group that syncs goes on.
    pub fn resume(&self) {
        self.state.lock().suspended = None;
        self.changed.notify_all();
    }

    /// Whether the group that syncs waits for its devices.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.state.lock().suspended.is_some()
    }

    /// Whether the pool is suspended and lets transactions wait until it goes on.
    #[must_use]
    pub fn lets_wait(&self) -> bool {
        let state = self.state.lock();
        state.suspended == Some(SuspendedPolicy::Wait) && !state.is_over
    }

    /// Waits until a group is on disk, also while the pool is suspended if transactions wait then.
    ///
    /// # Errors
    /// [`Stopped`]: it will never be, or who asks is not to wait while the pool is suspended.
    pub fn wait_synced(&self, txg: Txg) -> Result<(), Stopped> {
        self.wait(txg, |suspended| (suspended == SuspendedPolicy::Refuse).then_some(Stopped))
    }

    /// Waits until a group is on disk, also while the pool is suspended, whatever becomes of others
    /// meanwhile: for work in the background, which nobody waits for.
    ///
    /// # Errors
    /// [`Stopped`]: it will never be.
    pub fn wait_synced_in_background(&self, txg: Txg) -> Result<(), Stopped> {
        self.wait(txg, |_| None)
    }

    /// As [`TxgEngine::wait_synced`], for a transaction that begins afterwards.
    ///
    /// # Errors
    /// [`BeginError`].
    pub fn wait_synced_with(&self, txg: Txg, patience: Patience) -> Result<(), BeginError> {
        self.wait(txg, |suspended| match (suspended, patience) {
            (SuspendedPolicy::Refuse, _) => Some(Stopped.into()),
            (SuspendedPolicy::Wait, Patience::Leave) => Some(BeginError::Suspended),
            (SuspendedPolicy::Wait, Patience::Wait) => None,
        })
    }

    /// Waits until a group is on disk, but not while the pool is suspended: for administrators, who
    /// have to be told.
    ///
    /// # Errors
    /// [`Stopped`]: it will never be, or the pool is suspended.
    pub fn wait_synced_unless_suspended(&self, txg: Txg) -> Result<(), Stopped> {
        self.wait(txg, |_| Some(Stopped))
    }

    fn wait<E: From<Stopped>>(
        &self,
        txg: Txg,
        give_up: impl Fn(SuspendedPolicy) -> Option<E>,
    ) -> Result<(), E> {
        let mut state = self.state.lock();
        state.wanted = state.wanted.max(txg);
        self.changed.notify_all();
        while state.synced < txg {
            if state.is_over {
                return Err(Stopped.into());
            }
            if let Some(error) = state.suspended.and_then(&give_up) {
                return Err(error);
            }
            self.changed.wait(&mut state);
        }
        Ok(())
    }

    /// Waits as long as [`TxgEngine::lets_wait`].
    pub fn wait_while_suspended(&self) {
        let mut state = self.state.lock();
        while state.suspended == Some(SuspendedPolicy::Wait) && !state.is_over {
            self.changed.wait(&mut state);
        }
    }
}
