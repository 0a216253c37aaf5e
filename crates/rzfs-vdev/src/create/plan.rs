//! The configurations of new vdevs (spec 01, section 11.1; spec 07, sections 3.1, 3.2 and 11.2).

use super::device::NewDevice;
use super::spec::{TopLayout, TopSpec, VdevSpec};
use crate::config::{AllocationBias, DraidRecord, VdevConfig, VdevKind};
use crate::draid::{DraidGeometry, DraidShape};
use crate::label::{AuxiliaryDevice, LabelError, LabelledDevice, NewLabel, flush};
use crate::tree::{Vdev, VdevTree};
use rzfs_blockdev::{BlockDevice, DeviceError, DeviceGeometry, IoBuffer, IoOperation};
use rzfs_format::config::{AuxiliaryLabel, PoolConfig};
use rzfs_format::label::{BOOT_ENV_OFFSET, LeafSize};
use rzfs_format::nvlist::NvString;
use rzfs_format::pool_state::PoolState;
use rzfs_format::uberblock::Uberblock;
use rzfs_format::{FormatError, Guid, ObjectId, Txg};
use rzfs_tunables::Tunables;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Smallest and largest ashift.
const MIN_ASHIFT: u64 = 9;
const MAX_ASHIFT: u64 = 16;

/// Maximum sector size: labels have a part with this offset and size.
const MAX_SECTOR: u64 = BOOT_ENV_OFFSET;

/// Bytes zeroed at the start of a disk, so that nothing else is detected there: rounded up to a
/// sector, at most the blank part of labels.
const BOOT_BLOCK: usize = 4096;
const _: () = assert!(BOOT_BLOCK as u64 <= BOOT_ENV_OFFSET);

/// Parameters of new vdevs besides their devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlanOptions {
    /// The property `ashift`; 0 uses that of the devices.
    pub ashift: u64,
    /// `zfs_vdev_min_auto_ashift`.
    pub min_auto_ashift: u64,
    /// `zfs_vdev_max_auto_ashift`.
    pub max_auto_ashift: u64,
    /// The txg that makes the vdevs part of the pool.
    pub create_txg: Txg,
    /// Id of the first of them: the number of top-level vdevs in the pool.
    pub first_id: u64,
}

/// For a new pool.
impl From<&Tunables> for PlanOptions {
    fn from(tunables: &Tunables) -> Self {
        Self {
            ashift: 0,
            min_auto_ashift: tunables.zfs_vdev_min_auto_ashift,
            max_auto_ashift: tunables.zfs_vdev_max_auto_ashift,
            create_txg: Txg(4),
            first_id: 0,
        }
    }
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self::from(&Tunables::default())
    }
}

/// Why devices cannot become vdevs. The messages are OpenZFS's, where there are any.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanError {
    /// A device has less than 64 MiB, or is too small for any block on the vdev.
    #[error("one or more devices is less than the minimum size (64M)")]
    TooSmall {
        /// The device, or the first of the vdev.
        path: String,
    },
    /// Invalid ashift.
    #[error(
        "invalid 'ashift={0}' property: only values between {MIN_ASHIFT} and {MAX_ASHIFT} are allowed."
    )]
    Ashift(u64),
    /// Sectors larger than parts of labels.
    #[error("{path}: sectors of {sector} bytes are too large")]
    SectorTooLarge {
        /// The device.
        path: String,
        /// Bytes of a sector.
        sector: u32,
    },
    /// A path that is invalid in configurations.
    #[error(transparent)]
    Format(#[from] FormatError),
}

impl PlanError {
    /// The errno that callers of ZFS expect.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        const EINVAL: i32 = 22;
        const EDOM: i32 = 33;
        const EOVERFLOW: i32 = 75;
        match self {
            Self::TooSmall { .. } => EOVERFLOW,
            Self::SectorTooLarge { .. } => EDOM,
            Self::Ashift(_) | Self::Format(_) => EINVAL,
        }
    }
}

/// New vdevs: their configurations, and the devices of all leaves.
///
/// `metaslab_array` and `metaslab_shift` of top-level vdevs are 0 until they get their metaslabs.
#[derive(Clone, Debug)]
pub struct NewVdevs {
    /// Top-level vdevs; the role of special and dedup vdevs is in their `allocation_bias`, which
    /// belongs in their ZAPs, see [`Self::take_biases`].
    pub tops: Vec<VdevConfig>,
    /// Hot spares, distributed ones included.
    pub spares: Vec<VdevConfig>,
    /// Cache devices.
    pub caches: Vec<VdevConfig>,
    /// The devices of all leaves, spares and caches.
    pub devices: HashMap<Guid, Arc<dyn BlockDevice>>,
}

impl VdevSpec<NewDevice> {
    /// Assigns guids and computes sector sizes and sizes. `random` returns random numbers.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn plan(
        &self,
        options: &PlanOptions,
        random: &mut dyn FnMut() -> u64,
    ) -> Result<NewVdevs, PlanError> {
        if options.ashift != 0 && !(MIN_ASHIFT..=MAX_ASHIFT).contains(&options.ashift) {
            return Err(PlanError::Ashift(options.ashift));
        }
        let mut planner =
            Planner { options, random, used: HashSet::new(), devices: HashMap::new() };
        let mut tops = Vec::with_capacity(self.tops.len());
        let mut spares = Vec::new();
        for (id, top) in (options.first_id..).zip(&self.tops) {
            let config = planner.top(id, top)?;
            spares.extend(planner.distributed_spares(&config)?);
            tops.push(config);
        }
        for device in &self.spares {
            let mut spare = planner.auxiliary(device)?;
            spare.flags.is_spare = Some(1);
            spares.push(spare);
        }
        let caches: Result<_, _> =
            self.caches.iter().map(|device| planner.auxiliary(device)).collect();
        Ok(NewVdevs { tops, spares, caches: caches?, devices: planner.devices })
    }
}

struct Planner<'a> {
    options: &'a PlanOptions,
    random: &'a mut dyn FnMut() -> u64,
    used: HashSet<Guid>,
    devices: HashMap<Guid, Arc<dyn BlockDevice>>,
}

impl Planner<'_> {
    fn guid(&mut self) -> Guid {
        loop {
            let guid = Guid((self.random)());
            if guid != Guid(0) && self.used.insert(guid) {
                return guid;
            }
        }
    }

    fn leaf(&mut self, device: &NewDevice) -> Result<VdevConfig, PlanError> {
        let mut leaf = VdevConfig::new(device.kind, self.guid());
        leaf.hints.path = Some(NvString::new(device.path.as_str())?);
        leaf.hints.whole_disk = (device.kind == VdevKind::Disk).then_some(0);
        self.devices.insert(leaf.guid, Arc::clone(&device.device));
        Ok(leaf)
    }

    fn top(&mut self, id: u64, spec: &TopSpec<NewDevice>) -> Result<VdevConfig, PlanError> {
        let ashift = self.ashift(&spec.devices)?;
        let smallest = smallest(&spec.devices)?;
        let (mut top, asize) = match spec.layout {
            TopLayout::Single => {
                let device = spec.devices.first();
                let small = || PlanError::TooSmall { path: String::new() };
                (self.leaf(device.ok_or_else(small)?)?, smallest)
            }
            TopLayout::Mirror => (VdevConfig::new(VdevKind::Mirror, self.guid()), smallest),
            TopLayout::Raidz { parity } => {
                let mut top = VdevConfig::new(VdevKind::Raidz, self.guid());
                top.nparity = Some(u64::from(parity));
                (top, smallest.saturating_mul(spec.devices.len() as u64))
            }
            TopLayout::Draid { parity, shape } => {
                let mut top = VdevConfig::new(VdevKind::Draid, self.guid());
                top.nparity = Some(u64::from(parity));
                top.draid = Some(shape);
                (top, draid_size(spec, ashift, parity, shape, smallest))
            }
        };
        if asize == 0 {
            let path = spec.devices.first().map_or_else(String::new, |device| device.path.clone());
            return Err(PlanError::TooSmall { path });
        }
        if spec.layout != TopLayout::Single {
            let leaves: Result<Vec<VdevConfig>, _> =
                spec.devices.iter().map(|device| self.leaf(device)).collect();
            top = top.with_children(leaves?);
        }
        top.id = id;
        top.top.ashift = Some(ashift);
        top.top.asize = Some(asize >> ashift << ashift);
        top.top.metaslab_array = Some(ObjectId(0));
        top.top.metaslab_shift = Some(0);
        top.top.is_log = Some(u64::from(spec.bias == Some(AllocationBias::Log)));
        top.top.allocation_bias = spec.bias;
        top.create_txg = Some(self.options.create_txg);
        for leaf in &mut top.children {
            leaf.create_txg = Some(self.options.create_txg);
        }
        Ok(top)
    }

    /// The distributed spares of a dRAID.
    fn distributed_spares(&mut self, top: &VdevConfig) -> Result<Vec<VdevConfig>, PlanError> {
        let (count, parity) = (top.draid.map_or(0, |draid| draid.spares), top.nparity.unwrap_or(1));
        let spares = (0..count).map(|index| {
            let mut spare = VdevConfig::new(VdevKind::DistributedSpare, self.guid());
            let path = format!("draid{parity}-{}-{index}", top.id);
            spare.hints.path = Some(NvString::new(path.as_str())?);
            spare.hints.whole_disk = Some(1);
            spare.top_guid = Some(top.guid);
            spare.leaf.spare_id = Some(index);
            spare.flags.is_spare = Some(1);
            spare.top.is_log = Some(0);
            spare.top.ashift = top.top.ashift;
            Ok(spare)
        });
        spares.collect()
    }

    fn auxiliary(&mut self, device: &NewDevice) -> Result<VdevConfig, PlanError> {
        let devices = std::slice::from_ref(device);
        smallest(devices)?;
        let ashift = self.ashift(devices)?;
        let mut vdev = self.leaf(device)?;
        vdev.top.ashift = Some(ashift);
        Ok(vdev)
    }

    /// log2 of the sector size of a vdev of these devices (spec 07, section 3.2).
    fn ashift(&self, devices: &[NewDevice]) -> Result<u64, PlanError> {
        let geometries = || devices.iter().map(|device| device.device.geometry());
        let shift = |sector: u32| u64::from(sector.max(1).ilog2());
        let logical = |geometry: DeviceGeometry| shift(geometry.logical_sector);
        for NewDevice { path, device, .. } in devices {
            let sector = device.geometry().logical_sector;
            if u64::from(sector) > MAX_SECTOR {
                return Err(PlanError::SectorTooLarge { path: path.clone(), sector });
            }
        }
        let needed = geometries().map(logical).max().unwrap_or(MIN_ASHIFT).max(MIN_ASHIFT);
        if self.options.ashift >= needed {
            return Ok(self.options.ashift);
        }
        let limit = self.options.max_auto_ashift;
        let physical = geometries().map(|geometry| shift(geometry.physical_sector));
        let best = physical.filter(|physical| (needed..=limit).contains(physical)).max();
        let chosen = best.unwrap_or(needed).max(self.options.min_auto_ashift);
        Ok(chosen.min(MAX_ASHIFT))
    }
}

/// Allocatable bytes of the smallest of these devices.
fn smallest(devices: &[NewDevice]) -> Result<u64, PlanError> {
    let mut smallest = u64::MAX;
    for NewDevice { path, device, .. } in devices {
        let size = LeafSize::of_device(device.geometry().size)
            .ok_or_else(|| PlanError::TooSmall { path: path.clone() })?;
        smallest = smallest.min(size.allocatable());
    }
    Ok(smallest)
}

/// Allocatable bytes of a dRAID; 0 if not one group fits.
fn draid_size(
    spec: &TopSpec<NewDevice>,
    ashift: u64,
    parity: u8,
    shape: DraidRecord,
    smallest: u64,
) -> u64 {
    let number = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    let geometry = DraidGeometry::new(DraidShape {
        ashift: u32::try_from(ashift).unwrap_or(u32::MAX),
        parity: usize::from(parity),
        data: number(shape.data),
        spares: number(shape.spares),
        groups: shape.groups,
        children: spec.devices.len(),
    });
    geometry.map_or(0, |geometry| geometry.vdev_size(smallest))
}

impl NewVdevs {
    /// The root of a pool made of them.
    #[must_use]
    pub fn root(&self, pool: Guid, create_txg: Txg) -> VdevConfig {
        let mut root = VdevConfig::new(VdevKind::Root, pool).with_children(self.tops.clone());
        root.create_txg = Some(create_txg);
        root
    }

    /// Removes the role of special and dedup vdevs from their configurations: on disk it is in
    /// their ZAPs. Log devices keep `is_log`, and also have it in their ZAPs.
    pub fn take_biases(&mut self) -> Vec<(u64, AllocationBias)> {
        let tops = self.tops.iter_mut();
        tops.filter_map(|top| Some((top.id, top.top.allocation_bias.take()?))).collect()
    }

    /// The labels of spares and cache devices, with their devices.
    ///
    /// # Errors
    /// [`LabelError::Format`].
    pub fn auxiliary_labels(&self, version: u64) -> Result<Vec<LabelledDevice>, LabelError> {
        let spares = self.spares.iter().map(|vdev| (vdev, PoolState::Spare));
        let caches = self.caches.iter().map(|vdev| (vdev, PoolState::L2Cache));
        let mut labels = Vec::new();
        for (vdev, state) in spares.chain(caches) {
            let Some(device) = self.devices.get(&vdev.guid) else { continue };
            let text = |text: &Option<NvString>| text.as_ref().map(|t| t.to_text().into_owned());
            let label = NewLabel::of_auxiliary(&AuxiliaryLabel {
                state,
                guid: vdev.guid,
                version,
                ashift: vdev.top.ashift,
                path: text(&vdev.hints.path),
                devid: text(&vdev.hints.devid),
                physical_path: text(&vdev.hints.physical_path),
            })?;
            labels.push((label, Arc::clone(device)));
        }
        Ok(labels)
    }

    /// Spares and cache devices, which get the first uberblock of a new pool.
    #[must_use]
    pub fn auxiliary_devices(&self) -> Vec<AuxiliaryDevice> {
        let vdevs = self.spares.iter().chain(&self.caches);
        let devices = vdevs.filter_map(|vdev| {
            let device = Arc::clone(self.devices.get(&vdev.guid)?);
            Some(AuxiliaryDevice { ashift: vdev.top.ashift.unwrap_or(MIN_ASHIFT), device })
        });
        devices.collect()
    }

    /// Writes the labels of all devices, durably: those of the leaves of `tops`, which are the new
    /// top-level vdevs in `tree`, of spares and of cache devices. Other contents of disks are
    /// erased last. `present` is the pool's current uberblock; a new pool has none.
    ///
    /// # Errors
    /// The first part of a label that could not be written; the pool must then not add the vdevs.
    /// The former contents of the devices are lost only if all could take half of their labels
    /// ([`NewLabel::write_all`]).
    pub fn label<'v>(
        &self,
        (pool, tree): (&PoolConfig, &VdevTree),
        tops: impl IntoIterator<Item = Vdev<'v>>,
        present: Option<&Uberblock>,
        create_txg: Txg,
    ) -> Result<(), LabelError> {
        let mut labels = tree.new_labels(pool, tops, create_txg)?;
        labels.extend(self.auxiliary_labels(pool.version)?);
        NewLabel::write_all(&labels, present)?;
        Ok(self.clear_boot_blocks()?)
    }

    /// Zeroes the first 4 KiB of all disks, durably, so that no file system is detected there. They
    /// precede everything covered by labels; files are not changed.
    ///
    /// # Errors
    /// The first disk that fails.
    fn clear_boot_blocks(&self) -> Result<(), DeviceError> {
        let leaves = self.tops.iter().flat_map(|top| std::iter::once(top).chain(&top.children));
        let all = leaves.chain(&self.spares).chain(&self.caches);
        let disks = all.filter(|vdev| vdev.kind == VdevKind::Disk);
        let disks: Vec<_> = disks.filter_map(|vdev| self.devices.get(&vdev.guid)).collect();
        for device in &disks {
            let len = BOOT_BLOCK.max(device.geometry().logical_sector as usize);
            let failed = |source| DeviceError {
                device: device.name().into(),
                operation: "write",
                offset: 0,
                len: len as u64,
                source: Arc::new(source),
            };
            let zeros = IoBuffer::zeroed(len).map_err(failed)?.freeze();
            device.perform(0, IoOperation::Write(zeros))?;
        }
        flush(disks.into_iter()).into_iter().collect()
    }
}
