//! What other threads ask the syncing thread for.

use super::ChangeError;
use super::suspension::Suspension;
use parking_lot::Mutex;
use rzfs_dmu::txg::{OpenTx, Stopped, TxgEngine};
use rzfs_format::Txg;
use std::sync::Arc;

/// What came of a request, once the syncing thread has dealt with it.
pub(crate) type Answer<T> = Arc<Mutex<Option<Result<T, ChangeError>>>>;

/// Requests of one kind that wait for their txg: the one that was open when they were handed in, so
/// that they see everything that was done before.
#[derive(Debug)]
pub(crate) struct Requests<R> {
    engine: Arc<TxgEngine>,
    suspension: Arc<Suspension>,
    waiting: Mutex<Vec<(Txg, R)>>,
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
        self.waiting.lock().push((txg, request));
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
        self.waiting.lock().push((tx.txg(), request));
        self.engine.request(tx.txg());
        Ok(())
    }

    /// The requests of a txg, in the order in which they were handed in. Those of the next one may be
    /// there already.
    pub(crate) fn take(&self, txg: Txg) -> Vec<R> {
        let mut waiting = self.waiting.lock();
        let (due, later) =
            std::mem::take(&mut *waiting).into_iter().partition(|(of, _)| *of <= txg);
        *waiting = later;
        let due: Vec<(Txg, R)> = due;
        due.into_iter().map(|(_, request)| request).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::HostIdentity;
    use crate::live::{Environment, SystemEnvironment};
    use crate::pool::FailMode;
    use rzfs_clock::Clock;
    use rzfs_dmu::txg::TxgOptions;
    use rzfs_tunables::Tunables;

    #[test]
    fn requests_of_the_open_group_do_not_go_with_the_one_that_is_synced() {
        let options = TxgOptions::new(&Tunables::default(), 1 << 30);
        let engine = TxgEngine::new(Txg(7), options, Clock::system());
        let host = HostIdentity { id: 1, name: None };
        let environment = Arc::new(SystemEnvironment::new(host)) as Arc<dyn Environment>;
        let suspension = Suspension::new("pool", &environment, &engine, FailMode::Wait);
        let requests = Requests::new(&engine, &Arc::new(suspension));
        requests.post("early").unwrap();
        let quiesced = engine.quiesce().unwrap();
        requests.post("late").unwrap();
        assert_eq!(requests.take(quiesced.txg()), ["early"]);
        assert_eq!(requests.take(quiesced.txg()), [""; 0]);
        quiesced.committed();
        assert_eq!(requests.take(engine.quiesce().unwrap().txg()), ["late"]);
    }
}
