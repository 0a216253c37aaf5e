//! Events of a pool since it was opened (spec 09, section 2.7).

use crate::protocol::{EventDetail, EventReport};
use rzfs_vdev::Vdev;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Number of events kept (`zfs_zevent_len_max`); older ones are dropped.
const KEPT: usize = 512;

/// The last events of a pool.
#[derive(Debug)]
pub(super) struct Events {
    pool: String,
    guid: u64,
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    events: VecDeque<EventReport>,
    count: u64,
}

impl Events {
    pub(super) fn new(pool: &str, guid: u64) -> Self {
        Self { pool: pool.to_owned(), guid, ring: Mutex::default() }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers an event: `pool_import`, `history_event`, ...
    pub(super) fn note(&self, name: &str, more: impl IntoIterator<Item = (&'static str, String)>) {
        let more = more.into_iter().map(|(name, about)| (name, EventDetail::Text(about)));
        self.push(name, more.collect());
    }

    /// Remembers an event of a leaf: `trim_start`, ...
    pub(super) fn note_leaf(&self, name: &str, leaf: Vdev<'_>) {
        let path = EventDetail::Text(leaf.name().to_owned());
        let guid = EventDetail::Number(leaf.guid().get());
        self.push(name, vec![("vdev_guid", guid), ("vdev_path", path)]);
    }

    fn push(&self, name: &str, more: Vec<(&'static str, EventDetail)>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let class = format!("sysevent.fs.zfs.{name}");
        let text = |name: &str, text: &str| (name.to_owned(), EventDetail::Text(text.to_owned()));
        let number = |name: &str, number| (name.to_owned(), EventDetail::Number(number));
        let mut ring = self.ring();
        ring.count += 1;
        let mut details = vec![
            number("version", 0),
            text("class", &class),
            text("pool", &self.pool),
            number("pool_guid", self.guid),
        ];
        details.extend(more.into_iter().map(|(name, about)| (name.to_owned(), about)));
        details.push(number("eid", ring.count));
        let (seconds, nanoseconds) = (now.as_secs(), now.subsec_nanos());
        ring.events.push_back(EventReport { class, seconds, nanoseconds, details });
        if ring.events.len() > KEPT {
            ring.events.pop_front();
        }
    }

    /// All that are kept, the oldest first.
    pub(super) fn all(&self) -> Vec<EventReport> {
        self.ring().events.iter().cloned().collect()
    }

    /// Drops them; returns their number.
    pub(super) fn clear(&self) -> u64 {
        std::mem::take(&mut self.ring().events).len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_events_are_kept_in_order() {
        let events = Events::new("tank", 7);
        for number in 0..KEPT + 3 {
            events.note("history_event", [("history_command", number.to_string())]);
        }
        let all = events.all();
        assert_eq!(all.len(), KEPT);
        assert_eq!(all[0].class, "sysevent.fs.zfs.history_event");
        let last = all[KEPT - 1].details.last().cloned();
        assert_eq!(last, Some(("eid".to_owned(), EventDetail::Number(KEPT as u64 + 3))));
        assert_eq!(events.clear(), KEPT as u64);
        assert_eq!(events.all(), []);
    }
}
