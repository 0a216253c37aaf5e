//! The io_uring engine: one ring and one thread for any number of files.
//!
//! ```text
//! submit --> inbox --> ready --> submission queue --> kernel --> completion queue --> answers
//!            (lock)    `------------------ the thread -------------------------------------'
//! ```
//!
//! Only the thread touches the ring, which lets the kernel run completions in that thread when it
//! asks for them, instead of interrupting the submitter; and no request is cancelled because the
//! thread that wanted it has ended. The thread sleeps in the kernel. A submitter that adds to the
//! inbox of a sleeping thread rings the bell: an eventfd that the ring reads.
//!
//! Back-pressure: the number of requests in flight is limited by the room in the completion queue;
//! the rest stays in `ready`.

mod buffers;
mod files;
mod inbox;
mod lent;
mod worker;

use super::transfer::Transfer;
use crate::pool::BufferPool;
use crossbeam::channel::{Receiver, bounded};
use inbox::{Forgotten, Shared, State};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use worker::Worker;

/// The handle of the ring's thread.
///
/// Dropping it completes everything submitted, then ends the thread.
pub(crate) struct Ring {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    queue_depth: u32,
}

impl Ring {
    /// Starts a ring with room for about `queue_depth` requests in flight; the buffers of the pool
    /// are registered with the kernel.
    ///
    /// # Errors
    /// `ENOSYS` or `EPERM` and the like where the kernel has no io_uring, or too old a one.
    pub(crate) fn new(queue_depth: u32, pool: Arc<BufferPool>) -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC)?;
        let shared = Arc::new(Shared { inbox: Mutex::default(), bell });
        let (started, result) = bounded(1);
        let for_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name("rzfs-ring".into()).spawn(move || {
            // The kernel requires the ring to be used by the thread that created it.
            match Worker::new(for_thread, queue_depth, pool) {
                Ok(worker) => {
                    let _ = started.send(Ok(worker.queue_depth()));
                    drop(started);
                    worker.run();
                }
                Err(error) => {
                    let _ = started.send(Err(error));
                }
            }
        })?;
        let result = result.recv().unwrap_or_else(|_| Err(io::Error::other("no answer")));
        match result {
            Ok(queue_depth) => Ok(Self { shared, thread: Some(thread), queue_depth }),
            Err(error) => {
                let _ = thread.join();
                Err(error)
            }
        }
    }

    pub(crate) fn submit(&self, transfers: Vec<Transfer>) {
        let refused = {
            let mut inbox = self.shared.inbox.lock();
            if inbox.state == State::Gone {
                transfers
            } else {
                inbox.transfers.extend(transfers);
                self.shared.wake(&mut inbox);
                Vec::new()
            }
        };
        // They cannot be performed any longer: each completes itself when it is dropped.
        drop(refused);
    }

    /// Makes the ring release a file and waits for that, so that closing the file closes it.
    pub(crate) fn forget(&self, file: u64) {
        let (done, wait): (_, Receiver<()>) = bounded(0);
        {
            let mut inbox = self.shared.inbox.lock();
            if inbox.state == State::Gone {
                return;
            }
            inbox.forgotten.push(Forgotten { file, _done: done });
            self.shared.wake(&mut inbox);
        }
        // The sender is never used, only dropped.
        let _ = wait.recv();
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        {
            let mut inbox = self.shared.inbox.lock();
            if inbox.state != State::Gone {
                inbox.state = State::Closing;
            }
        }
        self.shared.ring_bell();
        if let Some(thread) = self.thread.take() {
            // If it panicked, dropping its requests has completed them.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ring(depth {}, {:?})", self.queue_depth, self.shared.inbox.lock().state)
    }
}
