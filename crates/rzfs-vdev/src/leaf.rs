//! Leaves: a device, its health, what it lacks, and how busy it is.

use crate::config::VdevConfig;
use crate::dtl::DirtyTimeLog;
use crate::health::{AuxReason, Health, HealthCell, LeafEvent};
use crate::unconfirmed::Unconfirmed;
use rzfs_blockdev::BlockDevice;
use rzfs_format::label::LeafSize;
use rzfs_format::{Guid, Txg};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Where a [`crate::VdevTree`] gets the devices of its leaves from.
pub trait LeafDevices {
    /// The device of a leaf, its label already validated.
    ///
    /// # Errors
    /// Why there is none: [`AuxReason::OpenFailed`] if it was not found,
    /// [`AuxReason::CorruptData`] if the label is another vdev's, and so on.
    fn device(&self, leaf: &VdevConfig) -> Result<Arc<dyn BlockDevice>, AuxReason>;
}

impl<S: std::hash::BuildHasher> LeafDevices for HashMap<Guid, Arc<dyn BlockDevice>, S> {
    fn device(&self, leaf: &VdevConfig) -> Result<Arc<dyn BlockDevice>, AuxReason> {
        self.get(&leaf.guid).cloned().ok_or(AuxReason::OpenFailed)
    }
}

/// Distance below which a seek of a rotating disk is a short one.
const SHORT_SEEK: u64 = 1 << 20;

/// Most devices that a leaf can have one after the other while its pool is open.
const MAX_DEVICES: usize = 16;

/// The devices that a leaf has had: the last one is in use, the others are kept, as somebody may
/// be looking at them.
#[derive(Debug, Default)]
struct Devices {
    all: [OnceLock<Arc<dyn BlockDevice>>; MAX_DEVICES],
    count: AtomicUsize,
}

impl Devices {
    fn of(device: Option<Arc<dyn BlockDevice>>) -> Self {
        let devices = Self::default();
        if let Some(device) = device {
            devices.push(device);
        }
        devices
    }

    fn last(&self) -> Option<&Arc<dyn BlockDevice>> {
        let last = self.count.load(Ordering::Acquire).checked_sub(1)?;
        self.all.get(last)?.get()
    }

    /// Has a device take the place of the last one; `false` if there were too many before.
    fn push(&self, device: Arc<dyn BlockDevice>) -> bool {
        let free = self.all.iter().position(|slot| slot.get().is_none());
        let Some((index, slot)) = free.and_then(|index| Some((index, self.all.get(index)?))) else {
            return false;
        };
        let is_first = slot.set(device).is_ok();
        if is_first {
            self.count.fetch_max(index + 1, Ordering::AcqRel);
        }
        is_first
    }
}

/// What a leaf demands of its device.
#[derive(Clone, Copy, Debug)]
struct Demands {
    /// Allocatable bytes.
    asize: u64,
    /// log2 of the smallest I/O, if known.
    ashift: Option<u32>,
}

impl Demands {
    /// Why a device does not do.
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

/// The state of a leaf that is a device.
#[derive(Debug)]
pub(crate) struct Leaf {
    devices: Box<Devices>,
    demands: Demands,
    health: HealthCell,
    missing: DirtyTimeLog,
    unconfirmed: Unconfirmed,
    /// Txg of the newest uberblock that is durable on it, of those that were written since the pool
    /// was opened.
    committed: AtomicU64,
    doubts: AtomicU64,
    rotational: bool,
    pending: AtomicU32,
    last_end: AtomicU64,
    probing: AtomicBool,
    /// Whether its state is forgotten when the pool is imported again.
    temporary: AtomicBool,
    /// Whether the device has said that it cannot discard.
    keeps_everything: AtomicBool,
}

impl Leaf {
    /// Opens the leaf as far as its flags allow (spec 07, section 4.3). `min_asize` is what the
    /// parent needs of it and `ashift` the top-level vdev's, if known.
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
            devices: Box::new(Devices::of(device)),
            demands,
            health: HealthCell::new(Health::UNKNOWN.after(event)),
            missing: DirtyTimeLog::unloaded(config.leaf.waits_for_resilver()),
            unconfirmed,
            committed: AtomicU64::new(0),
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

    /// Takes another device in place of the one that it had, if it had one.
    ///
    /// # Errors
    /// The device does not do, or there were too many before ([`AuxReason::OpenFailed`]).
    pub(crate) fn take_device(&self, device: Arc<dyn BlockDevice>) -> Result<(), AuxReason> {
        self.demands.check(&*device)?;
        if !self.devices.push(device) {
            return Err(AuxReason::OpenFailed);
        }
        self.suspect();
        self.keeps_everything.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// The device, if I/O may be sent to it.
    pub(crate) fn usable_device(&self) -> Option<&Arc<dyn BlockDevice>> {
        self.devices.last().filter(|_| self.health.get().is_usable())
    }

    /// The device, whatever its state.
    pub(crate) fn device(&self) -> Option<&Arc<dyn BlockDevice>> {
        self.devices.last()
    }

    pub(crate) fn health(&self) -> Health {
        self.health.get()
    }

    pub(crate) fn apply(&self, event: LeafEvent) -> (Health, Health) {
        if matches!(event, LeafEvent::Opened { .. }) {
            // Whatever it had in its cache may be gone.
            self.suspect();
        }
        let change = self.health.apply(event);
        if matches!(event, LeafEvent::Opened { .. }) {
            self.unconfirmed.reinstate();
        }
        change
    }

    /// Says that the device may have been away, or be another one: what it has not confirmed is to
    /// be written again.
    pub(crate) fn suspect(&self) {
        self.doubt();
        self.unconfirmed.suspect();
    }

    /// Says that even what the device has confirmed may not be there any more.
    pub(crate) fn doubt(&self) {
        self.doubts.fetch_add(1, Ordering::AcqRel);
    }

    /// How often [`Self::doubt`] was called.
    pub(crate) fn doubts(&self) -> u64 {
        self.doubts.load(Ordering::Acquire)
    }

    /// Says that nobody waits for a leaf that is away.
    pub(crate) fn resign_if_away(&self) {
        if self.usable_device().is_some() {
            return;
        }
        self.unconfirmed.resign();
        // Somebody may have opened it since.
        if self.usable_device().is_some() {
            self.unconfirmed.reinstate();
        }
    }

    /// Whether discards may be sent to the device.
    pub(crate) fn can_trim(&self) -> bool {
        self.usable_device().is_some() && !self.keeps_everything.load(Ordering::Relaxed)
    }

    /// Notes that the device cannot discard.
    pub(crate) fn forbid_trim(&self) {
        self.keeps_everything.store(true, Ordering::Relaxed);
    }

    pub(crate) fn set_temporary(&self, is_temporary: bool) {
        self.temporary.store(is_temporary, Ordering::Release);
    }

    /// Whether its state is forgotten when the pool is imported again.
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

    /// Whether it lacks something that was born in `birth`, as far as is known: it may still get
    /// what it owes.
    pub(crate) fn lacks(&self, birth: Txg) -> bool {
        // In this order: what is given up is lacking before it is owed no more.
        self.unconfirmed.owes(birth) || self.missing.lacks(birth)
    }

    /// What was written to it since its last flush.
    pub(crate) fn unconfirmed(&self) -> &Unconfirmed {
        &self.unconfirmed
    }

    /// Notes that an uberblock is durable on it.
    pub(crate) fn note_committed(&self, txg: Txg) {
        self.committed.fetch_max(txg.get(), Ordering::AcqRel);
    }

    /// Txg of the newest uberblock that its device must have; 0 if none was written yet.
    pub(crate) fn committed(&self) -> Txg {
        Txg(self.committed.load(Ordering::Acquire))
    }

    /// How much a read at `position` would have to wait (spec 07, section 6.2).
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

    /// Notes that a read was issued.
    pub(crate) fn begin(&self, position: u64, len: u64) {
        self.pending.fetch_add(1, Ordering::Relaxed);
        self.last_end.store(position.saturating_add(len), Ordering::Relaxed);
    }

    /// Notes that a read has ended.
    pub(crate) fn end(&self) {
        self.pending.fetch_sub(1, Ordering::Relaxed);
    }

    /// Claims the right to probe the device; `false` if somebody else does so already.
    pub(crate) fn begin_probe(&self) -> bool {
        !self.probing.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn end_probe(&self) {
        self.probing.store(false, Ordering::Release);
    }
}
