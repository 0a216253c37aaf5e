//! Device writes that nobody waits for until the end of a sync pass.

use crate::in_flight::Flight;
use crate::threads::start_up_to;
use bytes::Bytes;
use crossbeam::channel::{Receiver, Sender, TrySendError, bounded};
use parking_lot::Mutex;
use rzfs_format::{Dva, Txg};
use rzfs_vdev::VdevError;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// Writes that may wait for the devices, beyond those that are under way.
const QUEUE: usize = 1024;
/// Bytes that are handed to the devices at once.
const BATCH_BYTES: usize = 16 << 20;
/// Batches that are under way together.
const THREADS: usize = 2;

/// One copy of a block, on its way to its place.
#[derive(Clone, Debug)]
pub struct DeviceWrite {
    /// Where; not the address of a gang's tree but of one piece.
    pub dva: Dva,
    /// The physical birth of the block.
    pub birth: Txg,
    /// What is stored: a multiple of 512 bytes.
    pub data: Bytes,
    /// Lets others read it meanwhile.
    pub(super) _flight: Arc<Flight>,
}

/// What takes blocks to devices: the pool's vdevs.
pub trait DeviceWriter: Send + Sync {
    /// Writes all, and waits for them; the results are in the order of the writes. A write
    /// succeeds when what is stored can be read back, perhaps with less redundancy.
    fn write(&self, writes: Vec<DeviceWrite>) -> Vec<Result<(), VdevError>>;
}

/// A write that no redundancy could save.
#[derive(Debug)]
pub struct FailedWrite {
    /// What was to be written; it can be tried again.
    pub write: DeviceWrite,
    /// Why.
    pub error: VdevError,
}

/// The writes of a sync pass, under way on threads of their own.
pub struct WriteStream {
    queue: Sender<DeviceWrite>,
    takers: QueueConsumer,
}

/// Who takes writes from the queue.
enum QueueConsumer {
    Threads(Vec<JoinHandle<Vec<FailedWrite>>>),
    /// Whoever adds to it, as the system has no threads to give.
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

/// Tries failed writes again, at their places; tells what still fails.
#[must_use]
pub fn write_again(devices: &dyn DeviceWriter, failed: Vec<FailedWrite>) -> Vec<FailedWrite> {
    let writes: Vec<DeviceWrite> = failed.into_iter().map(|failed| failed.write).collect();
    write_batch(devices, writes)
}

/// Writes a batch; what is kept here can be read by others until it is written.
fn write_batch(devices: &dyn DeviceWriter, mut batch: Vec<DeviceWrite>) -> Vec<FailedWrite> {
    // Neighbours on a device are most often neighbours in a file.
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

    /// Adds a write; waits only when very many are waiting already.
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

    /// Waits until everything is written, and tells what is not.
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

/// Writes what is waiting, batch by batch, until there is no next one.
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
