//! The kernel's knowledge after a reply.

use super::Session;
use crate::attributes::Entry;
use fuser::FileAttr;
use std::time::Duration;

/// The result of a change.
pub(super) trait Told: Send + 'static {
    /// Undoes a result that is not sent, since the change cannot be made durable.
    fn take_back(self, session: &Session);
}

impl Told for Entry {
    fn take_back(self, session: &Session) {
        session.forget(self.attributes.ino, 1);
    }
}

impl Told for () {
    fn take_back(self, _: &Session) {}
}

impl Told for u64 {
    fn take_back(self, _: &Session) {}
}

impl Told for Vec<u8> {
    fn take_back(self, _: &Session) {}
}

impl Told for (FileAttr, Duration) {
    fn take_back(self, _: &Session) {}
}
