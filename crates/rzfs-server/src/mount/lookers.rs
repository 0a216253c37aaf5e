//! Threads that inspect possibly unresponsive devices.

use std::sync::Arc;

/// The concurrent inspections of a pool's devices: each holds a reference.
#[derive(Debug, Default)]
pub(super) struct Inspectors(Arc<()>);

/// Why no inspection was started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotStarted {
    /// Enough are running: devices that do not answer these answer no others.
    Many,
    /// The system cannot start a thread.
    NoThread,
}

impl Inspectors {
    const MOST: usize = 16;

    /// Starts an inspection on a thread that is not waited for.
    pub(super) fn start(&self, look: impl FnOnce() + Send + 'static) -> Result<(), NotStarted> {
        let place = Arc::clone(&self.0);
        if self.count() > Self::MOST {
            return Err(NotStarted::Many);
        }
        let look = move || {
            look();
            drop(place);
        };
        let thread = std::thread::Builder::new().name("rzfs-look".to_owned()).spawn(look);
        thread.map(drop).map_err(|_| NotStarted::NoThread)
    }

    fn count(&self) -> usize {
        Arc::strong_count(&self.0).saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn devices_that_do_not_answer_take_a_few_threads_only() {
        let lookers = Inspectors::default();
        let device = Arc::new(Mutex::new(()));
        let busy = device.lock().unwrap();
        for _ in 0..Inspectors::MOST {
            let device = Arc::clone(&device);
            assert_eq!(lookers.start(move || drop(device.lock())), Ok(()));
        }
        assert_eq!(lookers.start(|| ()), Err(NotStarted::Many));
        drop(busy);
        while lookers.count() > 0 {
            std::thread::yield_now();
        }
        assert_eq!(lookers.start(|| ()), Ok(()));
    }
}
