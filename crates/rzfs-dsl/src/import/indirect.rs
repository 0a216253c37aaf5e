//! What the vdev tree needs from the MOS before all blocks can be read: mappings of removed vdevs,
//! missing txgs of leaves, roles of top-level vdevs (spec 01, section 9.7; spec 07, sections 5.3
//! and 13.3).

use crate::mos::error::MosError;
use crate::pool::{Attributes, MosStore, PoolError, top_attributes};
use rzfs_dmu::{Object, Objset};
use rzfs_format::indirect::{BirthEntry, MappingEntry, MappingHeader, RemovalState, births_count};
use rzfs_format::space_map::Geometry;
use rzfs_format::{FormatError, ObjectId, Txg, VdevId};
use rzfs_metaslab::MetaslabError;
use rzfs_metaslab::space_map::SpaceMap;
use rzfs_vdev::config::AllocationBias;
use rzfs_vdev::{DtlReader, IndirectMapping, TxgSet, Vdev, VdevKind, VdevTree};
use std::collections::HashSet;

/// Bytes of a mapping read at once.
const CHUNK: u64 = 1 << 20;

/// Loads the mappings of all removed vdevs, newest removal first: older mappings may be stored on
/// vdevs that were removed later. Returns the state of the last removal.
pub(super) fn load_mappings(
    mos: &Objset,
    directory: &Attributes,
    vdevs: &VdevTree,
) -> Result<Option<RemovalState>, PoolError> {
    let Some(words) = directory.words("com.delphix:removing")? else { return Ok(None) };
    let corrupt = PoolError::corrupt(directory.id());
    let words = <[u64; RemovalState::WORDS]>::try_from(words)
        .map_err(|_| corrupt(FormatError::invalid("removal state", "it has another size")))?;
    let state = RemovalState::from_words(words).map_err(&corrupt)?;
    let mut next = state.previous_indirect;
    let mut loaded = HashSet::new();
    while let Some(id) = next {
        let vdev = vdevs.top_level(id).filter(|vdev| vdev.kind() == VdevKind::Indirect);
        let Some(vdev) = vdev.filter(|_| loaded.insert(id)) else {
            let problem = "the chain of removed vdevs is broken";
            return Err(corrupt(FormatError::invalid("removal state", problem)));
        };
        let mapping = mapping(mos, vdev)?;
        vdevs.set_mapping(id, mapping).map_err(|_| {
            corrupt(FormatError::invalid("removal state", "a vdev has two mappings"))
        })?;
        next = vdev.own_config().indirect.previous.map(previous).transpose().map_err(&corrupt)?;
    }
    Ok(Some(state))
}

fn previous(id: u64) -> Result<VdevId, FormatError> {
    let id = u32::try_from(id);
    id.map(VdevId).map_err(|_| FormatError::invalid("removal state", "an impossible vdev"))
}

fn mapping(mos: &Objset, vdev: Vdev<'_>) -> Result<IndirectMapping, PoolError> {
    let config = vdev.own_config().indirect;
    let required = |object: Option<ObjectId>, name: &'static str| {
        object.and_then(ObjectId::non_zero).ok_or(MosError::NoEntry { name })
    };
    let object = mos.object(required(config.mapping, "com.delphix:indirect_object")?)?;
    let corrupt = PoolError::corrupt(object.id());
    let header = MappingHeader::decode(object.bonus(), object.order()).map_err(&corrupt)?;
    let entries = array(&object, header.entries, MappingEntry::SIZE, MappingEntry::decode)?;
    let object = mos.object(required(config.births, "com.delphix:indirect_births")?)?;
    let corrupt = PoolError::corrupt(object.id());
    let count = births_count(object.bonus(), object.order()).map_err(&corrupt)?;
    let births = array(&object, count, BirthEntry::SIZE, BirthEntry::decode)?;
    IndirectMapping::new(entries, births).map_err(|error| {
        tracing::warn!(vdev = vdev.id(), %error, "the mapping of a removed vdev is damaged");
        corrupt(FormatError::invalid("indirect mapping", "entries are out of order"))
    })
}

/// `count` entries from the start of an object. They are read in chunks, so that a false count
/// costs no memory.
fn array<T>(
    object: &Object,
    count: u64,
    size: usize,
    decode: impl Fn(&[u8], rzfs_format::ByteOrder) -> Result<T, FormatError>,
) -> Result<Vec<T>, PoolError> {
    let corrupt = PoolError::corrupt(object.id());
    let size = size as u64;
    if count > object.dnode().extent() / size {
        return Err(corrupt(FormatError::field("indirect mapping", "entries", count)));
    }
    let mut entries = Vec::new();
    let per_chunk = CHUNK / size;
    let mut first = 0;
    while first < count {
        let part = (count - first).min(per_chunk);
        let bytes = object.read_bytes(first * size, (part * size) as usize)?;
        for entry in bytes.chunks_exact(size as usize) {
            entries.push(decode(entry, object.order()).map_err(&corrupt)?);
        }
        first += part;
    }
    Ok(entries)
}

/// Sets which top-level vdevs are for metadata or dedup tables.
pub(super) fn load_allocation_biases(mos: &Objset, vdevs: &VdevTree) -> Result<(), PoolError> {
    for top in vdevs.top_levels() {
        let gone = matches!(top.kind(), VdevKind::Indirect | VdevKind::Hole | VdevKind::Missing);
        let Some(zap) = top_attributes(mos, top)?.filter(|_| !gone) else { continue };
        let bias = zap.text("org.zfsonlinux:allocation_bias")?;
        let bias = bias.as_deref().and_then(AllocationBias::from_name);
        if let (Some(bias), Some(id)) = (bias, top.vdev_id()) {
            vdevs.set_allocation_bias(id, bias);
        }
    }
    Ok(())
}

/// Dirty time logs of a pool on disk.
struct StoredLogs(MosStore);

impl DtlReader for StoredLogs {
    type Error = MetaslabError;

    fn load(&self, object: ObjectId) -> Result<TxgSet, MetaslabError> {
        let map = SpaceMap::open(&self.0, object, Geometry::DTL)?;
        let ranges = map.load_allocated(&self.0)?;
        Ok(TxgSet::from_ranges(ranges.iter().map(|range| (Txg(range.start), Txg(range.end)))))
    }
}

/// Sets the txgs that each leaf lacks. An unreadable log counts as empty: checksums show what the
/// leaf has.
pub(super) fn load_missing_txgs(mos: &Objset, vdevs: &VdevTree) {
    for (leaf, error) in vdevs.load_dirty_time_logs(&StoredLogs(MosStore::new(mos.clone()))) {
        tracing::warn!(%leaf, %error, "its dirty time log is damaged");
    }
}
