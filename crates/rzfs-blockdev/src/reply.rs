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

    /// Answers on the spot.
    pub(crate) fn answer(self, result: io::Result<Option<IoBuffer>>) {
        drop(self.with(result));
    }

    /// The answer, to be delivered with others.
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

/// The answer to a request, which is delivered when it is dropped, if not before.
#[derive(Debug)]
pub(crate) struct Answer(Option<(Arc<CompletionQueue>, IoCompletion)>);

impl Answer {
    /// Delivers many answers, those that follow each other and have the same receiver together:
    /// who waits is woken once.
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
