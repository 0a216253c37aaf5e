//! Why a pool is not written.

use crate::live::LiveError;
use std::sync::Arc;

/// Why a pool is not written, if so.
#[derive(Debug, Default)]
pub(crate) struct Failure {
    /// Until the failed operation is retried.
    waiting: Option<Arc<LiveError>>,
    /// For good.
    ended: Option<Arc<LiveError>>,
}

impl Failure {
    /// The reason; a permanent one comes first.
    pub(crate) fn reason(&self) -> Option<Arc<LiveError>> {
        self.ended.as_ref().or(self.waiting.as_ref()).cloned()
    }

    /// Suspends writing until the failed operation is retried.
    pub(crate) fn wait(&mut self, reason: Arc<LiveError>) {
        self.waiting = Some(reason);
    }

    /// Retries the failed operation.
    pub(crate) fn resume(&mut self) {
        self.waiting = None;
    }

    /// Ends writing. Later errors are consequences of the first reason, which is kept.
    pub(crate) fn end(&mut self, reason: LiveError) {
        self.ended.get_or_insert_with(|| match reason {
            // The wait for the failed operation is over: that is the reason.
            LiveError::Suspended { reason: Some(first) } => first,
            reason => Arc::new(reason),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(failure: &Failure) -> String {
        failure.reason().map_or_else(String::new, |reason| reason.to_string())
    }

    #[test]
    fn the_first_reason_for_which_writing_has_ended_stays() {
        let mut failure = Failure::default();
        assert_eq!(reason(&failure), "");
        let silent = LiveError::NoHeartbeat { seconds: 7 };
        let expected = silent.to_string();
        failure.end(silent);
        failure.end(LiveError::Panicked);
        assert_eq!(reason(&failure), expected);
        failure.wait(Arc::new(LiveError::Panicked));
        assert_eq!(reason(&failure), expected);
        failure.resume();
        assert_eq!(reason(&failure), expected, "it is not mended");
    }

    #[test]
    fn who_gives_up_waiting_names_what_was_waited_for() {
        let mut failure = Failure::default();
        let first = Arc::new(LiveError::NoHeartbeat { seconds: 7 });
        failure.wait(Arc::clone(&first));
        failure.end(LiveError::Suspended { reason: Some(Arc::clone(&first)) });
        assert_eq!(reason(&failure), first.to_string());
    }

    #[test]
    fn what_can_be_mended_is_forgotten_when_it_is_tried_again() {
        let mut failure = Failure::default();
        failure.wait(Arc::new(LiveError::Suspended { reason: None }));
        assert_eq!(reason(&failure), "the pool is suspended");
        failure.resume();
        assert_eq!(reason(&failure), "");
        failure.wait(Arc::new(LiveError::Suspended { reason: None }));
        failure.end(LiveError::Panicked);
        assert_eq!(reason(&failure), LiveError::Panicked.to_string());
    }
}
