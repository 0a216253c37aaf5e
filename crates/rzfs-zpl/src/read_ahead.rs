//! Reading ahead of those who read files in order.
//!
//! Each file that is read has up to eight *streams*: places where a reader is expected next. A
//! read that begins near such a place moves it, and when what was asked for in advance runs short,
//! the next blocks are put on a queue, twice as many each time up to a bound. Threads of a
//! [`ReadAhead`], which any number of file systems share, read what is queued; it ends up in the
//! cache of blocks, where readers find it or wait for its arrival. A full queue drops requests:
//! they are advice.

use crate::cache::ObjectCache;
use crate::error::ZplError;
use crate::sync::{Arc, Condvar, Mutex};
use rzfs_dmu::Object;
use rzfs_format::ObjectId;
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::thread::JoinHandle;

/// Streams of one file (`zfetch_max_streams`).
const MAX_STREAMS: usize = 8;
/// How far ahead the first request goes, in bytes.
const MIN_DISTANCE: u64 = 1 << 20;
/// How far ahead requests go at most, in bytes.
const MAX_DISTANCE: u64 = 16 << 20;
/// Bytes that one thread reads at once.
const JOB_BYTES: u64 = 1 << 20;
/// Requests that may wait.
const MAX_QUEUE: usize = 256;
/// Memory for the streams of a file system, and what those of one file take.
const STREAMS_BUDGET: usize = 1 << 20;
const STREAMS_WEIGHT: usize = size_of::<FileStreams>() + MAX_STREAMS * size_of::<Stream>();

/// Threads that read blocks before they are asked for. Dropping it stops them.
pub struct ReadAhead {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    queue: Mutex<Queue>,
    ready: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    stopping: bool,
}

struct Job {
    object: Object,
    blocks: Range<u64>,
}

impl fmt::Debug for ReadAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadAhead").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

impl ReadAhead {
    /// Starts `threads` threads.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn start(threads: usize) -> Result<Arc<Self>, ZplError> {
        let shared = Arc::new(Shared { queue: Mutex::default(), ready: Condvar::new() });
        let mut this = Self { shared, threads: Vec::with_capacity(threads) };
        for number in 0..threads {
            let shared = Arc::clone(&this.shared);
            let thread = std::thread::Builder::new()
                .name(format!("rzfs-prefetch-{number}"))
                .spawn(move || shared.work())
                .map_err(|error| ZplError::Thread { errno: error.raw_os_error().unwrap_or(0) })?;
            this.threads.push(thread);
        }
        Ok(Arc::new(this))
    }

    fn request(&self, object: &Object, blocks: Range<u64>) {
        let per_job = (JOB_BYTES / u64::from(object.block_size())).max(1);
        let mut queue = self.shared.queue.lock();
        let mut start = blocks.start;
        while start < blocks.end && queue.jobs.len() < MAX_QUEUE {
            let end = start.saturating_add(per_job).min(blocks.end);
            queue.jobs.push_back(Job { object: object.clone(), blocks: start..end });
            self.shared.ready.notify_one();
            start = end;
        }
    }
}

impl Shared {
    fn work(&self) {
        while let Some(job) = self.next() {
            // Whoever needs a block that cannot be read gets the error then.
            drop(job.object.read_blocks(job.blocks));
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.queue.lock();
        loop {
            if queue.stopping {
                return None;
            }
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            self.ready.wait(&mut queue);
        }
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        {
            let mut queue = self.shared.queue.lock();
            queue.stopping = true;
            queue.jobs.clear();
        }
        self.shared.ready.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so itself.
            let _ = thread.join();
        }
    }
}

/// The streams of the files of one file system.
#[derive(Debug)]
pub(crate) struct Streams {
    reader: Option<Arc<ReadAhead>>,
    files: ObjectCache<Arc<Mutex<FileStreams>>>,
}

impl Streams {
    pub(crate) fn new(reader: Option<Arc<ReadAhead>>) -> Self {
        Self { reader, files: ObjectCache::new(STREAMS_BUDGET) }
    }

    /// Notes that `len` bytes from `offset` are about to be read, and has read what will follow.
    pub(crate) fn note_read(&self, object: &Object, offset: u64, len: u64) {
        let Some(reader) = &self.reader else { return };
        let (block_size, last) = (u64::from(object.block_size()), object.dnode().max_block_id.0);
        if last == 0 || len == 0 {
            return;
        }
        let read = offset / block_size..offset.saturating_add(len).div_ceil(block_size);
        let file = self.files.get(object.id()).unwrap_or_else(|| {
            let file = Arc::new(Mutex::new(FileStreams::default()));
            self.files.insert(object.id(), Arc::clone(&file), STREAMS_WEIGHT);
            file
        });
        let ahead = file.lock().note_read(read, block_size);
        if let Some(ahead) = ahead {
            reader.request(object, ahead.start..ahead.end.min(last + 1));
        }
    }

    pub(crate) fn forget(&self, object: ObjectId) {
        self.files.remove(object);
    }

    pub(crate) fn forget_all(&self) {
        self.files.clear();
    }
}

/// The streams of one file, the one used last at the end.
#[derive(Debug, Default)]
struct FileStreams {
    streams: VecDeque<Stream>,
}

/// A reader's place in a file, in blocks.
#[derive(Clone, Copy, Debug)]
struct Stream {
    /// Where the next read is expected.
    next: u64,
    /// The first block that was not asked for in advance.
    ahead: u64,
    /// How far ahead to ask.
    distance: u64,
}

impl FileStreams {
    /// Moves the stream that a read belongs to, or begins one; the blocks to ask for now.
    fn note_read(&mut self, read: Range<u64>, block_size: u64) -> Option<Range<u64>> {
        let blocks_of = |bytes: u64| (bytes / block_size).max(1);
        let found = self.streams.iter().position(|stream| {
            // Requests of one reader overtake each other, so both sides are near.
            let slack = stream.distance;
            read.start <= stream.next.saturating_add(slack)
                && read.end >= stream.next.saturating_sub(slack)
        });
        let Some(mut stream) = found.and_then(|index| self.streams.remove(index)) else {
            if self.streams.len() == MAX_STREAMS {
                self.streams.pop_front();
            }
            let distance = blocks_of(MIN_DISTANCE);
            self.streams.push_back(Stream { next: read.end, ahead: read.end, distance });
            return None;
        };
        stream.next = stream.next.max(read.end);
        stream.ahead = stream.ahead.max(stream.next);
        let mut wanted = None;
        if stream.ahead - stream.next <= stream.distance / 2 {
            let end = stream.next.saturating_add(stream.distance);
            wanted = Some(stream.ahead..end).filter(|range| !range.is_empty());
            stream.ahead = stream.ahead.max(end);
            stream.distance = (stream.distance * 2).min(blocks_of(MAX_DISTANCE));
        }
        self.streams.push_back(stream);
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 128 << 10;

    /// Reads blocks one after another and tells what was asked for in advance.
    fn advance(streams: &mut FileStreams, reads: Range<u64>) -> Vec<Range<u64>> {
        reads.filter_map(|block| streams.note_read(block..block + 1, BLOCK)).collect()
    }

    #[test]
    fn a_reader_in_order_has_every_block_asked_for_once() {
        let mut streams = FileStreams::default();
        let asked = advance(&mut streams, 0..1000);
        assert_eq!(asked[0].start, 2);
        for pair in asked.windows(2) {
            assert_eq!(pair[0].end, pair[1].start);
        }
        let last = asked.last().unwrap().end;
        assert!((1000 + 64..=1000 + 128).contains(&last), "{last}");
        assert_eq!(streams.streams.len(), 1);
    }

    #[test]
    fn requests_that_overtake_each_other_are_one_stream() {
        let mut streams = FileStreams::default();
        for block in [0, 2, 1, 4, 3, 6, 5, 7] {
            streams.note_read(block..block + 1, BLOCK);
        }
        assert_eq!(streams.streams.len(), 1);
    }

    #[test]
    fn random_reads_ask_for_nothing() {
        let mut streams = FileStreams::default();
        for round in 0_u64..100 {
            let block = (round * 7_919) % 100_003 * 64;
            assert_eq!(streams.note_read(block..block + 1, BLOCK), None, "round {round}");
        }
        assert_eq!(streams.streams.len(), MAX_STREAMS);
    }

    #[test]
    fn the_end_of_numbers_is_no_problem() {
        let mut streams = FileStreams::default();
        for _ in 0..3 {
            streams.note_read(u64::MAX - 2..u64::MAX, 1 << 24);
            streams.note_read(0..u64::MAX, 512);
        }
    }
}
