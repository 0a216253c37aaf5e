//! How much of each top-level vdev is allocated (spec 06, section 5).

use super::attributes::Attributes;
use super::error::PoolError;
use super::features::FeatureStates;
use super::space_store::MosStore;
use rzfs_dmu::Objset;
use rzfs_format::features::Feature;
use rzfs_format::{ObjectId, VdevId};
use rzfs_metaslab::log::{LogMap, LoggedVdev, PoolMetaslabs, txg_of_key};
use rzfs_metaslab::metaslab::{VdevGeometry, VdevMetaslabs};
use rzfs_metaslab::space_map::SpaceMap;
use rzfs_vdev::{Vdev, VdevKind, VdevTree};
use std::collections::BTreeMap;

/// Space of a top-level vdev, in bytes with redundancy, as `zpool list -v` shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VdevSpace {
    /// The vdev.
    pub vdev: VdevId,
    /// What its metaslabs have.
    pub size: u64,
    /// What is allocated.
    pub allocated: u64,
    /// Fragmentation of its free space in percent; `None` if its space maps do not tell.
    pub fragmentation: Option<u64>,
    /// What is allocated only because the pool's checkpoint needs it.
    pub checkpoint: u64,
}

impl VdevSpace {
    /// What is free.
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

/// What the configuration says about a vdev's metaslabs; `None` for vdevs without any.
fn geometry(tree: &VdevTree, vdev: Vdev<'_>, id: VdevId) -> Option<VdevGeometry> {
    if matches!(vdev.kind(), VdevKind::Indirect | VdevKind::Hole | VdevKind::Missing) {
        return None;
    }
    let top = &vdev.own_config().top;
    Some(VdevGeometry {
        vdev: id,
        asize: vdev.asize()?,
        ashift: vdev.ashift()?,
        metaslab_shift: u32::try_from(top.metaslab_shift?).ok()?,
        row_size: tree.min_allocation(id).filter(|_| vdev.kind() == VdevKind::Draid),
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

/// Bytes of a vdev that only the checkpoint needs: its checkpoint space map holds frees only, so
/// the sum in its header is negative.
fn checkpointed(mos: &Objset, vdev: Vdev<'_>, geometry: &VdevGeometry) -> Result<u64, PoolError> {
    let Some(zap) = top_attributes(mos, vdev)? else { return Ok(0) };
    let Some(object) = zap.object("com.delphix:pool_checkpoint_sm")? else { return Ok(0) };
    let area = rzfs_format::space_map::Geometry::checkpoint(geometry.asize, geometry.ashift);
    let map = SpaceMap::open(&MosStore::new(mos.clone()), object, area)?;
    Ok(map.header().allocated.min(0).unsigned_abs())
}
