//! The portable engine: threads that read and write one request at a time.

use super::transfer::Transfer;
use crossbeam::channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

/// A pool of threads that grows with the work, to a limit.
///
/// Dropping it completes everything submitted, then ends the threads.
pub(crate) struct ThreadPool {
    sender: Option<Sender<Transfer>>,
    receiver: Receiver<Transfer>,
    /// Requests waiting or in progress.
    outstanding: Arc<AtomicUsize>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    max_threads: usize,
}

impl ThreadPool {
    /// A pool with one thread at first, and up to `max_threads` (at least one).
    pub(crate) fn new(max_threads: usize) -> io::Result<Self> {
        let (sender, receiver) = unbounded();
        let pool = Self {
            sender: Some(sender),
            receiver,
            outstanding: Arc::default(),
            threads: Mutex::default(),
            max_threads: max_threads.max(1),
        };
        pool.threads.lock().push(pool.spawn()?);
        Ok(pool)
    }

    pub(crate) fn submit(&self, transfers: Vec<Transfer>) {
        let Some(sender) = &self.sender else { return };
        let outstanding =
            self.outstanding.fetch_add(transfers.len(), Ordering::Relaxed) + transfers.len();
        for transfer in transfers {
            // The pool itself holds a receiver, so the channel is open; otherwise the transfer
            // would complete itself when it is dropped.
            let _ = sender.send(transfer);
        }
        self.grow(outstanding);
    }

    /// Starts threads for `outstanding` requests, as far as the limit and the system allow.
    fn grow(&self, outstanding: usize) {
        let mut threads = self.threads.lock();
        while threads.len() < outstanding.min(self.max_threads) {
            match self.spawn() {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    tracing::warn!(%error, threads = threads.len(), "cannot start an I/O thread");
                    return;
                }
            }
        }
    }

    fn spawn(&self) -> io::Result<JoinHandle<()>> {
        let receiver = self.receiver.clone();
        let outstanding = Arc::clone(&self.outstanding);
        thread::Builder::new().name("rzfs-io".into()).spawn(move || {
            for transfer in receiver {
                transfer.run();
                outstanding.fetch_sub(1, Ordering::Relaxed);
            }
        })
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.sender = None;
        for thread in self.threads.get_mut().drain(..) {
            // A thread that panicked has dropped, and thereby completed, its request.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ThreadPool({} of {} threads)", self.threads.lock().len(), self.max_threads)
    }
}
