//! Threads that look at devices, which may not answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Who looks at the devices of a pool at the same time.
#[derive(Clone, Debug, Default)]
pub(super) struct Lookers(Arc<AtomicUsize>);

/// Why nobody looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unstarted {
    /// As many do already as are of use: devices that do not answer them answer nobody.
    Many,
    /// The system has no thread for it.
    NoThread,
}

impl Lookers {
    const MOST: usize = 16;

    /// Has a thread look that nobody waits for.
    pub(super) fn start(&self, look: impl FnOnce() + Send + 'static) -> Result<(), Unstarted> {
        let place = Place::take(self).ok_or(Unstarted::Many)?;
        let look = move || {
            look();
            drop(place);
        };
        let thread = std::thread::Builder::new().name("rzfs-look".to_owned()).spawn(look);
        thread.map(drop).map_err(|_| Unstarted::NoThread)
    }
}

/// That of one who looks.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(Lookers(count): &Lookers) -> Option<Self> {
        let place = Self(Arc::clone(count));
        (count.fetch_add(1, Ordering::AcqRel) < Lookers::MOST).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn devices_that_do_not_answer_take_a_few_threads_only() {
        let lookers = Lookers::default();
        let device = Arc::new(Mutex::new(()));
        let busy = device.lock().unwrap();
        for _ in 0..Lookers::MOST {
            let device = Arc::clone(&device);
            assert_eq!(lookers.start(move || drop(device.lock())), Ok(()));
        }
        assert_eq!(lookers.start(|| ()), Err(Unstarted::Many));
        drop(busy);
        while lookers.0.load(Ordering::Acquire) > 0 {
            std::thread::yield_now();
        }
        assert_eq!(lookers.start(|| ()), Ok(()));
    }
}
