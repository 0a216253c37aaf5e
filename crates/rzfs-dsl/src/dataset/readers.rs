//! The snapshots that somebody reads while the pool changes.

use parking_lot::Mutex;
use rzfs_dmu::Existence;
use rzfs_format::ObjectId;
use std::collections::HashMap;

/// The snapshots of a pool that somebody reads, so that whoever destroys one can say so to them.
#[derive(Debug, Default)]
pub(crate) struct Readers(Mutex<HashMap<ObjectId, Existence>>);

impl Readers {
    /// What tells those who open a snapshot now when it is destroyed.
    pub(super) fn enter(&self, snapshot: ObjectId) -> Existence {
        let mut read = self.0.lock();
        if read.len() == read.capacity() {
            read.retain(|_, existence| existence.is_shared());
        }
        read.entry(snapshot).or_default().clone()
    }

    /// Tells those who read a snapshot that it is gone.
    pub(crate) fn end(&self, snapshot: ObjectId) {
        if let Some(existence) = self.0.lock().remove(&snapshot) {
            existence.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_of_a_snapshot_are_told_and_those_of_the_next_one_with_its_number_are_not() {
        let readers = Readers::default();
        let id = ObjectId(7);
        let (first, second) = (readers.enter(id), readers.enter(id));
        let other = readers.enter(ObjectId(8));
        readers.end(id);
        assert!(first.has_ended() && second.has_ended() && !other.has_ended());
        assert!(!readers.enter(id).has_ended());
    }

    #[test]
    fn what_nobody_reads_any_more_is_forgotten() {
        let readers = Readers::default();
        (0..10_000).for_each(|id| drop(readers.enter(ObjectId(id))));
        assert!(readers.0.lock().len() < 100);
    }
}
