//! Verifies checksums concurrently with the walk, which passes blocks to reading threads.

use crossbeam::channel::{Receiver, Sender, bounded, unbounded};
use rzfs_dmu::threads::start_up_to;
use rzfs_dmu::{BlockError, BlockPipeline};
use rzfs_format::BlockPointer;
use rzfs_format::units::Bookmark;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::Scope;

/// Default number of concurrent reads (`-I`).
const DEFAULT_IN_FLIGHT: usize = 200;
/// Maximum bytes of blocks in a batch, unless a single block is larger.
const BATCH_BYTES: u64 = 4 << 20;

/// Blocks whose checksums are to be verified.
type Batch = Vec<(Bookmark, BlockPointer)>;

/// The next step of a verifying thread.
enum Job {
    Verify(Batch),
    /// Waits until all threads have reached this point, with all earlier batches done.
    Meet(Arc<Barrier>),
}

/// A block that cannot be read, or has a wrong checksum.
pub(super) struct Failure {
    pub(super) bookmark: Bookmark,
    pub(super) pointer: BlockPointer,
    pub(super) error: BlockError,
}

/// Passes blocks to the verifying threads.
///
/// Memory is bounded: one batch in each thread and one more queued for it.
pub(super) struct Verifier<'scope> {
    jobs: Sender<Job>,
    failures: Receiver<Failure>,
    verified: &'scope AtomicU64,
    batch: Batch,
    batch_bytes: u64,
    batch_len: usize,
    threads: usize,
}

impl<'scope> Verifier<'scope> {
    /// Starts as many threads as the system allows.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn start(
        scope: &'scope Scope<'scope, '_>,
        pipeline: &'scope BlockPipeline,
        in_flight: Option<u32>,
        verified: &'scope AtomicU64,
    ) -> io::Result<Self> {
        let wanted = std::thread::available_parallelism().map_or(1, usize::from);
        let in_flight = in_flight.map_or(DEFAULT_IN_FLIGHT, |count| count as usize);
        let (jobs, todo) = bounded(wanted);
        let (report, failures) = unbounded();
        let start = |_| {
            let (todo, report) = (todo.clone(), report.clone());
            let work = move || {
                for job in todo {
                    match job {
                        Job::Verify(batch) => verify(pipeline, &batch, verified, &report),
                        Job::Meet(barrier) => _ = barrier.wait(),
                    }
                }
            };
            std::thread::Builder::new().spawn_scoped(scope, work)
        };
        start(0)?;
        let threads = 1 + start_up_to(wanted - 1, start).len();
        let batch_len = (in_flight / threads).max(1);
        let (batch, batch_bytes) = (Vec::new(), 0);
        Ok(Self { jobs, failures, verified, batch, batch_bytes, batch_len, threads })
    }

    /// Accepts a block; blocks while all threads are busy.
    pub(super) fn push(&mut self, bookmark: Bookmark, pointer: &BlockPointer) {
        self.batch.push((bookmark, *pointer));
        self.batch_bytes += pointer.physical_size();
        if self.batch.len() >= self.batch_len || self.batch_bytes >= BATCH_BYTES {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        // The threads end only when this sender is gone, so one receives it.
        let _ = self.jobs.send(Job::Verify(batch));
    }

    /// Waits until all blocks so far are verified.
    pub(super) fn catch_up(&mut self) {
        self.flush();
        let barrier = Arc::new(Barrier::new(self.threads + 1));
        for _ in 0..self.threads {
            let _ = self.jobs.send(Job::Meet(Arc::clone(&barrier)));
        }
        barrier.wait();
    }

    /// Bytes verified so far.
    pub(super) fn verified_bytes(&self) -> u64 {
        self.verified.load(Ordering::Relaxed)
    }

    /// The failures so far.
    pub(super) fn failures(&self) -> impl Iterator<Item = Failure> + '_ {
        self.failures.try_iter()
    }

    /// Waits for all blocks; returns the remaining failures.
    pub(super) fn finish(mut self) -> Vec<Failure> {
        self.flush();
        let Self { jobs, failures, .. } = self;
        drop(jobs);
        failures.into_iter().collect()
    }
}

fn verify(
    pipeline: &BlockPipeline,
    batch: &[(Bookmark, BlockPointer)],
    verified: &AtomicU64,
    report: &Sender<Failure>,
) {
    let pointers: Vec<&BlockPointer> = batch.iter().map(|(_, pointer)| pointer).collect();
    for ((bookmark, pointer), result) in batch.iter().zip(pipeline.read_stored(&pointers)) {
        match result {
            Ok(data) => {
                verified.fetch_add(data.len() as u64, Ordering::Relaxed);
            }
            Err(error) => {
                // The receiver is gone only if the walk has failed.
                let _ = report.send(Failure { bookmark: *bookmark, pointer: *pointer, error });
            }
        }
    }
}
