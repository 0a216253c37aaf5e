//! Worker threads that help decode large batches of blocks.
//!
//! A batch is a list of blocks and the index of the next free one. Its threads take the next block
//! until there are none: first of all the thread that wants the batch, and all idle workers. So a
//! batch never waits for a worker to become free, only for blocks already started, and there are no
//! circular waits.

use super::decode::Encoded;
use crate::threads::start_up_to;
use crate::{Block, BlockError};
use crossbeam::channel::{Receiver, Sender, TrySendError, bounded};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

/// Smaller batches are not worth waking another thread.
const MIN_EFFORT: u64 = 512 << 10;

/// Maximum number of workers.
const MAX_WORKERS: usize = 15;

type Decoded = Result<Block, BlockError>;

/// The workers of a pipeline. Its threads start with the first large batch, and end when it is
/// dropped.
#[derive(Default)]
pub(super) struct Workers {
    workers: OnceLock<WorkerThreads>,
}

struct WorkerThreads {
    /// `None` when it is being dropped, or there is only one processor.
    batches: Option<Sender<Arc<Batch>>>,
    threads: Vec<JoinHandle<()>>,
}

/// Blocks decoded together.
struct Batch {
    blocks: Vec<Mutex<Step>>,
    next: AtomicUsize,
    unfinished: Mutex<usize>,
    finished: Condvar,
}

enum Step {
    Encoded(Box<Encoded>),
    Decoded(Decoded),
    Taken,
}

impl Workers {
    /// Decodes blocks; the results are in the order of the blocks.
    pub(super) fn decode(&self, blocks: Vec<Encoded>) -> Vec<Decoded> {
        let effort = blocks.iter().map(Encoded::effort).fold(0, u64::saturating_add);
        if blocks.len() < 2 || effort < MIN_EFFORT {
            return blocks.into_iter().map(Encoded::decode).collect();
        }
        let workers = self.workers.get_or_init(WorkerThreads::start);
        let Some(batches) = &workers.batches else {
            return blocks.into_iter().map(Encoded::decode).collect();
        };
        let batch = Arc::new(Batch::new(blocks));
        for _ in 1..batch.blocks.len().min(workers.threads.len() + 1) {
            match batches.try_send(Arc::clone(&batch)) {
                Ok(()) => {}
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => break,
            }
        }
        batch.work();
        batch.wait()
    }
}

impl WorkerThreads {
    fn start() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let count = (processors - 1).min(MAX_WORKERS);
        let (batches, waiting) = bounded::<Arc<Batch>>(count.max(1));
        let start = |number| {
            let waiting: Receiver<Arc<Batch>> = waiting.clone();
            std::thread::Builder::new()
                .name(format!("rzfs-decode-{number}"))
                .spawn(move || waiting.iter().for_each(|batch| batch.work()))
        };
        let threads = start_up_to(count, start);
        Self { batches: Some(batches).filter(|_| !threads.is_empty()), threads }
    }
}

impl Drop for WorkerThreads {
    fn drop(&mut self) {
        self.batches = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has reported it itself.
            let _ = thread.join();
        }
    }
}

impl Batch {
    fn new(blocks: Vec<Encoded>) -> Self {
        Self {
            next: AtomicUsize::new(0),
            unfinished: Mutex::new(blocks.len()),
            finished: Condvar::new(),
            blocks: blocks
                .into_iter()
                .map(|block| Mutex::new(Step::Encoded(Box::new(block))))
                .collect(),
        }
    }

    /// Decodes blocks until none are free.
    fn work(&self) {
        while let Some(block) = self.blocks.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            // Counts down even if decoding panics, so that waiters do not wait for ever.
            let _counted = CountDown(self);
            let step = std::mem::replace(&mut *block.lock(), Step::Taken);
            if let Step::Encoded(encoded) = step {
                let decoded = encoded.decode();
                *block.lock() = Step::Decoded(decoded);
            }
        }
    }

    /// Waits for the blocks taken by others.
    fn wait(&self) -> Vec<Decoded> {
        let mut unfinished = self.unfinished.lock();
        while *unfinished > 0 {
            self.finished.wait(&mut unfinished);
        }
        let take = |block: &Mutex<Step>| match std::mem::replace(&mut *block.lock(), Step::Taken) {
            Step::Decoded(decoded) => decoded,
            Step::Encoded(_) | Step::Taken => Err(BlockError::NoCopy),
        };
        self.blocks.iter().map(take).collect()
    }
}

struct CountDown<'a>(&'a Batch);

impl Drop for CountDown<'_> {
    fn drop(&mut self) {
        let mut unfinished = self.0.unfinished.lock();
        *unfinished -= 1;
        if *unfinished == 0 {
            self.0.finished.notify_all();
        }
    }
}
