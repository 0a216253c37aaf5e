//! The thread of the ring.

use super::buffers::RegisteredBuffers;
use super::files::{RegisteredFiles, Target};
use super::inbox::{Inbox, Shared, State};
use super::lent::Lent;
use crate::engine::transfer::{DISCARD_FLAGS, Progress, Step, Transfer};
use crate::pool::BufferPool;
use crate::reply::Answer;
use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::fd::AsRawFd;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// The `user_data` of the bell; requests have the number of their slot.
const BELL: u64 = u64::MAX;

/// Entries of the submission queue: requests that one system call can hand over.
const SUBMISSION_ENTRIES: u32 = 256;

/// How long to wait when the kernel is out of memory for requests.
const PAUSE: Duration = Duration::from_millis(1);

/// Maximum consecutive failures to enter the kernel for lack of resources.
const MAX_FAILURES: u32 = 10_000;

/// The ring with all state of its thread.
///
/// The ring comes first, so that it is closed before its resources, and the pool with its
/// registered buffers, are dropped.
pub(super) struct Worker {
    ring: IoUring,
    shared: Arc<Shared>,
    lent: Lent,
    ready: VecDeque<Transfer>,
    files: RegisteredFiles,
    buffers: RegisteredBuffers,
    finished: Vec<(u64, io::Result<usize>)>,
    answers: Vec<Answer>,
    queue_depth: u32,
}

impl Worker {
    /// Makes the ring.
    pub(super) fn new(
        shared: Arc<Shared>,
        queue_depth: u32,
        pool: Arc<BufferPool>,
    ) -> io::Result<Self> {
        let ring = build(queue_depth)?;
        require_operations(&ring)?;
        // One completion is kept for the bell.
        let queue_depth = ring.params().cq_entries().saturating_sub(1).min(queue_depth).max(1);
        let files = RegisteredFiles::new(&ring.submitter());
        let buffers = RegisteredBuffers::new(&ring.submitter(), pool);
        Ok(Self {
            ring,
            shared,
            lent: Lent::new(queue_depth),
            ready: VecDeque::new(),
            files,
            buffers,
            finished: Vec::new(),
            answers: Vec::new(),
            queue_depth,
        })
    }

    /// The most requests in flight.
    pub(super) const fn queue_depth(&self) -> u32 {
        self.queue_depth
    }

    /// Works until it is told to close and everything is completed.
    pub(super) fn run(mut self) {
        let mut failures = 0;
        loop {
            self.harvest();
            let closing = self.empty_inbox();
            self.arm_bell(closing);
            self.fill();
            if closing && self.ready.is_empty() && self.lent.is_idle() {
                return;
            }
            let want = usize::from(self.may_sleep());
            match self.ring.submit_and_wait(want) {
                Ok(_) => failures = 0,
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::INTR) => {}
                    Some(Errno::AGAIN | Errno::BUSY | Errno::NOMEM) if failures < MAX_FAILURES => {
                        failures += 1;
                        thread::sleep(PAUSE);
                    }
                    _ => {
                        tracing::error!(%error, "io_uring fails; its requests fail with it");
                        return;
                    }
                },
            }
        }
    }

    /// Handles completions from the kernel: completes requests, or queues their next steps.
    fn harvest(&mut self) {
        let mut finished = std::mem::take(&mut self.finished);
        finished.extend(self.ring.completion().map(|entry| {
            let result = entry.result();
            let result = usize::try_from(result)
                .map_err(|_| io::Error::from_raw_os_error(result.saturating_neg()));
            (entry.user_data(), result)
        }));
        for (user_data, result) in finished.drain(..) {
            if user_data == BELL {
                self.lent.take_back_bell();
                continue;
            }
            let slot = u32::try_from(user_data).unwrap_or(u32::MAX);
            let Some(transfer) = self.lent.take_back(slot) else { continue };
            match transfer.advance(result) {
                // Requests already started come first.
                Progress::Unfinished(transfer) => self.ready.push_front(transfer),
                Progress::Answered(answer) => self.answers.push(answer),
            }
        }
        self.finished = finished;
        Answer::deliver_all(&mut self.answers);
    }

    /// Takes newly submitted requests; returns whether this is the end.
    fn empty_inbox(&mut self) -> bool {
        let (transfers, forgotten, closing) = {
            let mut inbox = self.shared.inbox.lock();
            if inbox.state == State::Asleep {
                inbox.state = State::Awake;
            }
            let Inbox { transfers, forgotten, state } = &mut *inbox;
            (std::mem::take(transfers), std::mem::take(forgotten), *state == State::Closing)
        };
        self.ready.extend(transfers);
        let submitter = self.ring.submitter();
        for forgotten in forgotten {
            self.files.forget(&submitter, forgotten.file);
        }
        closing
    }

    /// Whether to wait in the kernel until something is finished or the bell rings.
    fn may_sleep(&self) -> bool {
        if !self.ready.is_empty() {
            // Either the submission queue is full, and goes to the kernel now, or as much is in
            // flight as can be, and something will finish.
            return !self.lent.has_room();
        }
        let mut inbox = self.shared.inbox.lock();
        let empty = inbox.transfers.is_empty() && inbox.forgotten.is_empty();
        match inbox.state {
            State::Awake | State::Asleep if empty => inbox.state = State::Asleep,
            // The end was seen when the inbox was emptied, or will be in the next round.
            State::Closing if empty => {}
            _ => return false,
        }
        true
    }

    /// Makes the ring read the bell, except at the end, so that nothing stays in flight.
    fn arm_bell(&mut self, closing: bool) {
        if closing {
            return;
        }
        let Some(word) = self.lent.lend_bell() else { return };
        let bell = types::Fd(self.shared.bell.as_raw_fd());
        let entry = opcode::Read::new(bell, word.as_mut_ptr(), 8).build().user_data(BELL);
        // SAFETY: the eventfd lives as long as `shared`; the word stays where it is, untouched,
        // until `take_back_bell`, and is leaked if that never comes.
        if unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.lent.take_back_bell();
        }
    }

    /// Moves requests into the submission queue until it is full or enough are in flight.
    fn fill(&mut self) {
        while self.lent.has_room() && !self.ring.submission().is_full() {
            let Some(mut transfer) = self.ready.pop_front() else { return };
            let submitter = self.ring.submitter();
            let target = self.files.target(&submitter, transfer.file());
            let buffer = transfer.buffer_mut();
            let registered = buffer.and_then(|buffer| self.buffers.index(&submitter, buffer));
            let Some((slot, step)) = self.lent.lend(transfer) else { return };
            let entry = entry(target, step, registered).user_data(u64::from(slot));
            // SAFETY: the transfer, which owns the buffer and an open file, stays in its slot,
            // untouched, until the kernel has answered, and is leaked if that never comes.
            if unsafe { self.ring.submission().push(&entry) }.is_err() {
                // The kernel has not seen it: the queue refused it.
                return self.ready.extend(self.lent.take_back(slot));
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let mut inbox = self.shared.inbox.lock();
        inbox.state = State::Gone;
        let left = std::mem::take(&mut *inbox);
        inbox.state = State::Gone;
        drop(inbox);
        // Requests that will not be performed complete themselves.
        drop(left);
    }
}

/// A ring whose completions run in this thread only, if the kernel supports that (since 6.1).
fn build(queue_depth: u32) -> io::Result<IoUring> {
    let submission = SUBMISSION_ENTRIES.min(queue_depth.max(1));
    let completion = queue_depth.saturating_add(1).max(submission.saturating_mul(2));
    let modern = IoUring::builder()
        .setup_clamp()
        .setup_cqsize(completion)
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(submission);
    match modern {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
            IoUring::builder().setup_clamp().setup_cqsize(completion).build(submission)
        }
        built => built,
    }
}

/// Refuses a kernel whose io_uring lacks required operations (since 5.6).
fn require_operations(ring: &IoUring) -> io::Result<()> {
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [
        opcode::Read::CODE,
        opcode::Write::CODE,
        opcode::Writev::CODE,
        opcode::Fsync::CODE,
        opcode::Fallocate::CODE,
    ];
    if needed.into_iter().all(|code| probe.is_supported(code)) {
        Ok(())
    } else {
        Err(Errno::NOSYS.into())
    }
}

/// The kernel request for one step; a registered buffer is also given by its index.
fn entry(target: Target, step: Step<'_>, registered: Option<u16>) -> squeue::Entry {
    macro_rules! on {
        ($file:expr) => {
            // A step is of at most 1 GiB, so lengths fit.
            match step {
                Step::Read { offset, buffer } if registered.is_some() => {
                    let index = registered.unwrap_or_default();
                    opcode::ReadFixed::new($file, buffer.as_mut_ptr(), buffer.len() as u32, index)
                        .offset(offset)
                        .build()
                }
                Step::Read { offset, buffer } => {
                    opcode::Read::new($file, buffer.as_mut_ptr(), buffer.len() as u32)
                        .offset(offset)
                        .build()
                }
                Step::Write { offset, bytes } => {
                    opcode::Write::new($file, bytes.as_ptr(), bytes.len() as u32)
                        .offset(offset)
                        .build()
                }
                // A slice for I/O is an iovec; there are at most as many as a call takes.
                Step::Gather { offset, slices } => {
                    let vector = slices.as_ptr().cast::<libc::iovec>();
                    opcode::Writev::new($file, vector, slices.len() as u32).offset(offset).build()
                }
                Step::Flush => opcode::Fsync::new($file).flags(types::FsyncFlags::DATASYNC).build(),
                Step::Discard { offset, len } => opcode::Fallocate::new($file, len)
                    .offset(offset)
                    .mode(DISCARD_FLAGS.bits().cast_signed())
                    .build(),
            }
        };
    }
    match target {
        Target::Registered(slot) => on!(types::Fixed(slot)),
        Target::Plain(fd) => on!(types::Fd(fd)),
    }
}
