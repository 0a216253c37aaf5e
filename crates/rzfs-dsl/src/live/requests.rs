//! What other threads ask the syncing thread for.

use super::ChangeError;
use super::suspension::Suspension;
use parking_lot::Mutex;
use rzfs_dmu::txg::{OpenTx, Stopped, TxgEngine};
use std::sync::Arc;

/// What came of a request, once the syncing thread has dealt with it.
pub(crate) type Answer<T> = Arc<Mutex<Option<Result<T, ChangeError>>>>;

/// Requests of one kind that wait for the next txg.
#[derive(Debug)]
pub(crate) struct Requests<R> {
    engine: Arc<TxgEngine>,
    suspension: Arc<Suspension>,
    waiting: Mutex<Vec<R>>,
}

impl<R> Requests<R> {
    pub(crate) fn new(engine: &Arc<TxgEngine>, suspension: &Arc<Suspension>) -> Self {
        let (engine, suspension) = (Arc::clone(engine), Arc::clone(suspension));
        Self { engine, suspension, waiting: Mutex::default() }
    }

    /// Hands in the request that `make` makes, and waits for its answer; it is on disk then.
    ///
    /// # Errors
    /// The request was refused, or the pool is suspended.
    pub(crate) fn ask<T>(&self, make: impl FnOnce(Answer<T>) -> R) -> Result<T, ChangeError> {
        let suspended = || ChangeError::Suspended { reason: self.suspension.reason() };
        let answer = Answer::default();
        let request = make(Arc::clone(&answer));
        if self.engine.is_suspended() {
            return Err(suspended());
        }
        // The transaction keeps the group open until the request is in its list.
        let tx: OpenTx = self.engine.begin_unthrottled(&[]).map_err(|_| suspended())?;
        let txg = tx.txg();
        self.waiting.lock().push(request);
        drop(tx);
        self.engine.wait_synced_unless_suspended(txg).map_err(|_| suspended())?;
        let answer = answer.lock().take();
        answer.unwrap_or_else(|| Err(suspended()))
    }

    /// Hands in a request without waiting for it.
    ///
    /// # Errors
    /// [`Stopped`]: the pool takes no changes any more.
    pub(crate) fn post(&self, request: R) -> Result<(), Stopped> {
        let tx = self.engine.begin_unthrottled(&[])?;
        self.waiting.lock().push(request);
        self.engine.request(tx.txg());
        Ok(())
    }

    /// The requests since this was last asked.
    pub(crate) fn take(&self) -> Vec<R> {
        std::mem::take(&mut *self.waiting.lock())
    }
}
