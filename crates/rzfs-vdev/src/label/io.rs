//! Writes of parts of labels: sent together, with separate results.

use crate::unconfirmed::{KeptWrite, Standing};
use bytes::Bytes;
use rzfs_blockdev::{
    BlockDevice, CompletionQueue, DeviceError, IoBuffer, IoOperation, IoRequest, submit_awaited,
};
use std::io::ErrorKind;
use std::sync::Arc;

/// A part of a label to write.
#[derive(Debug)]
pub(super) struct LabelWrite<'a> {
    pub(super) device: &'a Arc<dyn BlockDevice>,
    pub(super) offset: u64,
    pub(super) block: std::io::Result<Bytes>,
}

impl LabelWrite<'_> {
    /// The write that a leaf keeps until it is flushed.
    pub(super) fn to_keep(&self) -> Option<KeptWrite> {
        let data = self.block.as_ref().ok()?.clone();
        Some(KeptWrite { position: self.offset, data, birth: None, standing: Standing::Sent })
    }
}

/// Writes all and waits for them; the results are in the order of the writes.
pub(super) fn write(writes: Vec<LabelWrite<'_>>) -> Vec<Result<(), DeviceError>> {
    run(writes.into_iter().map(|write| {
        let operation = write.block.map(IoOperation::Write);
        (write.device, write.offset, operation)
    }))
}

/// Flushes all devices and waits for them; one without a write cache has nothing to do.
pub(crate) fn flush<'a>(
    devices: impl Iterator<Item = &'a Arc<dyn BlockDevice>>,
) -> Vec<Result<(), DeviceError>> {
    let answers = run(devices.map(|device| (device, 0, Ok(IoOperation::Flush))));
    let is_uncached = |error: &DeviceError| error.source.kind() == ErrorKind::Unsupported;
    answers
        .into_iter()
        .map(|answer| match answer {
            Err(error) if !is_uncached(&error) => Err(error),
            _ => Ok(()),
        })
        .collect()
}

fn run<'a>(
    operations: impl Iterator<Item = (&'a Arc<dyn BlockDevice>, u64, std::io::Result<IoOperation>)>,
) -> Vec<Result<(), DeviceError>> {
    let completions = CompletionQueue::new();
    let mut answers = Vec::new();
    let mut batches = Vec::new();
    for (device, offset, operation) in operations {
        let token = answers.len() as u64;
        match operation {
            Ok(operation) => {
                batches.push((device.as_ref(), vec![IoRequest { token, offset, operation }]));
                answers.push(Ok(()));
            }
            Err(source) => answers.push(Err(DeviceError {
                device: device.name().into(),
                operation: "write",
                offset,
                len: 0,
                source: Arc::new(source),
            })),
        }
    }
    let awaited = batches.len();
    submit_awaited(batches, awaited, &completions);
    for _ in 0..awaited {
        let completion = completions.wait();
        let index = usize::try_from(completion.token).unwrap_or(usize::MAX);
        if let (Err(error), Some(answer)) = (completion.result, answers.get_mut(index)) {
            *answer = Err(error);
        }
    }
    answers
}

/// Zeros of a part of a label.
pub(super) fn zeros(len: usize) -> std::io::Result<Bytes> {
    IoBuffer::zeroed(len).map(IoBuffer::freeze)
}
