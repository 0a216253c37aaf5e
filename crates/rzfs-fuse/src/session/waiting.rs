//! Requests that wait for a suspended pool.
//!
//! ```text
//! request ── is tried ──┬─> answer
//!                       └─> the pool is suspended ── is kept ── goes on ── is tried again ─> answer
//! ```
//! As there are only as many threads as processors that answer requests, those who write must not
//! keep them while they wait: nobody could read. Their requests are kept here, and one thread tries
//! them again, in their order. When the mount has ended nobody waits for an answer any more:
//! whoever asked was told so by the kernel, and what is kept is dropped, but for pages of mappings.
//! Of these the kernel may have told the program that they are written.

use super::Session;
use super::told::Told;
use crate::answer::{Answer, is_suspended};
use fuser::{Errno, INodeNo};
use rzfs_zpl::live::LiveFileSystem;
use std::collections::VecDeque;
use std::io;
use std::ops::{ControlFlow, Deref};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

/// Bytes of all writes that mounts of this process keep, but for a little of each.
const MOST_KEPT: usize = 64 << 20;
/// Bytes of all writes up to which those past the kernel's pages are kept.
const MOST_KEPT_WHOLE: usize = 512 << 20;
/// Bytes of writes that are kept: of all mounts together, as they share the memory.
static KEPT: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);
/// What is kept of a write in any case: the writer comes back for the rest.
const ALWAYS_KEPT: usize = 4 << 10;

/// What becomes of the end of a write for which there is no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shortening {
    /// The writer comes back with it.
    Possible,
    /// The kernel tells the writer that all of it has failed: it is one of several requests that go
    /// past its pages.
    Fails,
    /// Nobody has it any more: it is of the kernel's pages.
    Never,
}

/// How long a request waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waits {
    /// Until the mount ends: whoever asked was told so.
    UntilUnmounted,
    /// For as long as the pool: the kernel may have told that it is done.
    Anyway,
}

/// A request that waits.
struct Waiting {
    file_system: Arc<LiveFileSystem>,
    waits: Waits,
    /// Tries it again, and answers unless the pool is suspended still.
    retry: Box<dyn FnMut() -> ControlFlow<()> + Send>,
}

/// The requests of a mount that wait for a suspended pool.
#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// Nobody waits for answers any more.
    is_over: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}

impl State {
    fn takes(&self, waiting: &Waiting) -> bool {
        waiting.waits == Waits::Anyway || !self.is_over
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.state().is_over
    }

    fn add(&self, waiting: Waiting) {
        let mut state = self.state();
        if state.takes(&waiting) {
            state.waiting.push_back(waiting);
            self.changed.notify_one();
        }
    }

    /// Drops the requests that end with the mount, also those that come later.
    fn end(&self) {
        let mut state = self.state();
        state.is_over = true;
        let all = std::mem::take(&mut state.waiting);
        let (stay, dropped) = all.into_iter().partition::<VecDeque<_>, _>(|one| state.takes(one));
        state.waiting = stay;
        drop(state);
        self.changed.notify_one();
        drop(dropped);
    }

    /// The file system of the oldest request, once there is one; nothing when none will come.
    fn oldest(&self) -> Option<Arc<LiveFileSystem>> {
        let mut state = self.state();
        loop {
            if let Some(oldest) = state.waiting.front() {
                return Some(Arc::clone(&oldest.file_system));
            }
            if state.is_over {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Tries one request after the other again, until it is over.
    fn try_all(&self) {
        while let Some(file_system) = self.oldest() {
            file_system.wait_while_suspended();
            drop(file_system);
            let oldest = self.state().waiting.pop_front();
            let Some(mut oldest) = oldest else { continue };
            if (oldest.retry)().is_continue() {
                let mut state = self.state();
                if state.takes(&oldest) {
                    state.waiting.push_front(oldest);
                }
            }
        }
    }
}

/// Where requests wait, and the thread that tries them again. It ends with the mount.
#[derive(Debug)]
struct WaitingRoom {
    queue: Arc<Queue>,
    kept: Arc<AtomicUsize>,
}

impl WaitingRoom {
    fn start() -> io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let shared = Arc::clone(&queue);
        let thread = std::thread::Builder::new().name("rzfs-suspended".to_owned());
        thread.spawn(move || shared.try_all())?;
        Ok(Self { queue, kept: Arc::clone(&KEPT) })
    }
}

impl Drop for WaitingRoom {
    fn drop(&mut self) {
        self.queue.end();
    }
}

/// Data of a write that waits.
pub(super) struct Kept {
    data: Vec<u8>,
    kept: Arc<AtomicUsize>,
}

impl Shortening {
    /// How long such a write waits.
    pub(super) const fn waits(self) -> Waits {
        match self {
            Self::Possible | Self::Fails => Waits::UntilUnmounted,
            Self::Never => Waits::Anyway,
        }
    }
}

impl Kept {
    /// Keeps as much as there is room for; nothing if that would be of no use.
    fn new(data: &[u8], shortening: Shortening, kept: &Arc<AtomicUsize>) -> Option<Self> {
        let others = kept.fetch_add(data.len(), Ordering::AcqRel);
        let room = |most: usize| most.saturating_sub(others);
        let len = match shortening {
            Shortening::Possible => data.len().min(room(MOST_KEPT).max(ALWAYS_KEPT)),
            Shortening::Fails if data.len() > room(MOST_KEPT_WHOLE) => 0,
            Shortening::Fails | Shortening::Never => data.len(),
        };
        kept.fetch_sub(data.len() - len, Ordering::AcqRel);
        let data = data.get(..len).filter(|_| len > 0)?.to_vec();
        Some(Self { data, kept: Arc::clone(kept) })
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

    /// The session, as long as it is served.
    pub(crate) fn session(&self) -> Weak<Session> {
        Arc::downgrade(&self.session)
    }

    /// Drops what waits: the mount has ended.
    pub(super) fn drop_waiting(&self) {
        if let Some(room) = &self.room {
            room.queue.end();
        }
    }

    /// Changes something about a file, and answers: later, without a thread meanwhile, if the pool
    /// is suspended, or if the change has to be durable first.
    pub(super) fn change<T: Told>(
        &self,
        inode: INodeNo,
        attempt: impl Fn(&Session) -> Answer<T> + Send + 'static,
        reply: impl FnOnce(Answer<T>) + Send + 'static,
    ) {
        match attempt(&self.session) {
            Err(error) if is_suspended(error) => {
                let session = Arc::clone(&self.session);
                let reply = move |answer| session.answer_change(inode, answer, reply);
                self.keep(Waits::UntilUnmounted, attempt, reply);
            }
            answer => self.session.answer_change(inode, answer, reply),
        }
    }

    /// The same for what waits for transaction groups: no other request waits for it.
    pub(super) fn change_apart<T: Told>(
        &self,
        inode: INodeNo,
        attempt: impl Fn(&Session) -> Answer<T> + Send + 'static,
        reply: impl FnOnce(Answer<T>) + Send + 'static,
    ) {
        let session = Arc::clone(&self.session);
        let queue = self.room.as_ref().map(|room| Arc::clone(&room.queue));
        let work = move || {
            while !queue.as_ref().is_some_and(|queue| queue.is_over()) {
                match (attempt(&session), session.live()) {
                    (Err(error), Some(live)) if is_suspended(error) => live.wait_while_suspended(),
                    (answer, _) => return session.answer_change(inode, answer, reply),
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name("rzfs-apart".to_owned()).spawn(work) {
            tracing::error!(%error, "a request is not answered");
        }
    }

    /// Tries something as soon as the pool goes on, and answers, unless it does not wait so long.
    pub(super) fn keep<T>(
        &self,
        waits: Waits,
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
        room.queue.add(Waiting { file_system: Arc::clone(live), waits, retry });
    }

    /// Keeps the data of a write that waits, if there is room.
    pub(super) fn keep_data(&self, data: &[u8], shortening: Shortening) -> Option<Kept> {
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
        let keep = |len, shortening| Kept::new(&vec![0; len], shortening, &kept).unwrap();
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

    #[test]
    fn writes_past_the_pages_are_kept_as_a_whole_or_not_at_all() {
        let kept = Arc::default();
        let keep = |len| Kept::new(&vec![0; len], Shortening::Fails, &kept);
        let first = keep(MOST_KEPT_WHOLE - 8192).unwrap();
        assert!(keep(8193).is_none());
        assert_eq!(keep(8192).unwrap().len(), 8192);
        drop(first);
        assert_eq!(kept.load(Ordering::Acquire), 0);
    }
}
