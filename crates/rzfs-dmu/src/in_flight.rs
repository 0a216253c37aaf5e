//! Blocks on their way to the devices.
//!
//! A pointer is valid as soon as its block has a place, but a sync pass waits for the devices only
//! at its end. A reader that follows the pointer in between finds the block in the cache, or, if
//! the cache had no room for it, here.

use bytes::Bytes;
use parking_lot::Mutex;
use rzfs_format::{Dva, Txg, VdevId};
use std::collections::HashMap;
use std::sync::Arc;

/// Where a copy of a block goes.
type Place = (VdevId, u64);

/// The copies that are not on disk yet.
#[derive(Debug, Default)]
pub(crate) struct InFlight(Mutex<HashMap<Place, (Txg, Bytes)>>);

/// A copy being written; it can be read as long as this exists.
#[derive(Debug)]
pub(crate) struct Flight {
    all: Arc<InFlight>,
    place: Place,
    data: Bytes,
}

impl InFlight {
    /// Registers a copy being written.
    pub(crate) fn begin(self: &Arc<Self>, dva: Dva, birth: Txg, data: &Bytes) -> Flight {
        let place = (dva.vdev(), dva.offset());
        self.0.lock().insert(place, (birth, data.clone()));
        Flight { all: Arc::clone(self), place, data: data.clone() }
    }

    /// A copy of this size and birth, if it is being written to this place.
    pub(crate) fn get(&self, dva: Dva, birth: Txg, size: u64) -> Option<Bytes> {
        let flights = self.0.lock();
        let (born, data) = flights.get(&(dva.vdev(), dva.offset()))?;
        (*born == birth && data.len() as u64 == size).then(|| data.clone())
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut flights = self.all.0.lock();
        // A block rewritten in place has a newer copy in flight.
        let is_last =
            flights.get(&self.place).is_some_and(|(_, data)| data.as_ptr() == self.data.as_ptr());
        if is_last {
            flights.remove(&self.place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_there_until_they_have_arrived() {
        let all = Arc::new(InFlight::default());
        let dva = Dva::new(VdevId(1), 4096, 512, false);
        let [old, new] = [1, 2].map(|byte| Bytes::from(vec![byte; 512]));
        let first = all.begin(dva, Txg(5), &old);
        assert_eq!(all.get(dva, Txg(5), 512), Some(old));
        assert_eq!(all.get(dva, Txg(4), 512), None, "what was there before");
        assert_eq!(all.get(dva, Txg(5), 1024), None);
        let second = all.begin(dva, Txg(5), &new);
        drop(first);
        assert_eq!(all.get(dva, Txg(5), 512), Some(new));
        drop(second);
        assert_eq!(all.get(dva, Txg(5), 512), None);
    }
}
