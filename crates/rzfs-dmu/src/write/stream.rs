//! Asynchronous device writes, waited for at the end of a sync pass.

use crate::in_flight::Flight;
use crate::threads::start_up_to;
use bytes::Bytes;
use crossbeam::channel::{Receiver, Sender, TrySendError, bounded};
use parking_lot::Mutex;
use rzfs_format::{Dva, Txg};
use rzfs_vdev::VdevError;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// Maximum writes queued for the devices, besides those in progress.
const QUEUE: usize = 1024;
/// Bytes passed to the devices at once.
const BATCH_BYTES: usize = 16 << 20;
/// Number of concurrent batches.
const THREADS: usize = 2;

/// One copy of a block being written.
#[derive(Clone, Debug)]
pub struct DeviceWrite {
    /// Its address; not that of a gang tree but of one piece.
    pub dva: Dva,
    /// The physical birth of the block.
    pub birth: Txg,
    /// The stored data: a multiple of 512 bytes.
    pub data: Bytes,
    /// Makes it readable meanwhile.
    pub(super) _flight: Arc<Flight>,
}

/// Writes blocks to devices: the pool's vdevs.
pub trait DeviceWriter: Send + Sync {
    /// Writes all, and waits for them; the results are in the order of the writes. A write succeeds
    /// when the data can be read back, possibly with less redundancy.
    fn write(&self, writes: Vec<DeviceWrite>) -> Vec<Result<(), VdevError>>;
}

/// A write that failed despite redundancy.
#[derive(Debug)]
pub struct FailedWrite {
    /// The write, which can be retried.
    pub write: DeviceWrite,
    /// Why.
    pub error: VdevError,
}

/// The writes of a sync pass, done by separate threads.
pub struct WriteStream {
    queue: Sender<DeviceWrite>,
    takers: QueueConsumer,
}

/// Consumer of the write queue.
enum QueueConsumer {
    Threads(Vec<JoinHandle<Vec<FailedWrite>>>),
    /// The callers that add to it, as the system cannot start threads.
    Adders {
        devices: Arc<dyn DeviceWriter>,
        writes: Receiver<DeviceWrite>,
        failed: Mutex<Vec<FailedWrite>>,
    },
}

impl std::fmt::Debug for WriteStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteStream").field("waiting", &self.queue.len()).finish_non_exhaustive()
    }
}

/// Retries failed writes at their places; returns those that still fail.
#[must_use]
pub fn write_again(devices: &dyn DeviceWriter, failed: Vec<FailedWrite>) -> Vec<FailedWrite> {
    let writes: Vec<DeviceWrite> = failed.into_iter().map(|failed| failed.write).collect();
    write_batch(devices, writes)
}

/// Writes a batch; its blocks stay readable here until they are written.
fn write_batch(devices: &dyn DeviceWriter, mut batch: Vec<DeviceWrite>) -> Vec<FailedWrite> {
    // Neighbours on a device are usually neighbours in a file.
    batch.sort_by_key(|write| (write.dva.vdev(), write.dva.offset()));
    let results = devices.write(batch.clone());
    let failed = batch.into_iter().zip(results);
    failed.filter_map(|(write, result)| Some(FailedWrite { write, error: result.err()? })).collect()
}

impl WriteStream {
    /// A stream to these devices.
    #[must_use]
    pub fn start(devices: &Arc<dyn DeviceWriter>) -> Self {
        let (queue, writes) = bounded(QUEUE);
        let thread = |_| {
            let (devices, writes) = (Arc::clone(devices), writes.clone());
            let work = move || write_all(&*devices, &writes, |writes| writes.recv().ok());
            Builder::new().name("rzfs-write".to_owned()).spawn(work)
        };
        let threads = start_up_to(THREADS, thread);
        let takers = match threads.is_empty() {
            true => QueueConsumer::Adders {
                devices: Arc::clone(devices),
                writes,
                failed: Mutex::default(),
            },
            false => QueueConsumer::Threads(threads),
        };
        Self { queue, takers }
    }

    /// Adds a write; waits only when the queue is full.
    pub fn push(&self, mut write: DeviceWrite) {
        let QueueConsumer::Adders { devices, writes, failed } = &self.takers else {
            // The receivers live until the sender is dropped.
            let _ = self.queue.send(write);
            return;
        };
        while let Err(TrySendError::Full(refused)) = self.queue.try_send(write) {
            let unsaved = write_all(&**devices, writes, |writes| writes.try_recv().ok());
            failed.lock().extend(unsaved);
            write = refused;
        }
    }

    /// Waits until everything is written, and returns the failed writes.
    pub fn finish(self) -> Vec<FailedWrite> {
        let Self { queue, takers } = self;
        drop(queue);
        match takers {
            QueueConsumer::Threads(threads) => {
                let result = |thread: JoinHandle<_>| {
                    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                };
                threads.into_iter().flat_map(result).collect()
            }
            QueueConsumer::Adders { devices, writes, failed } => {
                let mut failed = failed.into_inner();
                failed.extend(write_all(&*devices, &writes, |writes| writes.recv().ok()));
                failed
            }
        }
    }
}

/// Writes the queue batch by batch until it is closed.
fn write_all(
    devices: &dyn DeviceWriter,
    writes: &Receiver<DeviceWrite>,
    next: impl Fn(&Receiver<DeviceWrite>) -> Option<DeviceWrite>,
) -> Vec<FailedWrite> {
    let mut failed = Vec::new();
    while let Some(first) = next(writes) {
        let mut bytes = first.data.len();
        let mut batch = vec![first];
        while bytes < BATCH_BYTES
            && let Ok(next) = writes.try_recv()
        {
            bytes += next.data.len();
            batch.push(next);
        }
        failed.extend(write_batch(devices, batch));
    }
    failed
}
