//! Prefetching for sequential readers of files.
//!
//! [`PrefetchStreams`] predict the blocks that a file's readers will need next, data and indirect
//! ones. Threads of a [`ReadAhead`], shared by any number of file systems, read them into the block
//! cache, where readers find them or wait for their arrival. A full queue drops requests: they are
//! only hints.

use crate::cache::ObjectCache;
use crate::error::ZplError;
use crate::object::FileObject;
use crate::sync::{Arc, Condvar, Mutex};
use rzfs_cache::{AccessOutcome, ActivePrefetch, Prefetch, PrefetchStreams};
use rzfs_clock::Clock;
use rzfs_dmu::Object;
use rzfs_format::ObjectId;
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::thread::JoinHandle;

/// Bytes read by one thread at once.
const JOB_BYTES: u64 = 1 << 20;
/// Maximum number of queued requests.
const MAX_QUEUE: usize = 256;
/// Memory of one file's streams.
const STREAMS_WEIGHT: usize = 1 << 10;

/// Threads that prefetch blocks. Dropping it stops them.
pub struct ReadAhead {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    clock: Clock,
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
    level: u8,
    blocks: Range<u64>,
    /// Counts it as an active prefetch until it is done or dropped.
    _active: ActivePrefetch,
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
        Self::start_by(Clock::system(), threads)
    }

    /// The same, by the clock of a pool.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn start_by(clock: Clock, threads: usize) -> Result<Arc<Self>, ZplError> {
        let shared = Arc::new(Shared { queue: Mutex::default(), ready: Condvar::new() });
        let mut this = Self { shared, threads: Vec::with_capacity(threads), clock };
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

    fn request(&self, object: &Object, prefetch: Prefetch) {
        let Prefetch { data, indirect } = prefetch;
        let sizes = [object.block_size(), object.dnode().indirect_size()].map(u64::from);
        // Pointers needed soon come before data needed later.
        for (level, blocks, size) in [(1, indirect, sizes[1]), (0, data, sizes[0])] {
            self.enqueue(object, level, blocks, size);
        }
    }

    fn enqueue(&self, object: &Object, level: u8, blocks: Range<u64>, block_size: u64) {
        let per_job = (JOB_BYTES / block_size.max(1)).max(1);
        let activity = object.objset().pipeline().prefetching();
        let mut queue = self.shared.queue.lock();
        let mut start = blocks.start;
        while start < blocks.end && queue.jobs.len() < MAX_QUEUE {
            let end = start.saturating_add(per_job).min(blocks.end);
            let count = end - start;
            let active = activity.begin(count, count.saturating_mul(block_size));
            let job = Job { object: object.clone(), level, blocks: start..end, _active: active };
            queue.jobs.push_back(job);
            self.shared.ready.notify_one();
            start = end;
        }
    }
}

impl Shared {
    fn work(&self) {
        while let Some(job) = self.next() {
            job.object.prefetch(job.level, job.blocks.clone());
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
            // A thread that panicked has reported it itself.
            let _ = thread.join();
        }
    }
}

/// The streams of the files of one file system.
#[derive(Debug)]
pub(crate) struct Streams {
    reader: Option<Arc<ReadAhead>>,
    files: ObjectCache<Arc<Mutex<PrefetchStreams>>>,
}

impl Streams {
    pub(crate) const fn new(
        reader: Option<Arc<ReadAhead>>,
        files: ObjectCache<Arc<Mutex<PrefetchStreams>>>,
    ) -> Self {
        Self { reader, files }
    }

    /// Records reads of a file's blocks, and how they were found, and prefetches what will follow.
    pub(crate) fn note_read<O: FileObject>(
        &self,
        object: &O,
        blocks: Range<u64>,
        outcome: AccessOutcome,
    ) {
        let Some(reader) = &self.reader else { return };
        // Data not on disk cannot be prefetched.
        let Some(object) = object.on_disk() else { return };
        let shape = object.shape();
        if shape.blocks < 2 {
            return;
        }
        let file = self.files.get(object.id()).unwrap_or_else(|| {
            let activity = Arc::clone(object.objset().pipeline().prefetching());
            let file = Arc::new(Mutex::new(PrefetchStreams::new(activity)));
            self.files.insert(object.id(), Arc::clone(&file), STREAMS_WEIGHT);
            file
        });
        let prefetch = {
            let mut file = file.lock();
            file.access(&shape, blocks, outcome, reader.clock.now())
        };
        if !prefetch.is_empty() {
            reader.request(&object, prefetch);
        }
    }

    pub(crate) fn forget(&self, object: ObjectId) {
        self.files.remove(object);
    }

    pub(crate) fn forget_all(&self) {
        self.files.clear();
    }
}
