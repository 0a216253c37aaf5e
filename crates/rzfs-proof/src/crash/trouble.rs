//! Failing devices below programs that wait for their changes.
//!
//! ```text
//! change ── trouble strikes ── commit ─ acknowledged ── the device is mended ── change ...
//!                │ the pool is suspended
//!                └── mended, cleared: whoever waits goes on
//! ```
//! A flush fails and loses what was written, or does not; writes fail or are torn; a device
//! disappears, with the contents of its cache, and returns. Then the power is cut at moments of the
//! run. One device at a time has its own trouble; in addition, all of them can lose a flush at
//! once, which must have no effect.

use super::devices::SimulatedDevices;
use crate::OpenPool;
use rzfs_blockdev::SimulatedDevice;
use rzfs_blockdev::simulated::{Fault, FaultKind};
use rzfs_hostile::Random;
use rzfs_testkit::SetWhenDropped;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const EIO: i32 = 5;
const ENXIO: i32 = 6;
/// One of this many changes is followed by trouble.
const TROUBLE_EVERY: u64 = 4;
/// Interval of checks whether a pool is suspended.
const LOOK: Duration = Duration::from_millis(2);

/// The operation after trouble.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NextStep {
    /// A wait for everything so far.
    Commit,
    /// Another change, which may have to read.
    Change,
}

/// The faults of the devices in a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trouble {
    seed: Option<u64>,
}

impl Trouble {
    /// Nothing.
    pub(super) const fn none() -> Self {
        Self { seed: None }
    }

    /// The faults given by a seed.
    pub(super) const fn of_seed(seed: u64) -> Self {
        Self { seed: Some(seed) }
    }

    /// Injects the fault after a change.
    pub(super) fn strike(self, change: u64, next: NextStep, devices: &SimulatedDevices) {
        let Some(seed) = self.seed else { return };
        let mut random = Random::of_place(seed, &[0x7_20b1e, change]);
        if random.below(TROUBLE_EVERY) > 0 {
            return;
        }
        // The same one throughout a run: another one may hold the only copy of what this one lacks.
        let chosen = devices.nth(Random::of_place(seed, &[0x7_20b1e]).draw());
        let Some(device) = chosen else { return };
        let (spared, times) = (random.below(4), 1 + random.below(4));
        let inject = |device: &SimulatedDevice, kind| {
            device.inject(Fault::new(kind).after(spared).times(times));
        };
        match random.below(8) {
            0..3 => inject(device, FaultKind::DropOnFlush(EIO)),
            3 => inject(device, FaultKind::FailFlush(EIO)),
            4 => inject(device, FaultKind::FailWrite(EIO)),
            5 => inject(device, FaultKind::TearWrite(EIO)),
            // Read errors would not be repaired.
            6 if next == NextStep::Change => {}
            6 => {
                device.detach();
                device.lose_cache();
            }
            _ => {
                let errno = if random.below(2) == 0 { EIO } else { ENXIO };
                let kind = FaultKind::DropOnFlush(errno);
                let kind =
                    if devices.iter().count() > 1 { FaultKind::DropOnFlush(EIO) } else { kind };
                devices.iter().for_each(|device| {
                    device.inject(Fault::new(kind).times(1));
                });
            }
        }
    }

    /// Repairs all devices, as an administrator eventually does.
    pub(super) fn end(self, open: &OpenPool, devices: &SimulatedDevices) {
        if self.seed.is_some() {
            mend(open, devices);
        }
    }

    /// Runs an operation under supervision: when the pool is suspended, its devices are repaired.
    pub(super) fn run_with_repairs<T>(
        self,
        open: &OpenPool,
        devices: &SimulatedDevices,
        act: impl FnOnce() -> T,
    ) -> T {
        if self.seed.is_none() {
            return act();
        }
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Acquire) {
                    if open.pool.is_suspended() {
                        mend(open, devices);
                    }
                    thread::sleep(LOOK);
                }
            });
            let _end = SetWhenDropped(&is_done);
            act()
        })
    }
}

fn mend(open: &OpenPool, devices: &SimulatedDevices) {
    for device in devices.iter() {
        device.heal_all();
        // A device that silently loses what it should keep is unusable.
        device.reconnect();
    }
    // If it is suspended again, the supervisor comes back.
    let _ = open.pool.clear(None);
}
