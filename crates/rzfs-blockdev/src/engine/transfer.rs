//! A request in progress: the next system operation, and the handling of its result.
//!
//! Both engines drive this state machine, and so do callers that wait for a single request; it
//! handles short transfers, interrupted calls and the alignment required by O_DIRECT. A read that
//! starts between two aligned offsets goes through a wider buffer:
//!
//! ```text
//! device   |--------|--------|--------|     aligned units
//! wanted        [==============]
//! target   [####|==============|######]     `lead` bytes in front, `span` in all
//! ```

mod gather;
mod step;

pub(crate) use step::Step;

use crate::device::check_range;
use crate::open_file::OpenFile;
use crate::pool::BufferPool;
use crate::reply::{Answer, Reply};
use crate::{CompletionQueue, IoBuffer, IoOperation, IoRequest};
use bytes::Bytes;
use gather::Gather;
use rustix::fd::BorrowedFd;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use step::MAX_STEP;

/// Maximum consecutive "try again" results before that is returned.
const MAX_RETRIES: u8 = 100;

/// How a range is discarded: the file keeps its size, the range reads as zeros.
pub(crate) const DISCARD_FLAGS: FallocateFlags =
    FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

/// A checked request, with its progress.
#[derive(Debug)]
pub(crate) struct Transfer {
    file: Arc<OpenFile>,
    reply: Reply,
    work: Work,
    retries: u8,
}

/// The outcome of a step.
#[derive(Debug)]
pub(crate) enum Progress {
    /// Another step is needed.
    Unfinished(Transfer),
    /// The request is done, or has failed.
    Answered(Answer),
}

#[derive(Debug)]
enum Work {
    Read(Read),
    Write(Write),
    Gather(Gather),
    Flush,
    Discard { offset: u64, len: u64 },
}

#[derive(Debug)]
struct Read {
    destination: IoBuffer,
    /// Replaces the destination when the requested offset is not aligned.
    bounce: Option<IoBuffer>,
    /// Device offset of the target's first byte.
    start: u64,
    /// Bytes of the target before the requested ones.
    lead: usize,
    /// Bytes of the target to request.
    span: usize,
    /// Bytes of the target already read.
    done: usize,
}

#[derive(Debug)]
struct Write {
    source: Bytes,
    offset: u64,
    done: usize,
}

impl Transfer {
    /// Checks a request and prepares it; invalid and empty ones are completed at once.
    pub(crate) fn begin(
        pool: &Arc<BufferPool>,
        file: &Arc<OpenFile>,
        request: IoRequest,
        completions: &Arc<CompletionQueue>,
    ) -> Option<Self> {
        let reply = Reply::new(file.name(), &request, completions);
        let checked = file
            .access()
            .check(&request.operation)
            .and_then(|()| check_range(file.geometry(), request.offset, &request.operation));
        if let Err(error) = checked {
            reply.answer(Err(error));
            return None;
        }
        let empty = request.operation.is_empty();
        let work = match request.operation {
            IoOperation::Read(buffer) if empty => {
                reply.answer(Ok(Some(buffer)));
                return None;
            }
            IoOperation::Flush => Ok(Work::Flush),
            _ if empty => {
                reply.answer(Ok(None));
                return None;
            }
            IoOperation::Read(buffer) => {
                Read::new(pool, buffer, request.offset, file.alignment()).map(Work::Read)
            }
            IoOperation::Write(bytes) => {
                Write::new(bytes, request.offset, file.alignment()).map(Work::Write)
            }
            IoOperation::Gather(pieces) => {
                Gather::new(pieces, request.offset, file.alignment()).map(Work::Gather)
            }
            IoOperation::Discard { len } => Ok(Work::Discard { offset: request.offset, len }),
        };
        match work {
            Ok(work) => Some(Self { file: Arc::clone(file), reply, work, retries: 0 }),
            Err(error) => {
                reply.answer(Err(error));
                None
            }
        }
    }

    pub(crate) fn file(&self) -> &Arc<OpenFile> {
        &self.file
    }

    /// Bytes that a read still has to fetch; 0 for other requests.
    pub(crate) fn read_len(&self) -> Option<usize> {
        match &self.work {
            Work::Read(read) => Some(read.span.saturating_sub(read.done)),
            _ => None,
        }
    }

    /// The buffer that a read fills.
    pub(crate) fn buffer_mut(&mut self) -> Option<&mut IoBuffer> {
        match &mut self.work {
            Work::Read(read) => Some(read.target_mut()),
            _ => None,
        }
    }

    /// The next step; its result goes to [`Self::advance`].
    pub(crate) fn step(&mut self) -> Step<'_> {
        let alignment = self.file.alignment();
        match &mut self.work {
            Work::Read(read) => read.step(alignment),
            Work::Write(write) => write.step(alignment),
            Work::Gather(gather) => gather.step(alignment),
            Work::Flush => Step::Flush,
            Work::Discard { offset, len } => Step::Discard { offset: *offset, len: *len },
        }
    }

    /// Handles the result of the current step: the number of bytes, or an error.
    ///
    /// Returns the transfer when another step is needed, else the reply.
    pub(crate) fn advance(mut self, result: io::Result<usize>) -> Progress {
        let count = match result {
            Ok(count) => count,
            Err(error) if is_transient(&error) && self.retries < MAX_RETRIES => {
                self.retries += 1;
                return Progress::Unfinished(self);
            }
            Err(error) => return Progress::Answered(self.reply.with(Err(error))),
        };
        self.retries = 0;
        let alignment = self.file.alignment();
        let progress = match &mut self.work {
            Work::Read(read) => read.advance(count, alignment),
            Work::Write(write) => write.advance(count, alignment),
            Work::Gather(gather) => gather.advance(count, alignment),
            Work::Flush | Work::Discard { .. } => Ok(true),
        };
        match progress {
            Ok(false) => Progress::Unfinished(self),
            Ok(true) => Progress::Answered(self.finish()),
            Err(error) => Progress::Answered(self.reply.with(Err(error))),
        }
    }

    /// Performs the whole request in the calling thread, and completes it.
    pub(crate) fn run(mut self) {
        loop {
            let file = Arc::clone(&self.file);
            let result = self.step().perform(file.fd());
            match self.advance(result) {
                Progress::Unfinished(unfinished) => self = unfinished,
                Progress::Answered(answer) => return drop(answer),
            }
        }
    }

    /// Abandons a request whose buffer the kernel may still use: the request completes with an
    /// error, the buffer and the file are leaked.
    pub(crate) fn abandon(self) {
        std::mem::forget((self.work, self.file));
        drop(self.reply);
    }

    fn finish(self) -> Answer {
        let result = match self.work {
            Work::Read(read) => read.finish().map(Some),
            Work::Write(_) | Work::Gather(_) | Work::Flush | Work::Discard { .. } => Ok(None),
        };
        self.reply.with(result)
    }
}

impl Read {
    fn new(
        pool: &Arc<BufferPool>,
        destination: IoBuffer,
        offset: u64,
        alignment: usize,
    ) -> io::Result<Self> {
        let start = offset - offset % alignment as u64;
        let lead = usize::try_from(offset - start).map_err(io::Error::other)?;
        let span = (lead + destination.len()).next_multiple_of(alignment);
        let bounce = if lead > 0 { Some(IoBuffer::for_reading(pool, span)?) } else { None };
        Ok(Self { destination, bounce, start, lead, span, done: 0 })
    }

    /// The bytes from the last aligned one that is there, to the end or the most at once.
    fn step(&mut self, alignment: usize) -> Step<'_> {
        let from = self.done - self.done % alignment;
        let to = self.span.min(from + MAX_STEP);
        let offset = self.start + from as u64;
        let span = self.span;
        let target = self.target_mut().padded_mut(span);
        let buffer = target.and_then(|target| target.get_mut(from..to)).unwrap_or_default();
        Step::Read { offset, buffer }
    }

    /// The buffer that the device fills.
    fn target_mut(&mut self) -> &mut IoBuffer {
        self.bounce.as_mut().unwrap_or(&mut self.destination)
    }

    /// Whether everything requested has been read.
    fn advance(&mut self, count: usize, alignment: usize) -> io::Result<bool> {
        let done = self.done - self.done % alignment + count;
        if done <= self.done {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.done = done;
        Ok(done >= self.lead + self.destination.len())
    }

    fn finish(mut self) -> io::Result<IoBuffer> {
        if let Some(bounce) = &self.bounce {
            let wanted = bounce.get(self.lead..self.lead + self.destination.len());
            let wanted = wanted.ok_or(io::ErrorKind::UnexpectedEof)?;
            self.destination.copy_from_slice(wanted);
        }
        Ok(self.destination)
    }
}

impl Write {
    /// Copies the bytes only when the device cannot write them in place.
    fn new(source: Bytes, offset: u64, alignment: usize) -> io::Result<Self> {
        let source = if source.as_ptr().addr().is_multiple_of(alignment) {
            source
        } else {
            let mut copy = IoBuffer::zeroed(source.len())?;
            copy.copy_from_slice(&source);
            copy.freeze()
        };
        Ok(Self { source, offset, done: 0 })
    }

    fn step(&mut self, alignment: usize) -> Step<'_> {
        let from = self.done - self.done % alignment;
        let to = self.source.len().min(from + MAX_STEP);
        let bytes = self.source.get(from..to).unwrap_or_default();
        Step::Write { offset: self.offset + from as u64, bytes }
    }

    /// Whether everything is written.
    fn advance(&mut self, count: usize, alignment: usize) -> io::Result<bool> {
        let done = self.done - self.done % alignment + count;
        if done <= self.done {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.done = done;
        Ok(done >= self.source.len())
    }
}

impl Step<'_> {
    /// Performs a step and waits for its result.
    pub(crate) fn perform(self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let count = match self {
            Step::Read { offset, buffer } => rustix::io::pread(fd, buffer, offset)?,
            Step::Write { offset, bytes } => rustix::io::pwrite(fd, bytes, offset)?,
            Step::Gather { offset, slices } => rustix::io::pwritev(fd, slices, offset)?,
            Step::Flush => {
                rustix::fs::fdatasync(fd)?;
                0
            }
            Step::Discard { offset, len } => {
                rustix::fs::fallocate(fd, DISCARD_FLAGS, offset, len)?;
                0
            }
        };
        Ok(count)
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INTR | Errno::AGAIN))
}
