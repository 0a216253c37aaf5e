//! The pool's space as seen by block writing and space accounting: connects block policies, vdevs,
//! and the allocator (spec 06, section 9).

use crate::mos::features::Features;
use crate::pool::{Attributes, MosStore, Pool, PoolError, geometry, top_attributes};
use rzfs_dmu::live::LiveObjset;
use rzfs_dmu::write::{BlockPolicy, BlockSpace, NoSpace, SpacePart, SpaceRequest};
use rzfs_format::features::Feature;
use rzfs_format::object_type::ObjectType;
use rzfs_format::space_map::SpaceMapVersion;
use rzfs_format::{Dva, Level, Txg, VdevId};
use rzfs_metaslab::allocator::{
    Allocating, AllocationRequest, Allocator, AllocatorOptions, Availability, Bias, Content,
    Devices, LogFeature, ObsoleteFeature, Placement, SpaceFeatures, SpacePiece, SpaceTunables,
    VdevRole, Writability,
};
use rzfs_metaslab::space_map::append::{HeaderForm, MapFeatures};
use rzfs_metaslab::{MetaslabError, StoreError};
use rzfs_vdev::config::AllocationBias;
use rzfs_vdev::{CurrentTree, Vdev, VdevKind, VdevState, VdevTree};
use std::collections::BTreeMap;
use std::hash::Hasher;
use std::ops::Range;
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3Default;

/// Bits of a block number within which blocks are placed together.
const NEIGHBOUR_BITS: u32 = 6;

/// Allocates blocks.
pub(crate) struct PoolSpace(pub(crate) Arc<Allocator>);

impl BlockSpace for PoolSpace {
    fn allocate(&self, request: &SpaceRequest, txg: Txg) -> Result<[Dva; 3], NoSpace> {
        let SpaceRequest { size, copies, policy, bookmark, part } = *request;
        let mut locality = Xxh3Default::new();
        locality.write_u64(bookmark.objset.get());
        locality.write_u64(bookmark.object.get());
        locality.write_u64(bookmark.block.0 >> NEIGHBOUR_BITS);
        let request = AllocationRequest {
            size,
            copies,
            content: content(&policy),
            placement: match part {
                SpacePart::Block => Placement::Block,
                SpacePart::GangHeader => Placement::GangHeader,
                SpacePart::GangMember(header) => Placement::GangMember(header),
            },
            locality: locality.finish(),
        };
        self.0.allocate(&request, txg).map_err(|_| NoSpace { size })
    }

    fn unallocate(&self, dvas: &[Dva], txg: Txg) {
        self.0.unallocate(dvas, txg);
    }
}

/// The kind of a block's contents, as far as its place depends on it.
fn content(policy: &BlockPolicy) -> Content {
    let of = policy.object_type;
    if of == ObjectType::INTENT_LOG {
        Content::IntentLog
    } else if of == ObjectType::DDT_ZAP {
        Content::DedupTable
    } else if of.is_metadata() {
        Content::Metadata
    } else if policy.level > Level::DATA {
        Content::UserIndirect
    } else {
        Content::Data { special_up_to: policy.special_small_blocks }
    }
}

/// The pool's top-level vdevs, as space accounting sees them.
pub(crate) struct TopLevels(pub(crate) Arc<CurrentTree>);

impl Devices for TopLevels {
    fn allocated_size(&self, vdev: VdevId, size: u64, txg: Txg) -> Option<u64> {
        self.0.get().allocated_size(vdev, size, txg)
    }

    fn deflate_ratio(&self, vdev: VdevId) -> u64 {
        self.0.get().deflate_ratio(vdev).unwrap_or(512)
    }

    fn data_disks(&self, vdev: VdevId) -> u64 {
        let vdevs = self.0.get();
        let Some(top) = vdevs.top_level(vdev) else { return 1 };
        let config = top.own_config();
        let children = top.children().len() as u64;
        let parity = config.nparity.unwrap_or(0);
        match top.kind() {
            VdevKind::Raidz => children.saturating_sub(parity).max(1),
            VdevKind::Draid => {
                let spares = config.draid.map_or(0, |draid| draid.spares);
                children.saturating_sub(spares).max(1)
            }
            _ => 1,
        }
    }

    fn copies(&self, vdev: VdevId, range: Range<u64>) -> Result<Vec<SpacePiece>, StoreError> {
        let vdevs = self.0.get();
        let Some(top) = vdevs.top_level(vdev) else { return Ok(Vec::new()) };
        let Some(mapping) = top.mapping() else { return Ok(Vec::new()) };
        let mut pieces = Vec::new();
        let mut offset = range.start;
        while offset < range.end {
            let (place, len) = mapping.lookup(offset).ok_or("the mapping has a gap")?;
            let len = len.min(range.end - offset);
            let end = place.offset().checked_add(len).ok_or("the mapping leads nowhere")?;
            pieces.push(SpacePiece { vdev: place.vdev(), range: place.offset()..end });
            offset = offset.saturating_add(len.max(1));
        }
        Ok(pieces)
    }

    fn writability(&self, vdev: VdevId) -> Writability {
        let vdevs = self.0.get();
        let Some(top) = vdevs.top_level(vdev) else { return Writability::None };
        let is_single = top.kind().is_device();
        let is_usable = |top: Vdev<'_>| top.health().is_usable();
        let mut normal = vdevs.top_levels().filter(|top| top.allocation_bias().is_none());
        match top.health() {
            health if !health.is_usable() && normal.any(is_usable) => Writability::None,
            // Without any vdev the pool is not full: writing fails, and waits for the devices.
            health if !health.is_usable() => Writability::Doubtful,
            health if is_single && health.state != VdevState::Healthy => Writability::Doubtful,
            _ => Writability::Ready,
        }
    }
}

/// What space accounting may write in a pool with these features.
pub(crate) fn space_features(features: &Features) -> SpaceFeatures {
    let enabled = |feature| features.is_enabled(feature);
    SpaceFeatures {
        maps: MapFeatures {
            header: if enabled(Feature::SpaceMapHistogram) {
                HeaderForm::Histogram
            } else {
                HeaderForm::V0
            },
            version: if enabled(Feature::SpaceMapV2) {
                SpaceMapVersion::Two
            } else {
                SpaceMapVersion::One
            },
        },
        logs: if features.is_active(Feature::LogSpaceMap) {
            LogFeature::Active
        } else if enabled(Feature::LogSpaceMap) {
            LogFeature::Enabled
        } else {
            LogFeature::Disabled
        },
        obsolete: if enabled(Feature::ObsoleteCounts) {
            ObsoleteFeature::Enabled
        } else {
            ObsoleteFeature::Disabled
        },
    }
}

fn options(mos: &LiveObjset, features: SpaceFeatures, tunables: SpaceTunables) -> AllocatorOptions {
    let vdevs = Arc::clone(mos.pipeline().current_vdevs());
    AllocatorOptions {
        tunables,
        features,
        devices: Arc::new(TopLevels(vdevs)),
        reader: Arc::new(MosStore::new(mos.clone())),
    }
}

/// The allocator of a pool that is being made.
pub(crate) fn of_new_pool(
    mos: &LiveObjset,
    tunables: SpaceTunables,
) -> Result<Arc<Allocator>, MetaslabError> {
    let allocator = Allocator::new(options(mos, SpaceFeatures::NONE, tunables));
    let vdevs = mos.pipeline().vdevs();
    vdevs.top_levels().try_for_each(|top| add(&allocator, &vdevs, top, Availability::Now))?;
    Ok(Arc::new(allocator))
}

/// Adds a vdev to the allocator, without metaslabs so far.
pub(crate) fn add(
    allocator: &Allocator,
    vdevs: &VdevTree,
    top: Vdev<'_>,
    availability: Availability,
) -> Result<(), MetaslabError> {
    if let Some(asize) = top.asize() {
        let shift = allocator.layout().metaslab_shift(asize);
        vdevs.change(top.guid(), |config| config.top.metaslab_shift = Some(shift.into()));
    }
    match top.vdev_id().and_then(|id| geometry(vdevs, top, id)) {
        Some(geometry) => allocator.add_vdev(geometry, role(top), availability),
        None => Ok(()),
    }
}

/// The allocator of a pool on disk.
pub(crate) fn of_pool(
    pool: &Pool,
    mos: &LiveObjset,
    features: SpaceFeatures,
    tunables: SpaceTunables,
) -> Result<Arc<Allocator>, PoolError> {
    let vdevs = pool.vdevs();
    let mut roles = BTreeMap::new();
    for top in vdevs.top_levels() {
        let Some(id) = top.vdev_id() else { continue };
        let mut role = role(top);
        if let Some(zap) = top_attributes(pool.mos(), top)? {
            let map = |zap: &Attributes, name| zap.object(name);
            role.checkpoint_map = map(&zap, "com.delphix:pool_checkpoint_sm")?;
            role.obsolete_map = map(&zap, "com.delphix:indirect_obsolete_sm")?;
        }
        roles.insert(id, role);
    }
    let options = options(mos, features, tunables);
    Ok(Arc::new(Allocator::open(options, pool.metaslabs()?, &roles)?))
}

fn role(top: Vdev<'_>) -> VdevRole {
    let config = top.own_config();
    let bias = match top.allocation_bias() {
        Some(AllocationBias::Log) => Bias::Log,
        Some(AllocationBias::Special) => Bias::Special,
        Some(AllocationBias::Dedup) => Bias::Dedup,
        None if config.top.is_log.is_some_and(|log| log != 0) => Bias::Log,
        None => Bias::None,
    };
    let stopped = config.top.non_allocating || config.top.removing;
    let allocating = if stopped { Allocating::No } else { Allocating::Yes };
    VdevRole { bias, allocating, ..VdevRole::default() }
}
