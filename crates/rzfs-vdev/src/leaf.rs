//! Leaves: a device, its health, its missing data, and its load.

use crate::config::VdevConfig;
use crate::dtl::DirtyTimeLog;
use crate::health::{AuxReason, Health, HealthCell, LeafEvent};
use crate::unconfirmed::Unconfirmed;
use parking_lot::{Mutex, RwLock};
use rzfs_blockdev::BlockDevice;
use rzfs_format::label::LeafSize;
use rzfs_format::uberblock::Uberblock;
use rzfs_format::{BlockPointer, Guid, Txg};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Provides the devices of a [`crate::VdevTree`]'s leaves.
pub trait LeafDevices {
    /// The device of a leaf, its label already validated.
    ///
    /// # Errors
    /// Why there is none: [`AuxReason::OpenFailed`] if it was not found,
    /// [`AuxReason::CorruptData`] if the label is another vdev's, and so on.
    fn device(&self, leaf: &VdevConfig) -> Result<Arc<dyn BlockDevice>, AuxReason>;

    /// Whether a device can be opened for a leaf, so that one that does not respond is closed for
    /// it.
    fn has_candidate(&self, leaf: &VdevConfig) -> bool {
        self.device(leaf).is_ok()
    }
}

impl<S: std::hash::BuildHasher> LeafDevices for HashMap<Guid, Arc<dyn BlockDevice>, S> {
    fn device(&self, leaf: &VdevConfig) -> Result<Arc<dyn BlockDevice>, AuxReason> {
        self.get(&leaf.guid).cloned().ok_or(AuxReason::OpenFailed)
    }
}

/// Distance below which a seek of a rotating disk counts as short.
const SHORT_SEEK: u64 = 1 << 20;

/// A leaf's requirements on its device.
#[derive(Clone, Copy, Debug)]
struct Demands {
    /// Allocatable bytes.
    asize: u64,
    /// log2 of the smallest I/O, if known.
    ashift: Option<u32>,
}

impl Demands {
    /// Checks a device; returns why it is unsuitable.
    fn check(self, device: &dyn BlockDevice) -> Result<(), AuxReason> {
        let geometry = device.geometry();
        let size = LeafSize::of_device(geometry.size).ok_or(AuxReason::TooSmall)?;
        let coarse = |ashift: u32| u64::from(geometry.logical_sector) > 1 << ashift;
        if size.allocatable() < self.asize || self.ashift.is_some_and(coarse) {
            return Err(AuxReason::BadLabel);
        }
        Ok(())
    }
}

/// Distinguishes an uberblock of this process from another process's for the same txg.
#[derive(Clone, Copy, Debug)]
struct SentUberblock {
    txg: Txg,
    mos: BlockPointer,
}

/// The state of a leaf that is a device.
#[derive(Debug)]
pub(crate) struct Leaf {
    /// Users hold it: it may be replaced meanwhile.
    device: RwLock<Option<Arc<dyn BlockDevice>>>,
    demands: Demands,
    health: HealthCell,
    missing: DirtyTimeLog,
    unconfirmed: Unconfirmed,
    /// Txg of the newest durable uberblock on it, among those written since the pool was opened.
    committed: AtomicU64,
    /// The last uberblock sent to it.
    sent: Mutex<Option<SentUberblock>>,
    doubts: AtomicU64,
    rotational: bool,
    pending: AtomicU32,
    last_end: AtomicU64,
    probing: AtomicBool,
    /// Whether its state is dropped at the next import.
    temporary: AtomicBool,
    /// Whether the device does not support discard.
    keeps_everything: AtomicBool,
}

impl Leaf {
    /// Opens the leaf as far as its flags allow (spec 07, section 4.3). `min_asize` is what the
    /// parent requires and `ashift` the top-level vdev's, if known.
    pub(crate) fn open(
        config: &VdevConfig,
        devices: &dyn LeafDevices,
        min_asize: u64,
        ashift: Option<u32>,
    ) -> Self {
        let demands = Demands { asize: min_asize, ashift };
        let (device, event) = Self::find(config, devices, demands);
        let unconfirmed = Unconfirmed::default();
        if device.is_none() {
            unconfirmed.resign();
        }
        Self {
            device: RwLock::new(device),
            demands,
            health: HealthCell::new(Health::UNKNOWN.after(event)),
            missing: DirtyTimeLog::unloaded(config.leaf.waits_for_resilver()),
            unconfirmed,
            committed: AtomicU64::new(0),
            sent: Mutex::default(),
            doubts: AtomicU64::new(0),
            rotational: config.hints.rotational.is_some_and(|rotational| rotational != 0),
            pending: AtomicU32::new(0),
            last_end: AtomicU64::new(0),
            probing: AtomicBool::new(false),
            temporary: AtomicBool::new(false),
            keeps_everything: AtomicBool::new(false),
        }
    }

    fn find(
        config: &VdevConfig,
        devices: &dyn LeafDevices,
        demands: Demands,
    ) -> (Option<Arc<dyn BlockDevice>>, LeafEvent) {
        let flags = &config.flags;
        if flags.offline {
            return (None, LeafEvent::TakenOffline);
        }
        if flags.faulted
            && flags.aux_state.as_ref().is_some_and(|aux| aux.as_bytes() == b"external")
        {
            return (None, LeafEvent::FaultedExternally);
        }
        let device = match devices.device(config) {
            Ok(device) => device,
            Err(AuxReason::OpenFailed) if flags.removed => return (None, LeafEvent::Vanished),
            Err(aux) => return (None, LeafEvent::OpenFailed(aux)),
        };
        match demands.check(&*device) {
            Ok(()) => (Some(device), LeafEvent::Opened { degraded: flags.degraded }),
            Err(aux) => (None, LeafEvent::OpenFailed(aux)),
        }
    }

    /// Replaces its device, if it had one.
    ///
    /// # Errors
    /// The device is unsuitable.
    pub(crate) fn take_device(&self, device: Arc<dyn BlockDevice>) -> Result<(), AuxReason> {
        self.demands.check(&*device)?;
        // Closing a file may take a while.
        let before = self.device.write().replace(device);
        drop(before);
        self.suspect();
        self.keeps_everything.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Closes a device that no longer responds: while it is open, its lock keeps everybody,
    /// including this process, from opening its replacement.
    pub(crate) fn close_device(&self) {
        let before = self.device.write().take();
        drop(before);
    }

    /// Whether I/O may be sent to its device.
    pub(crate) fn is_usable(&self) -> bool {
        self.health.get().is_usable() && self.device.read().is_some()
    }

    /// The device, if I/O may be sent to it.
    pub(crate) fn usable_device(&self) -> Option<Arc<dyn BlockDevice>> {
        self.device().filter(|_| self.health.get().is_usable())
    }

    /// The device, whatever its state.
    pub(crate) fn device(&self) -> Option<Arc<dyn BlockDevice>> {
        self.device.read().clone()
    }

    pub(crate) fn health(&self) -> Health {
        self.health.get()
    }

    pub(crate) fn apply(&self, event: LeafEvent) -> (Health, Health) {
        if matches!(event, LeafEvent::Opened { .. }) {
            // The contents of its cache may be lost.
            self.suspect();
        }
        let change = self.health.apply(event);
        if matches!(event, LeafEvent::Opened { .. }) {
            self.unconfirmed.reinstate();
        }
        change
    }

    /// Records that the device may have been away, or be another one: unconfirmed writes must be
    /// repeated.
    pub(crate) fn suspect(&self) {
        self.doubt();
        self.unconfirmed.suspect();
    }

    /// Records that even confirmed writes may be lost.
    pub(crate) fn doubt(&self) {
        self.doubts.fetch_add(1, Ordering::AcqRel);
    }

    /// The number of calls of [`Self::doubt`].
    pub(crate) fn doubts(&self) -> u64 {
        self.doubts.load(Ordering::Acquire)
    }

    /// Stops waiting for a leaf that is away.
    pub(crate) fn stop_waiting_if_closed(&self) {
        if self.is_usable() {
            return;
        }
        self.unconfirmed.resign();
        // It may have been opened since.
        if self.is_usable() {
            self.unconfirmed.reinstate();
        }
    }

    /// Whether discards may be sent to the device.
    pub(crate) fn can_trim(&self) -> bool {
        self.is_usable() && !self.keeps_everything.load(Ordering::Relaxed)
    }

    /// Records that the device does not support discard.
    pub(crate) fn forbid_trim(&self) {
        self.keeps_everything.store(true, Ordering::Relaxed);
    }

    pub(crate) fn set_temporary(&self, is_temporary: bool) {
        self.temporary.store(is_temporary, Ordering::Release);
    }

    /// Whether its state is dropped at the next import.
    pub(crate) fn is_temporary(&self) -> bool {
        self.temporary.load(Ordering::Acquire)
    }

    pub(crate) fn is_rotational(&self) -> bool {
        self.rotational
    }

    /// What the leaf lacks.
    pub(crate) fn missing(&self) -> &DirtyTimeLog {
        &self.missing
    }

    /// Whether it lacks something born in `birth`, as far as known: it may still get what it owes.
    pub(crate) fn lacks(&self, birth: Txg) -> bool {
        // In this order: what is given up is recorded as missing before it is no longer owed.
        self.unconfirmed.owes(birth) || self.missing.lacks(birth)
    }

    /// Writes since its last flush.
    pub(crate) fn unconfirmed(&self) -> &Unconfirmed {
        &self.unconfirmed
    }

    /// Records that an uberblock is about to be written to it.
    pub(crate) fn note_sent(&self, uberblock: &Uberblock) {
        *self.sent.lock() = Some(SentUberblock { txg: uberblock.txg, mos: uberblock.mos });
    }

    /// Whether an uberblock found on its device was written by another process, which had the pool
    /// meanwhile: it is younger than all that was sent, or differs in the same txg.
    pub(crate) fn is_foreign(&self, found: &Uberblock) -> bool {
        self.sent.lock().is_some_and(|sent| {
            found.txg > sent.txg || (found.txg == sent.txg && found.mos != sent.mos)
        })
    }

    /// Records that an uberblock is durable on it.
    pub(crate) fn note_committed(&self, txg: Txg) {
        self.committed.fetch_max(txg.get(), Ordering::AcqRel);
    }

    /// Txg of the newest uberblock that its device must have; 0 if none was written yet.
    pub(crate) fn committed(&self) -> Txg {
        Txg(self.committed.load(Ordering::Acquire))
    }

    /// The expected wait of a read at `position` (spec 07, section 6.2).
    pub(crate) fn load(&self, position: u64) -> u32 {
        let last = self.last_end.load(Ordering::Relaxed);
        let seek = match (position == last, self.rotational) {
            (true, _) => 0,
            (false, false) => 1,
            (false, true) if position.abs_diff(last) < SHORT_SEEK => 2,
            (false, true) => 5,
        };
        self.pending.load(Ordering::Relaxed).saturating_add(seek)
    }

    /// Records the start of a read.
    pub(crate) fn begin(&self, position: u64, len: u64) {
        self.pending.fetch_add(1, Ordering::Relaxed);
        self.last_end.store(position.saturating_add(len), Ordering::Relaxed);
    }

    /// Records the end of a read.
    pub(crate) fn end(&self) {
        self.pending.fetch_sub(1, Ordering::Relaxed);
    }

    /// Claims the right to probe the device; `false` if it is already being probed.
    pub(crate) fn begin_probe(&self) -> bool {
        !self.probing.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn end_probe(&self) {
        self.probing.store(false, Ordering::Release);
    }
}

/// The error of I/O to a leaf without a device.
pub(crate) fn not_open() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the device is not open")
}
