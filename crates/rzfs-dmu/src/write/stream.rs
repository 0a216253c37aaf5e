//! Device writes that nobody waits for until the end of a sync pass.

use crate::in_flight::Flight;
use bytes::Bytes;
use crossbeam::channel::{Receiver, Sender, bounded};
use rzfs_format::{Dva, Txg};
use rzfs_vdev::VdevError;
use std::sync::Arc;
use std::thread::{JoinHandle, spawn};

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
#[derive(Debug)]
pub struct WriteStream {
    queue: Option<Sender<DeviceWrite>>,
    threads: Vec<JoinHandle<Vec<FailedWrite>>>,
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
            spawn(move || write_all(&*devices, &writes))
        };
        Self { queue: Some(queue), threads: (0..THREADS).map(thread).collect() }
    }

    /// Adds a write; waits only when very many are waiting already.
    pub fn push(&self, write: DeviceWrite) {
        if let Some(queue) = &self.queue {
            // The receivers live until the sender is dropped.
            let _ = queue.send(write);
        }
    }

    /// Waits until everything is written, and tells what is not.
    pub fn finish(mut self) -> Vec<FailedWrite> {
        self.queue = None;
        let threads = std::mem::take(&mut self.threads);
        let result = |thread: JoinHandle<_>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().flat_map(result).collect()
    }
}

fn write_all(devices: &dyn DeviceWriter, writes: &Receiver<DeviceWrite>) -> Vec<FailedWrite> {
    let mut failed = Vec::new();
    while let Ok(first) = writes.recv() {
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
