//! Stops waits for the devices of a pool during a forced end.
//!
//! ```text
//! suspended ── failed I/O is retried, with a time limit ─┬─> resumes; may be suspended again
//!                                                        └─> given up: waits end with errors
//! ```
//! A pool may be suspended at any moment until it is closed, and a device may neither respond nor
//! fail.

use rzfs::WritablePool;
use rzfs_vdev::LeafDevices;
use std::convert::Infallible;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long devices may take to recover.
const MENDING_PATIENCE: Duration = Duration::from_secs(10);
/// How often to check whether the pool is suspended.
const GLANCE: Duration = Duration::from_millis(100);
/// How often a pool may resume, and be suspended again, before it is given up.
const MOST_MENDINGS: usize = 3;

/// Reopens devices that have come back.
pub(super) type Devices = Arc<dyn LeafDevices + Send + Sync>;

/// Stops waits for the devices of a pool as long as this exists.
#[derive(Debug)]
pub(super) struct Relief {
    _ends: mpsc::Sender<Infallible>,
}

impl Relief {
    /// When this returns there are no waits; a thread keeps it so.
    pub(super) fn begin(pool: &Arc<WritablePool>, devices: Devices) -> Self {
        Self::with_patience(pool, devices, MENDING_PATIENCE)
    }

    fn with_patience(pool: &Arc<WritablePool>, devices: Devices, patience: Duration) -> Self {
        let (ends, over) = mpsc::channel::<Infallible>();
        let mut relieving = Relieving { devices, patience, mendings: 0 };
        if relieving.relieve(pool) == Step::LookAgain {
            let weak = Arc::downgrade(pool);
            let look = move || relieving.look_until(&over, &weak);
            let thread = std::thread::Builder::new().name("rzfs-relief".to_owned());
            if thread.spawn(look).is_err() {
                // It does not wait later either.
                pool.live().give_up_waiting();
            }
        }
        Self { _ends: ends }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    LookAgain,
    /// The pool is given up.
    Over,
}

struct Relieving {
    devices: Devices,
    patience: Duration,
    mendings: usize,
}

impl Relieving {
    fn look_until(&mut self, over: &mpsc::Receiver<Infallible>, pool: &Weak<WritablePool>) {
        while over.recv_timeout(GLANCE) == Err(RecvTimeoutError::Timeout) {
            let Some(pool) = pool.upgrade() else { return };
            if self.relieve(&pool) == Step::Over {
                return;
            }
        }
    }

    /// Resumes a suspended pool, or gives it up.
    fn relieve(&mut self, pool: &Arc<WritablePool>) -> Step {
        if !pool.live().is_suspended() {
            return Step::LookAgain;
        }
        if self.mendings < MOST_MENDINGS && self.mend(pool) {
            self.mendings += 1;
            return Step::LookAgain;
        }
        pool.live().give_up_waiting();
        Step::Over
    }

    /// Retries failed I/O; returns whether that succeeded in time.
    fn mend(&self, pool: &Arc<WritablePool>) -> bool {
        let (done, is_mended) = mpsc::channel();
        let (pool, devices) = (Arc::clone(pool), Arc::clone(&self.devices));
        let work = move || {
            let cleared = pool.live().clear_with(None, devices.as_ref());
            drop(pool);
            // The caller may have given up.
            let _ = done.send(cleared.is_ok());
        };
        let thread = std::thread::Builder::new().name("rzfs-mend".to_owned()).spawn(work);
        thread.is_ok() && is_mended.recv_timeout(self.patience).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs::NewPool;
    use rzfs_blockdev::{Access, BlockDevice, FileIdentity};
    use rzfs_dsl::live::ChangeError;
    use rzfs_testkit::{Defect, SparseDevice};
    use rzfs_vdev::create::{NewDevice, TopLayout, TopSpec, VdevSpec};
    use rzfs_vdev::{AuxReason, VdevConfig, VdevKind};
    use std::sync::Mutex;
    use std::thread;
    use std::time::Instant;

    const EIO: i32 = 5;
    /// Longer than anything takes unless it hangs.
    const LONG: Duration = Duration::from_secs(60);

    /// Devices that have not come back; probing blocks while the lock is held.
    #[derive(Debug, Default)]
    struct Absent(Mutex<()>);

    impl LeafDevices for Absent {
        fn device(&self, _: &VdevConfig) -> Result<Arc<dyn BlockDevice>, AuxReason> {
            drop(self.0.lock());
            Err(AuxReason::OpenFailed)
        }
    }

    fn pool() -> (Arc<WritablePool>, Arc<SparseDevice>) {
        let device = SparseDevice::new(96 << 20);
        let new = NewDevice {
            path: "/sparse".to_owned(),
            kind: VdevKind::File,
            identity: FileIdentity::RegularFile { device: 0, inode: 1 },
            access: Access::ReadWrite,
            device: Arc::<SparseDevice>::clone(&device),
        };
        let top = TopSpec { layout: TopLayout::Single, bias: None, devices: vec![new] };
        let spec = VdevSpec { tops: vec![top], spares: Vec::new(), caches: Vec::new() };
        let pool = NewPool::new("tank").open_vdevs(spec).create().unwrap();
        pool.live().attend();
        (Arc::new(pool), device)
    }

    /// Suspends a pool by a change that its device fails.
    fn suspend(pool: &WritablePool, device: &SparseDevice) {
        device.damage_all(Defect::Errno(EIO));
        change(pool).unwrap_err();
    }

    fn change(pool: &WritablePool) -> Result<(), ChangeError> {
        pool.live().set_pool_property("comment", "changed".into())
    }

    /// Checks that writers no longer wait.
    fn assert_nobody_waits(pool: &WritablePool) {
        let files = pool.file_system("tank").unwrap();
        let waiting = thread::spawn(move || files.wait_while_suspended());
        let start = Instant::now();
        while !waiting.is_finished() {
            assert!(start.elapsed() < LONG, "somebody waits for the pool");
            thread::sleep(Duration::from_millis(1));
        }
        waiting.join().unwrap();
    }

    #[test]
    fn a_pool_that_is_suspended_later_keeps_nobody_waiting() {
        let (pool, device) = pool();
        drop(pool.file_system("tank").unwrap());
        let _relief = Relief::begin(&pool, Arc::new(Absent::default()));
        suspend(&pool, &device);
        assert_nobody_waits(&pool);
        change(&pool).unwrap_err();
    }

    #[test]
    fn a_suspended_pool_whose_device_is_well_again_goes_on() {
        let (pool, device) = pool();
        suspend(&pool, &device);
        device.take_damage();
        let _relief = Relief::begin(&pool, Arc::new(Absent::default()));
        assert!(!pool.live().is_suspended());
        change(&pool).unwrap();
    }

    #[test]
    fn devices_that_neither_answer_nor_fail_are_not_waited_for() {
        let (pool, device) = pool();
        drop(pool.file_system("tank").unwrap());
        suspend(&pool, &device);
        let absent = Arc::new(Absent::default());
        let silent = absent.0.lock().unwrap();
        let devices = Arc::<Absent>::clone(&absent);
        let _relief = Relief::with_patience(&pool, devices, Duration::from_millis(50));
        assert_nobody_waits(&pool);
        drop(silent);
    }
}
