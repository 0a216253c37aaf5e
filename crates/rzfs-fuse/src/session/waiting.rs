//! Requests that wait for a suspended pool.
//!
//! ```text
//! request ── is tried ──┬─> answer
//!                       └─> the pool is suspended ── is kept ── goes on ── is tried again ─> answer
//! ```
//! As there are only as many threads as processors that answer requests, those who write must not
//! keep them while they wait: nobody could read. Their requests are kept here, and one thread tries
//! them again, in their order.

use super::Session;
use crate::adapter::{Answer, is_suspended};
use fuser::Errno;
use rzfs_zpl::live::LiveFileSystem;
use std::io;
use std::ops::{ControlFlow, Deref};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of all writes that are kept, but for a little of each.
const MOST_KEPT: usize = 64 << 20;
/// What is kept of a write in any case: the writer comes back for the rest.
const ALWAYS_KEPT: usize = 4 << 10;

/// What becomes of the end of a write for which there is no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shortening {
    /// The writer comes back with it.
    Possible,
    /// Nobody has it any more: it is of the kernel's pages.
    Never,
}

/// Tries something again, and answers unless the pool is suspended still.
type Retry = Box<dyn FnMut() -> ControlFlow<()> + Send>;

struct Waiting {
    file_system: Arc<LiveFileSystem>,
    retry: Retry,
}

impl Waiting {
    fn wait(mut self) {
        loop {
            self.file_system.wait_while_suspended();
            if (self.retry)().is_break() {
                return;
            }
        }
    }
}

/// The requests of a mount that wait for a suspended pool. Its thread ends when it is dropped and
/// all of them are answered.
#[derive(Debug)]
struct WaitingRoom {
    waiting: Mutex<Sender<Waiting>>,
    kept: Arc<AtomicUsize>,
}

impl WaitingRoom {
    fn start() -> io::Result<Self> {
        let (sender, receiver) = channel::<Waiting>();
        let thread = std::thread::Builder::new().name("rzfs-suspended".to_owned());
        thread.spawn(move || receiver.into_iter().for_each(Waiting::wait))?;
        Ok(Self { waiting: Mutex::new(sender), kept: Arc::default() })
    }

    fn add(&self, waiting: Waiting) {
        let sender = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(refused) = sender.send(waiting) {
            drop(sender);
            refused.0.wait();
        }
    }
}

/// Data of a write that waits.
pub(super) struct Kept {
    data: Vec<u8>,
    kept: Arc<AtomicUsize>,
}

impl Kept {
    /// Keeps as much as there is room for.
    fn new(data: &[u8], shortening: Shortening, kept: &Arc<AtomicUsize>) -> Self {
        let others = kept.fetch_add(data.len(), Ordering::AcqRel);
        let room = MOST_KEPT.saturating_sub(others).max(ALWAYS_KEPT);
        let len = match shortening {
            Shortening::Possible => data.len().min(room),
            Shortening::Never => data.len(),
        };
        kept.fetch_sub(data.len() - len, Ordering::AcqRel);
        let data = data.get(..len).unwrap_or(data).to_vec();
        Self { data, kept: Arc::clone(kept) }
    }
}

impl Deref for Kept {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.kept.fetch_sub(self.data.len(), Ordering::AcqRel);
    }
}

/// A session as the kernel's requests reach it.
pub(crate) struct Server {
    pub(super) session: Arc<Session>,
    /// Of a mount in which something can change.
    room: Option<WaitingRoom>,
}

impl Server {
    /// # Errors
    /// The system has no thread to give.
    pub(crate) fn new(session: Session) -> io::Result<Self> {
        let room = session.live().map(|_| WaitingRoom::start()).transpose()?;
        Ok(Self { session: Arc::new(session), room })
    }

    /// Changes something, and answers: later, without a thread meanwhile, if the pool is suspended.
    pub(super) fn change<T>(
        &self,
        attempt: impl Fn(&Session) -> Answer<T> + Send + 'static,
        reply: impl FnOnce(Answer<T>) + Send + 'static,
    ) {
        match attempt(&self.session) {
            Err(error) if is_suspended(error) => self.keep(attempt, reply),
            answer => reply(answer),
        }
    }

    /// The same for what takes many transaction groups: no other request waits for it.
    pub(super) fn change_apart<T>(
        &self,
        attempt: impl Fn(&Session) -> Answer<T> + Send + 'static,
        reply: impl FnOnce(Answer<T>) + Send + 'static,
    ) {
        let session = Arc::clone(&self.session);
        let work = move || {
            loop {
                match (attempt(&session), session.live()) {
                    (Err(error), Some(live)) if is_suspended(error) => live.wait_while_suspended(),
                    (answer, _) => return reply(answer),
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name("rzfs-frees".to_owned()).spawn(work) {
            tracing::error!(%error, "a request is not answered");
        }
    }

    /// Tries something as soon as the pool goes on, and answers.
    pub(super) fn keep<T>(
        &self,
        mut attempt: impl FnMut(&Session) -> Answer<T> + Send + 'static,
        reply: impl FnOnce(Answer<T>) + Send + 'static,
    ) {
        let (Some(room), Some(live)) = (&self.room, self.session.live()) else {
            return reply(Err(Errno::EIO));
        };
        let session = Arc::clone(&self.session);
        let mut reply = Some(reply);
        let retry = Box::new(move || match attempt(&session) {
            Err(error) if is_suspended(error) => ControlFlow::Continue(()),
            answer => {
                if let Some(reply) = reply.take() {
                    reply(answer);
                }
                ControlFlow::Break(())
            }
        });
        room.add(Waiting { file_system: Arc::clone(live), retry });
    }

    /// Keeps the data of a write that waits.
    pub(super) fn keep_data(&self, data: &[u8], shortening: Shortening) -> Kept {
        match &self.room {
            Some(room) => Kept::new(data, shortening, &room.kept),
            None => Kept::new(data, shortening, &Arc::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_shortened_when_much_is_kept_but_for_those_of_pages() {
        let kept = Arc::default();
        let keep = |len, shortening| Kept::new(&vec![0; len], shortening, &kept);
        let first = keep(MOST_KEPT - 8192, Shortening::Possible);
        assert_eq!(first.len(), MOST_KEPT - 8192);
        assert_eq!(keep(16384, Shortening::Possible).len(), 8192);
        let second = keep(8192, Shortening::Possible);
        assert_eq!(second.len(), 8192);
        assert_eq!(keep(8192, Shortening::Possible).len(), ALWAYS_KEPT);
        assert_eq!(keep(8192, Shortening::Never).len(), 8192);
        drop((first, second));
        assert_eq!(kept.load(Ordering::Acquire), 0);
    }
}
