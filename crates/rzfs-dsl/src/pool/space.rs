//! The allocated space of each top-level vdev (spec 06, section 5).

use super::attributes::Attributes;
use super::error::PoolError;
use super::space_store::MosStore;
use crate::mos::features::FeatureStates;
use rzfs_dmu::Objset;
use rzfs_format::features::Feature;
use rzfs_format::units::SECTOR_SIZE;
use rzfs_format::{ObjectId, Txg, VdevId};
use rzfs_metaslab::layout::slop;
use rzfs_metaslab::log::{LogMap, LoggedVdev, PoolMetaslabs, txg_of_key};
use rzfs_metaslab::metaslab::{Metaslab, VdevGeometry, VdevMetaslabs};
use rzfs_metaslab::space_map::SpaceMap;
use rzfs_vdev::{Vdev, VdevKind, VdevTree};
use std::collections::BTreeMap;

/// Space of a top-level vdev, in bytes including redundancy, as shown by `zpool list -v`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VdevSpace {
    /// The vdev.
    pub vdev: VdevId,
    /// Total size of its metaslabs.
    pub size: u64,
    /// Allocated bytes.
    pub allocated: u64,
    /// Fragmentation of its free space in percent; `None` if its space maps do not record it.
    pub fragmentation: Option<u64>,
    /// Bytes allocated only for the pool's checkpoint.
    pub checkpoint: u64,
}

impl VdevSpace {
    /// Free bytes.
    #[must_use]
    pub const fn free(&self) -> u64 {
        self.size.saturating_sub(self.allocated)
    }
}

/// Reads the metaslabs of all top-level vdevs and replays the log space maps.
pub(super) fn metaslabs(
    mos: &Objset,
    directory: &Attributes,
    features: &FeatureStates,
    tree: &VdevTree,
) -> Result<PoolMetaslabs, PoolError> {
    let store = MosStore::new(mos.clone());
    let mut vdevs = BTreeMap::new();
    for vdev in tree.top_levels() {
        let Some(id) = vdev.vdev_id() else { continue };
        let logged = match geometry(tree, vdev, id) {
            Some(geometry) => {
                let unflushed = top_attributes(mos, vdev)?
                    .map(|zap| zap.object("com.delphix:ms_unflushed_phys_txgs"))
                    .transpose()?
                    .flatten();
                let array = vdev.own_config().top.metaslab_array.and_then(ObjectId::non_zero);
                LoggedVdev::Concrete(VdevMetaslabs::open(&store, geometry, array, unflushed)?)
            }
            None => LoggedVdev::Gone,
        };
        vdevs.insert(id, logged);
    }
    let mut metaslabs = PoolMetaslabs::new(vdevs);
    if features.is_active(Feature::LogSpaceMap) {
        metaslabs.replay(&store, &log_maps(mos, directory)?)?;
    }
    Ok(metaslabs)
}

fn log_maps(mos: &Objset, directory: &Attributes) -> Result<Vec<LogMap>, PoolError> {
    let Some(object) = directory.object("com.delphix:log_spacemap_zap")? else {
        return Ok(Vec::new());
    };
    let zap = Attributes::open(mos, object)?;
    let entries = zap.entries()?.into_iter();
    let maps = entries.filter_map(|entry| {
        let txg = txg_of_key(entry.key.as_name()?)?;
        Some(LogMap { txg, object: ObjectId(entry.value.first_u64()?) })
    });
    Ok(maps.collect())
}

/// Maximum metaslabs of a missing vdev; OpenZFS gives as many to one of 500 TB. The size of a
/// present vdev is known; for others there is only the configuration, which is untrusted.
const MAX_ABSENT_METASLABS: u64 = 1 << 15;

/// The metaslab geometry in the configuration; `None` for vdevs without metaslabs.
pub(crate) fn geometry(tree: &VdevTree, vdev: Vdev<'_>, id: VdevId) -> Option<VdevGeometry> {
    if matches!(vdev.kind(), VdevKind::Indirect | VdevKind::Hole | VdevKind::Missing) {
        return None;
    }
    let config = vdev.own_config();
    let top = &config.top;
    let asize = vdev.asize()?;
    let metaslab_shift = u32::try_from(top.metaslab_shift?).ok()?;
    let count = asize.checked_shr(metaslab_shift).unwrap_or(0);
    if !vdev.health().is_usable() && count > MAX_ABSENT_METASLABS {
        return None;
    }
    Some(VdevGeometry {
        vdev: id,
        asize,
        ashift: vdev.ashift()?,
        metaslab_shift,
        row_size: tree
            .allocated_size(id, SECTOR_SIZE, Txg(0))
            .filter(|_| vdev.kind() == VdevKind::Draid),
    })
}

/// The ZAP of a top-level vdev.
pub(crate) fn top_attributes(
    mos: &Objset,
    vdev: Vdev<'_>,
) -> Result<Option<Attributes>, PoolError> {
    let object = vdev.own_config().top.zap.and_then(ObjectId::non_zero);
    object.map(|object| Attributes::open(mos, object)).transpose()
}

/// The space of all top-level vdevs that have metaslabs.
pub(super) fn vdev_space(
    mos: &Objset,
    tree: &VdevTree,
    metaslabs: &PoolMetaslabs,
) -> Result<Vec<VdevSpace>, PoolError> {
    let mut space = Vec::new();
    for vdev in metaslabs.vdevs() {
        let id = vdev.geometry().vdev;
        let checkpoint = match tree.top_level(id) {
            Some(top) => checkpointed(mos, top, vdev.geometry())?,
            None => 0,
        };
        space.push(VdevSpace {
            vdev: id,
            size: vdev.space(),
            allocated: vdev.allocated().max(0).cast_unsigned(),
            fragmentation: vdev.fragmentation(),
            checkpoint,
        });
    }
    Ok(space)
}

/// Bytes of a vdev needed only by the checkpoint: its checkpoint space map holds frees only, so the
/// sum in its header is negative.
fn checkpointed(mos: &Objset, vdev: Vdev<'_>, geometry: &VdevGeometry) -> Result<u64, PoolError> {
    let Some(zap) = top_attributes(mos, vdev)? else { return Ok(0) };
    let Some(object) = zap.object("com.delphix:pool_checkpoint_sm")? else { return Ok(0) };
    let area = rzfs_format::space_map::Geometry::checkpoint(geometry.asize, geometry.ashift);
    let map = SpaceMap::open(&MosStore::new(mos.clone()), object, area)?;
    Ok(map.header().allocated.min(0).unsigned_abs())
}

/// Adjustments of a pool's space relative to its vdevs, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Adjustments {
    /// Savings of dedup and block cloning.
    pub(super) saved: u64,
    /// Deferred frees.
    pub(super) deferred: u64,
    /// Whether RAID-Z space is counted without parity.
    pub(super) deflate: bool,
}

/// Vdevs with more metaslabs reserve one for the intent log.
const EMBEDDED_LOG_MIN_METASLABS: usize = 64;

/// Bytes in a pool for datasets, used or not (spec 06, section 21).
pub(super) fn usable(
    mos: &Objset,
    tree: &VdevTree,
    metaslabs: &PoolMetaslabs,
    adjustments: Adjustments,
) -> Result<u64, PoolError> {
    let (mut normal, mut embedded, mut checkpoint) = (0_u64, 0_u64, 0_u64);
    for vdev in metaslabs.vdevs() {
        let id = vdev.geometry().vdev;
        let Some(top) = tree.top_level(id) else { continue };
        let deflated = |bytes: u64| {
            let deflated = adjustments.deflate.then(|| tree.deflated(id, bytes));
            deflated.flatten().unwrap_or(bytes)
        };
        checkpoint = checkpoint.saturating_add(deflated(checkpointed(mos, top, vdev.geometry())?));
        match top.allocation_bias() {
            // OpenZFS 2.3 does not count the space of special and dedup vdevs, though datasets are
            // charged for it.
            Some(_) => {}
            None if top.own_config().top.non_allocating => {}
            None => {
                let log = embedded_log(vdev);
                embedded = embedded.saturating_add(deflated(log));
                normal = normal.saturating_add(deflated(vdev.space().saturating_sub(log)));
            }
        }
    }
    let slop = slop(normal, embedded);
    let taken = checkpoint.saturating_add(adjustments.deferred).saturating_add(slop);
    Ok(normal.saturating_add(adjustments.saved).saturating_sub(taken))
}

/// Size of the metaslab that a vdev reserves for the intent log: its emptiest.
fn embedded_log(vdev: &VdevMetaslabs) -> u64 {
    if vdev.metaslabs().len() <= EMBEDDED_LOG_MIN_METASLABS {
        return 0;
    }
    let emptiest = vdev.metaslabs().iter().min_by_key(|metaslab| metaslab.own_allocated());
    emptiest.map_or(0, Metaslab::size)
}
