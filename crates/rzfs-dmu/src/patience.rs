//! Threads that must not fail because of devices: they wait until these are repaired.
//!
//! A txg has to read what it changes, and a half-written txg can neither be completed nor reverted.
//! So where others get an error, the syncing thread and its helpers wait and retry.

use crate::BlockError;
use parking_lot::RwLock;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Weak;

/// Waits for the devices of a pool.
pub trait DeviceWaiter: Send + Sync {
    /// Waits until failed devices are to be retried; `false`: they never are.
    fn wait(&self, error: &BlockError) -> bool;
}

/// How a thread reacts to failing devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Patience {
    /// It gets an error.
    #[default]
    None,
    /// It waits for them.
    Endless,
}

thread_local! {
    static PATIENCE: Cell<Patience> = const { Cell::new(Patience::None) };
}

/// Sets the patience of a thread while it exists.
#[derive(Debug)]
#[must_use = "it ends when this is dropped"]
pub struct PatienceGuard {
    before: Patience,
    /// Not [`Send`]: it belongs to the thread that created it.
    _of_thread: PhantomData<*const ()>,
}

impl Patience {
    /// The current patience of this thread, for its helpers.
    #[must_use]
    pub fn of_this_thread() -> Self {
        PATIENCE.get()
    }

    /// Sets it for this thread.
    pub fn enter(self) -> PatienceGuard {
        PatienceGuard { before: PATIENCE.replace(self), _of_thread: PhantomData }
    }
}

impl Drop for PatienceGuard {
    fn drop(&mut self) {
        PATIENCE.set(self.before);
    }
}

/// The device waiter of a writable pool.
#[derive(Default)]
pub(crate) struct Waiter(RwLock<Option<Weak<dyn DeviceWaiter>>>);

impl Waiter {
    /// Sets the waiter.
    pub(crate) fn set(&self, waiter: Weak<dyn DeviceWaiter>) {
        *self.0.write() = Some(waiter);
    }

    /// Waits for devices because of this error, if this thread is patient and they may have the
    /// data; returns whether to retry.
    pub(crate) fn wait(&self, error: &BlockError) -> bool {
        if Patience::of_this_thread() == Patience::None || !error.may_come_back() {
            return false;
        }
        let waiter = self.0.read().as_ref().and_then(Weak::upgrade);
        waiter.is_some_and(|waiter| waiter.wait(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_format::Guid;
    use rzfs_vdev::VdevError;
    use std::sync::Arc;

    struct Mended;

    impl DeviceWaiter for Mended {
        fn wait(&self, _: &BlockError) -> bool {
            true
        }
    }

    #[test]
    fn patient_threads_wait_for_whatever_devices_that_are_missing_may_have() {
        let (mended, waiter) = (Arc::new(Mended) as Arc<dyn DeviceWaiter>, Waiter::default());
        waiter.set(Arc::downgrade(&mended));
        let wrong = |absent| {
            let (name, guid, offset) = ("mirror-0".into(), Guid(3), 0);
            BlockError::from(VdevError::Checksum { name, guid, offset, attempts: 1, absent })
        };
        let (name, guid, offset) = ("mirror-0".into(), Guid(3), 0);
        let away = BlockError::from(VdevError::Unavailable { name, guid, offset });
        assert!(!waiter.wait(&away), "others get an error");
        let _patience = Patience::Endless.enter();
        assert!(waiter.wait(&away) && waiter.wait(&wrong(1)));
        assert!(!waiter.wait(&wrong(0)), "nobody has it");
    }
}
