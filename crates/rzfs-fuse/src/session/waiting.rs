//! Requests that wait for a suspended pool.
//!
//! ```text
//! request ── is tried ──┬─> reply
//!                       └─> the pool is suspended ── is kept ── resumes ── is tried again ─> reply
//! ```
//! As there are only as many request threads as processors, waiting writers must not occupy them:
//! nothing could be read. Their requests are queued here, and one thread retries them in order.
//! When the mount has ended the kernel has failed the requests, so queued ones are dropped, except
//! pages of mappings: the kernel may have reported these as written.
//!
//! A retry may block for ever if a device neither responds nor fails: after a while the others are
//! retried without it.

use super::Session;
use super::told::RevocableReply;
use crate::answer::{Answer, is_suspended};
use crate::panics::outlive;
use fuser::{Errno, INodeNo};
use rzfs_zpl::live::LiveFileSystem;
use std::collections::VecDeque;
use std::io;
use std::ops::{ControlFlow, Deref};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Maximum bytes of writes that mounts of this process queue, except for a little of each.
const MOST_KEPT: usize = 64 << 20;
/// Bytes of all writes up to which those that bypass the kernel's pages are queued.
const MOST_KEPT_WHOLE: usize = 512 << 20;
/// Bytes of queued writes: of all mounts together, as they share the memory.
static KEPT: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);
/// How long a retry may take until the others are retried without it.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of requests of a mount whose retry exceeds that.
const MOST_LATE: usize = 8;
/// The part of a write that is always queued: the writer repeats the rest.
const ALWAYS_KEPT: usize = 4 << 10;

/// Treatment of the end of a write for which there is no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shortening {
    /// The writer repeats it.
    Possible,
    /// The kernel reports failure of the whole write: it is one of several requests that bypass its
    /// pages.
    Fails,
    /// It has no other copy: it is part of the kernel's pages.
    Never,
}

/// How long a request waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waits {
    /// Until the mount ends: the caller has been told.
    UntilUnmounted,
    /// As long as the pool: the kernel may have reported success.
    Anyway,
}

/// The object of a request's wait.
trait Suspendable: Send + Sync {
    /// Waits while it is suspended.
    fn wait_while_suspended(&self);
}

impl Suspendable for LiveFileSystem {
    fn wait_while_suspended(&self) {
        Self::wait_while_suspended(self);
    }
}

/// A request that waits.
struct Waiting {
    file_system: Arc<dyn Suspendable>,
    waits: Waits,
    /// Retries it, and replies unless the pool is still suspended.
    retry: Box<dyn FnMut() -> ControlFlow<()> + Send>,
}

impl Waiting {
    /// Retries it; returns it if that was too early.
    fn attempt(mut self) -> Option<Self> {
        let mut is_early = false;
        outlive(|| is_early = (self.retry)().is_continue());
        is_early.then_some(self)
    }
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
    /// No caller waits for replies any more.
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

    /// Drops the requests that end with the mount, including later ones.
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

    /// The file system of the oldest request, once there is one; `None` if none will come.
    fn oldest(&self) -> Option<Arc<dyn Suspendable>> {
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

    /// Retries one request after the other, until the queue ends.
    fn try_all(self: &Arc<Self>, patience: Duration) {
        let mut attempts = Attempts::new(Arc::clone(self), patience);
        while let Some(file_system) = self.oldest() {
            file_system.wait_while_suspended();
            drop(file_system);
            let oldest = self.state().waiting.pop_front();
            if let Some(oldest) = oldest {
                attempts.attempt(oldest);
            }
        }
    }

    /// Retries a request until it is done, when no other thread does.
    fn finish(&self, request: Waiting) {
        let mut early = Some(request);
        while let Some(request) = early.take().filter(|one| self.state().takes(one)) {
            request.file_system.wait_while_suspended();
            early = request.attempt();
        }
    }

    /// Returns a request that was tried too early to the queue.
    fn give_back(&self, request: Waiting) {
        let mut state = self.state();
        if state.takes(&request) {
            state.waiting.push_front(request);
        }
    }
}

/// Runs retries on a thread, which is abandoned with one that takes too long.
struct Attempts {
    queue: Arc<Queue>,
    patience: Duration,
    thread: Option<AttemptingThread>,
    /// Each abandoned thread has a reference.
    late: Arc<()>,
}

/// A thread that retries the requests it receives. It ends with this value, once it is done.
struct AttemptingThread {
    requests: Sender<Waiting>,
    /// The request, if the retry was too early. The thread keeps it until it is received here: if
    /// it never is, the request is not lost.
    tried: Receiver<Option<Waiting>>,
}

impl Attempts {
    fn new(queue: Arc<Queue>, patience: Duration) -> Self {
        Self { queue, patience, thread: None, late: Arc::new(()) }
    }

    fn attempt(&mut self, request: Waiting) {
        let request = match &self.thread {
            Some(thread) => thread.requests.send(request).map_err(|refused| refused.0),
            None => Err(request),
        };
        if let Err(request) = request {
            match self.start() {
                Ok(thread) => {
                    // It has just started, and waits for one.
                    let _ = thread.requests.send(request);
                    self.thread = Some(thread);
                }
                Err(error) => {
                    tracing::debug!(%error, "no thread for requests that waited");
                    return request.attempt().into_iter().for_each(|one| self.queue.give_back(one));
                }
            }
        }
        self.wait();
    }

    fn start(&self) -> io::Result<AttemptingThread> {
        let (requests, waiting) = mpsc::channel::<Waiting>();
        let (hand_back, tried) = mpsc::sync_channel(0);
        let (queue, late) = (Arc::clone(&self.queue), Arc::clone(&self.late));
        let work = move || {
            let _late = late;
            for request in waiting {
                if let Err(alone) = hand_back.send(request.attempt()) {
                    return alone.0.into_iter().for_each(|request| queue.finish(request));
                }
            }
        };
        std::thread::Builder::new().name("rzfs-retry".to_owned()).spawn(work)?;
        Ok(AttemptingThread { requests, tried })
    }

    /// Waits for the retry, but not for too long.
    fn wait(&mut self) {
        let Some(thread) = &self.thread else { return };
        // One reference is the thread's, one is ours.
        let tried = match Arc::strong_count(&self.late) > MOST_LATE + 1 {
            true => thread.tried.recv().map_err(RecvTimeoutError::from),
            false => thread.tried.recv_timeout(self.patience),
        };
        match tried {
            Ok(early) => early.into_iter().for_each(|request| self.queue.give_back(request)),
            Err(_) => {
                tracing::warn!("a request takes long that has waited for its pool");
                self.thread = None;
            }
        }
    }
}

/// The queue, and the thread that retries its requests. It ends with the mount.
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
        thread.spawn(move || shared.try_all(PATIENCE))?;
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
    /// Keeps as much as there is room for; `None` if that would be useless.
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
    /// Only with a live file system.
    room: Option<WaitingRoom>,
}

impl Server {
    /// # Errors
    /// The system cannot start a thread.
    pub(crate) fn new(session: Session) -> io::Result<Self> {
        let room = session.live().map(|_| WaitingRoom::start()).transpose()?;
        Ok(Self { session: Arc::new(session), room })
    }

    /// The session, as long as it is served.
    pub(crate) fn session(&self) -> Weak<Session> {
        Arc::downgrade(&self.session)
    }

    /// Drops waiting requests: the mount has ended.
    pub(super) fn drop_waiting(&self) {
        if let Some(room) = &self.room {
            room.queue.end();
        }
    }

    /// Changes a file, and replies: later, without a thread meanwhile, if the pool is suspended, or
    /// if the change must be durable first.
    pub(super) fn change<T: RevocableReply>(
        &self,
        inode: INodeNo,
        attempt: impl Fn(&Session) -> Answer<T> + Send + 'static,
        reply: impl FnOnce(Answer<T>) + Send + 'static,
    ) {
        let answer = {
            let _pass = self.session.enter();
            attempt(&self.session)
        };
        match answer {
            Err(error) if is_suspended(error) => {
                let session = Arc::clone(&self.session);
                let reply = move |answer| session.answer_change(inode, answer, reply);
                self.keep(Waits::UntilUnmounted, attempt, reply);
            }
            answer => self.session.answer_change(inode, answer, reply),
        }
    }

    /// The same for changes that wait for transaction groups: neither other requests nor exchanges
    /// wait for it.
    pub(super) fn change_apart<T: RevocableReply>(
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

    /// Runs an attempt once the pool resumes, and replies, unless the wait ends before.
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
        let retry = Box::new(move || {
            let answer = {
                let _pass = session.enter();
                attempt(&session)
            };
            match answer {
                Err(error) if is_suspended(error) => ControlFlow::Continue(()),
                answer => {
                    if let Some(reply) = reply.take() {
                        reply(answer);
                    }
                    ControlFlow::Break(())
                }
            }
        });
        room.queue.add(Waiting { file_system: live, waits, retry });
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

    /// A pool that is not suspended.
    struct Running;

    impl Suspendable for Running {
        fn wait_while_suspended(&self) {}
    }

    fn request(retry: impl FnMut() -> ControlFlow<()> + Send + 'static) -> Waiting {
        let (file_system, waits) = (Arc::new(Running), Waits::UntilUnmounted);
        Waiting { file_system, waits, retry: Box::new(retry) }
    }

    #[test]
    fn nobody_waits_behind_requests_that_hang_or_panic() {
        let queue = Arc::new(Queue::default());
        let (release, hangs) = mpsc::channel::<()>();
        queue.add(request(move || {
            let _ = hangs.recv();
            ControlFlow::Break(())
        }));
        queue.add(request(|| panic!("on purpose")));
        let (say, answered) = mpsc::channel();
        let mut is_early = true;
        queue.add(request(move || {
            if std::mem::take(&mut is_early) {
                return ControlFlow::Continue(());
            }
            say.send(()).unwrap();
            ControlFlow::Break(())
        }));
        let shared = Arc::clone(&queue);
        let trying = std::thread::spawn(move || shared.try_all(Duration::from_millis(50)));
        // It takes longer only if it hangs.
        answered.recv_timeout(Duration::from_secs(60)).unwrap();
        queue.end();
        trying.join().unwrap();
        drop(release);
    }

    #[test]
    fn a_request_is_not_lost_when_patience_ends_just_as_it_was_tried() {
        let queue = Arc::new(Queue::default());
        for _ in 0..100 {
            let attempts = Attempts::new(Arc::clone(&queue), Duration::ZERO);
            let thread = attempts.start().unwrap();
            let (tried, is_tried) = mpsc::channel();
            let mut is_early = true;
            let retry = move || {
                tried.send(()).unwrap();
                match std::mem::take(&mut is_early) {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            };
            assert!(thread.requests.send(request(retry)).is_ok());
            is_tried.recv().unwrap();
            // Before, during or after its return, the receiver goes away.
            std::thread::yield_now();
            drop(thread);
            assert_eq!(is_tried.recv(), Ok(()), "it is tried again");
        }
    }

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
