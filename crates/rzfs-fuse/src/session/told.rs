//! The kernel's knowledge after a reply.

use super::Session;
use crate::attributes::Entry;
use fuser::FileAttr;
use std::time::Duration;

/// The result of a change.
pub(super) trait RevocableReply: Send + 'static {
    /// Undoes a result that is not sent, since the change cannot be made durable.
    fn take_back(self, session: &Session);
}

impl RevocableReply for Entry {
    fn take_back(self, session: &Session) {
        session.forget(self.attributes.ino, 1);
    }
}

impl RevocableReply for () {
    fn take_back(self, _: &Session) {}
}

impl RevocableReply for u64 {
    fn take_back(self, _: &Session) {}
}

impl RevocableReply for Vec<u8> {
    fn take_back(self, _: &Session) {}
}

impl RevocableReply for (FileAttr, Duration) {
    fn take_back(self, _: &Session) {}
}
