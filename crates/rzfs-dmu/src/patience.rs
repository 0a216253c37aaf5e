//! Threads that may not fail because devices do: they wait until somebody has mended these.
//!
//! What a txg changes it has to read first, and a txg that is half made can neither be written nor
//! be taken back. So where others get an error, the thread that syncs, and those that help it, wait
//! and try again.

use crate::BlockError;
use parking_lot::RwLock;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Weak;

/// Waits for the devices of a pool.
pub trait DeviceWaiter: Send + Sync {
    /// Waits until devices that failed are to be asked again; `false`: they never are.
    fn wait(&self, error: &BlockError) -> bool;
}

/// What a thread does when devices fail.
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

/// A thread has another patience while this exists.
#[derive(Debug)]
#[must_use = "it ends when this is dropped"]
pub struct PatienceGuard {
    before: Patience,
    /// It is of the thread that made it.
    _of_thread: PhantomData<*const ()>,
}

impl Patience {
    /// That of this thread, for threads that help it.
    #[must_use]
    pub fn of_this_thread() -> Self {
        PATIENCE.get()
    }

    /// Makes it that of this thread.
    pub fn enter(self) -> PatienceGuard {
        PatienceGuard { before: PATIENCE.replace(self), _of_thread: PhantomData }
    }
}

impl Drop for PatienceGuard {
    fn drop(&mut self) {
        PATIENCE.set(self.before);
    }
}

/// Who waits, when the pool is one that is written.
#[derive(Default)]
pub(crate) struct Waiter(RwLock<Option<Weak<dyn DeviceWaiter>>>);

impl Waiter {
    /// Says who waits.
    pub(crate) fn set(&self, waiter: Weak<dyn DeviceWaiter>) {
        *self.0.write() = Some(waiter);
    }

    /// Waits for devices because of this error, if this thread is to and they may have what is
    /// wanted; whether to try again then.
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
