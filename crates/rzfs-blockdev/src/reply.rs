//! The obligation to complete a request.

use crate::{CompletionQueue, DeviceError, IoBuffer, IoCompletion, IoRequest};
use std::io;
use std::sync::Arc;

/// The destination of one request's completion, with the details for an error.
///
/// Completing consumes it; dropping it uncompleted completes with an error, so that no caller waits
/// for ever for a lost request.
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

    /// Completes immediately.
    pub(crate) fn answer(self, result: io::Result<Option<IoBuffer>>) {
        drop(self.with(result));
    }

    /// The reply, to be delivered with others.
    pub(crate) fn with(mut self, result: io::Result<Option<IoBuffer>>) -> Answer {
        self.take(result)
    }

    fn take(&mut self, result: io::Result<Option<IoBuffer>>) -> Answer {
        let result = result.map_err(|source| DeviceError {
            device: Arc::clone(&self.device),
            operation: self.operation,
            offset: self.offset,
            len: self.len,
            source: Arc::new(source),
        });
        let completion = IoCompletion { token: self.token, result };
        Answer(self.completions.take().map(|completions| (completions, completion)))
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.completions.is_some() {
            drop(self.take(Err(io::Error::other("the device gave up without an answer"))));
        }
    }
}

/// The reply to a request, which is delivered on drop at the latest.
#[derive(Debug)]
pub(crate) struct Answer(Option<(Arc<CompletionQueue>, IoCompletion)>);

impl Answer {
    /// Delivers many replies, consecutive ones with the same receiver together: the waiter is woken
    /// once.
    pub(crate) fn deliver_all(answers: &mut Vec<Self>) {
        let mut answers = answers.drain(..).filter_map(|mut answer| answer.0.take()).peekable();
        while let Some((receiver, first)) = answers.next() {
            let same = |next: &(Arc<CompletionQueue>, _)| Arc::ptr_eq(&receiver, &next.0);
            let others = std::iter::from_fn(|| answers.next_if(same)).map(|(_, other)| other);
            receiver.push_all(std::iter::once(first).chain(others));
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some((receiver, completion)) = self.0.take() {
            receiver.push(completion);
        }
    }
}
