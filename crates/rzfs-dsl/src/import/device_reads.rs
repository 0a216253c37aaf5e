//! Reads of many devices at once, outside the vdev tree.

use rzfs_blockdev::{BlockDevice, CompletionQueue, DeviceError, IoBuffer, IoOperation, IoRequest};
use std::collections::HashMap;
use std::sync::Arc;

/// A range of a device.
#[derive(Clone)]
pub(super) struct DeviceRead {
    /// The device.
    pub(super) device: Arc<dyn BlockDevice>,
    /// Byte offset.
    pub(super) offset: u64,
    /// Bytes.
    pub(super) len: usize,
}

/// Reads all ranges concurrently; the results are in the order of the ranges.
pub(super) fn read_all(reads: &[DeviceRead]) -> Vec<Result<IoBuffer, DeviceError>> {
    let completions = CompletionQueue::new();
    let mut results: Vec<Option<Result<IoBuffer, DeviceError>>> = Vec::new();
    let mut batches: HashMap<*const (), (Arc<dyn BlockDevice>, Vec<IoRequest>)> = HashMap::new();
    let mut in_flight = 0_usize;
    for (index, read) in reads.iter().enumerate() {
        match IoBuffer::zeroed(read.len) {
            Ok(buffer) => {
                let operation = IoOperation::Read(buffer);
                let request = IoRequest { token: index as u64, offset: read.offset, operation };
                let device = Arc::as_ptr(&read.device).cast();
                let batch = batches.entry(device);
                batch.or_insert_with(|| (Arc::clone(&read.device), Vec::new())).1.push(request);
                in_flight += 1;
                results.push(None);
            }
            Err(source) => results.push(Some(Err(failure(read, source)))),
        }
    }
    for (device, requests) in batches.into_values() {
        device.submit(requests, &completions);
    }
    for _ in 0..in_flight {
        let completion = completions.wait();
        let index = completion.token as usize;
        if let (Some(slot), Some(read)) = (results.get_mut(index), reads.get(index)) {
            let eof = || failure(read, std::io::ErrorKind::UnexpectedEof.into());
            *slot = Some(completion.result.and_then(|buffer| buffer.ok_or_else(eof)));
        }
    }
    let answered = results.into_iter().zip(reads);
    answered
        .map(|(result, read)| {
            result.unwrap_or_else(|| Err(failure(read, std::io::ErrorKind::Other.into())))
        })
        .collect()
}

fn failure(read: &DeviceRead, source: std::io::Error) -> DeviceError {
    DeviceError {
        device: read.device.name().into(),
        operation: "read",
        offset: read.offset,
        len: read.len as u64,
        source: Arc::new(source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_blockdev::MemoryDevice;

    #[test]
    fn results_come_in_the_order_of_the_reads() {
        let device = |byte: u8| -> Arc<dyn BlockDevice> {
            Arc::new(MemoryDevice::from_bytes("m", vec![byte; 8192].into()))
        };
        let (a, b) = (device(1), device(2));
        let read = |device: &Arc<dyn BlockDevice>, offset| DeviceRead {
            device: Arc::clone(device),
            offset,
            len: 512,
        };
        let reads = [read(&b, 0), read(&a, 512), read(&b, 8192), read(&a, 0)];
        let results = read_all(&reads);
        let bytes: Vec<_> =
            results.iter().map(|result| result.as_ref().ok().map(|buffer| buffer[0])).collect();
        assert_eq!(bytes, [Some(2), Some(1), None, Some(1)]);
    }
}
