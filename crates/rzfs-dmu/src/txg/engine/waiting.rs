//! Waiting until a group is on disk, and while the pool is suspended.

use super::{BeginError, Patience, Stopped, SuspendedPolicy, TxgEngine};
use rzfs_format::Txg;

impl TxgEngine {
    /// Marks the syncing group as stopped until [`TxgEngine::resume`].
    pub fn suspend(&self, meanwhile: SuspendedPolicy) {
        self.state.lock().suspended = Some(meanwhile);
        self.changed.notify_all();
    }

    /// Resumes the syncing group.
    pub fn resume(&self) {
        self.state.lock().suspended = None;
        self.changed.notify_all();
    }

    /// Whether the syncing group waits for its devices.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.state.lock().suspended.is_some()
    }

    /// Whether the pool is suspended and transactions wait until it resumes.
    #[must_use]
    pub fn is_waiting_allowed(&self) -> bool {
        let state = self.state.lock();
        state.suspended == Some(SuspendedPolicy::Wait) && !state.is_over
    }

    /// Waits until a group is on disk, even while the pool is suspended if transactions wait then.
    ///
    /// # Errors
    /// [`Stopped`]: it will never be, or the caller must not wait while the pool is suspended.
    pub fn wait_synced(&self, txg: Txg) -> Result<(), Stopped> {
        self.wait(txg, |suspended| (suspended == SuspendedPolicy::Refuse).then_some(Stopped))
    }

    /// Waits until a group is on disk, even while the pool is suspended, regardless of the policy:
    /// for background work.
    ///
    /// # Errors
    /// [`Stopped`]: it will never be.
    pub fn wait_synced_in_background(&self, txg: Txg) -> Result<(), Stopped> {
        self.wait(txg, |_| None)
    }

    /// As [`TxgEngine::wait_synced`], for a transaction that starts afterwards.
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
    /// must get an error.
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

    /// Waits while [`TxgEngine::is_waiting_allowed`] holds.
    pub fn wait_while_suspended(&self) {
        let mut state = self.state.lock();
        while state.suspended == Some(SuspendedPolicy::Wait) && !state.is_over {
            self.changed.wait(&mut state);
        }
    }
}
