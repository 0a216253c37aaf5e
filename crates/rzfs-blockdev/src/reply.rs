//! The obligation to answer a request.

use crate::{CompletionQueue, DeviceError, IoBuffer, IoCompletion, IoRequest};
use std::io;
use std::sync::Arc;

/// Where one request's answer goes, and what an error has to say about the request.
///
/// Answering consumes it; dropping it unanswered answers with an error, so that nobody waits for
/// ever for a request that was lost.
#[derive(Debug)]
pub(crate) struct Reply {
    completions: Option<Arc<CompletionQueue>>,
    token: u64,
    device: Arc<str>,
    operation: &'static str,
    offset: u64,
    len: u64,
}

impl Reply {
    pub(crate) fn new(
        device: &Arc<str>,
        request: &IoRequest,
        completions: &Arc<CompletionQueue>,
    ) -> Self {
        Self {
            completions: Some(Arc::clone(completions)),
            token: request.token,
            device: Arc::clone(device),
            operation: request.operation.name(),
            offset: request.offset,
            len: request.operation.len(),
        }
    }

    pub(crate) fn answer(mut self, result: io::Result<Option<IoBuffer>>) {
        self.send(result);
    }

    fn send(&mut self, result: io::Result<Option<IoBuffer>>) {
        let Some(completions) = self.completions.take() else { return };
        let result = result.map_err(|source| DeviceError {
            device: Arc::clone(&self.device),
            operation: self.operation,
            offset: self.offset,
            len: self.len,
            source: Arc::new(source),
        });
        completions.push(IoCompletion { token: self.token, result });
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.send(Err(io::Error::other("the device gave up without an answer")));
    }
}
