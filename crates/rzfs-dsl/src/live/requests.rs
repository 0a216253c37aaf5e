//! Requests of other threads to the syncing thread.

use super::ChangeError;
use super::suspension::Suspension;
use parking_lot::Mutex;
use rzfs_dmu::txg::{OpenTx, Stopped, TxgEngine};
use rzfs_format::Txg;
use std::sync::Arc;
use std::time::Duration;

/// The result of a request, once the syncing thread has handled it.
pub(crate) type Answer<T> = Arc<Mutex<Option<Result<T, ChangeError>>>>;

/// Requests of one kind waiting for their txg: the one that was open when they were submitted, so
/// that they see everything done before.
#[derive(Debug)]
pub(crate) struct Requests<R> {
    engine: Arc<TxgEngine>,
    suspension: Arc<Suspension>,
    waiting: Mutex<Waiting<R>>,
}

/// Identifies a request for its submitter.
type Ticket = u64;

#[derive(Debug)]
struct Waiting<R> {
    requests: Vec<(Txg, Ticket, R)>,
    next: Ticket,
}

impl<R> Default for Waiting<R> {
    fn default() -> Self {
        Self { requests: Vec::new(), next: 0 }
    }
}

impl<R> Waiting<R> {
    fn push(&mut self, txg: Txg, request: R) -> Ticket {
        let ticket = self.next;
        self.next += 1;
        self.requests.push((txg, ticket, request));
        ticket
    }
}

/// How long a request may take that has started when its pool is suspended: only its reads wait for
/// devices.
const PATIENCE: Duration = Duration::from_secs(5);

impl<R> Requests<R> {
    pub(crate) fn new(engine: &Arc<TxgEngine>, suspension: &Arc<Suspension>) -> Self {
        let (engine, suspension) = (Arc::clone(engine), Arc::clone(suspension));
        Self { engine, suspension, waiting: Mutex::default() }
    }

    /// Submits the request that `make` builds, and waits for its result, which is then on disk.
    ///
    /// # Errors
    /// The request was refused, or the pool is suspended: if it had started by then, it completes
    /// when the pool resumes.
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
        let ticket = self.waiting.lock().push(txg, request);
        drop(tx);
        if self.engine.wait_synced_unless_suspended(txg).is_err() {
            self.withdraw(ticket, &answer);
            return Err(suspended());
        }
        let answer = answer.lock().take();
        answer.unwrap_or_else(|| Err(suspended()))
    }

    /// Withdraws an unstarted request; otherwise waits until the syncing thread has handled it.
    fn withdraw<T>(&self, ticket: Ticket, answer: &Answer<T>) {
        let before = {
            let mut waiting = self.waiting.lock();
            let before = waiting.requests.len();
            waiting.requests.retain(|(_, one, _)| *one != ticket);
            before - waiting.requests.len()
        };
        let clock = self.engine.clock();
        let start = clock.now();
        while before == 0 && answer.lock().is_none() && clock.now() - start < PATIENCE {
            clock.sleep(Duration::from_millis(1));
        }
    }

    /// Submits a request without waiting for it.
    ///
    /// # Errors
    /// [`Stopped`]: the pool no longer accepts changes.
    pub(crate) fn post(&self, request: R) -> Result<(), Stopped> {
        let tx = self.engine.begin_unthrottled(&[])?;
        self.waiting.lock().push(tx.txg(), request);
        self.engine.request(tx.txg());
        Ok(())
    }

    /// The requests of a txg, in the order of submission. Those of the next one may already be
    /// queued.
    pub(crate) fn take(&self, txg: Txg) -> Vec<R> {
        let mut waiting = self.waiting.lock();
        let (due, later) =
            std::mem::take(&mut waiting.requests).into_iter().partition(|(of, ..)| *of <= txg);
        waiting.requests = later;
        let due: Vec<(Txg, Ticket, R)> = due;
        due.into_iter().map(|(.., request)| request).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::HostIdentity;
    use crate::live::{Environment, SystemEnvironment};
    use crate::pool::FailMode;
    use rzfs_clock::Clock;
    use rzfs_dmu::txg::{SuspendedPolicy, TxgOptions};
    use rzfs_tunables::Tunables;

    fn requests() -> (Arc<TxgEngine>, Requests<&'static str>) {
        let options = TxgOptions::new(&Tunables::default(), 1 << 30);
        let engine = TxgEngine::new(Txg(7), options, Clock::system());
        let host = HostIdentity { id: 1, name: None };
        let environment = Arc::new(SystemEnvironment::new(host)) as Arc<dyn Environment>;
        let suspension = Suspension::new("pool", &environment, &engine, FailMode::Wait);
        let requests = Requests::new(&engine, &Arc::new(suspension));
        (engine, requests)
    }

    #[test]
    fn what_has_not_begun_as_the_pool_is_suspended_is_never_done() {
        let (engine, requests) = requests();
        let quiesced = engine.quiesce().unwrap();
        std::thread::scope(|scope| {
            let asks = scope.spawn(|| requests.ask::<()>(|_| "late"));
            while requests.waiting.lock().requests.is_empty() {
                std::thread::yield_now();
            }
            engine.suspend(SuspendedPolicy::Wait);
            assert!(matches!(asks.join().unwrap(), Err(ChangeError::Suspended { .. })));
        });
        drop(quiesced);
        assert_eq!(requests.take(Txg(u64::MAX)), [""; 0]);
    }

    #[test]
    fn requests_of_the_open_group_do_not_go_with_the_one_that_is_synced() {
        let (engine, requests) = requests();
        requests.post("early").unwrap();
        let quiesced = engine.quiesce().unwrap();
        requests.post("late").unwrap();
        assert_eq!(requests.take(quiesced.txg()), ["early"]);
        assert_eq!(requests.take(quiesced.txg()), [""; 0]);
        quiesced.committed();
        assert_eq!(requests.take(engine.quiesce().unwrap().txg()), ["late"]);
    }
}
