//! The space of a vdev whose removal is under way.

use super::claim::Claims;
use crate::error::ZdbError;
use rzfs_dsl::pool::Pool;
use rzfs_format::indirect::{MappingEntry, MappingHeader, RemovalState, RemovalStatus};
use rzfs_format::{ObjectId, VdevId};
use rzfs_vdev::IndirectMapping;
use std::ops::Range;

/// Entries of a mapping that are read together.
const BATCH: u64 = 1 << 14;

/// The vdev being removed, if a removal is under way.
pub(super) fn active(state: &RemovalState) -> Option<VdevId> {
    state.vdev.filter(|_| state.status == RemovalStatus::Active)
}

/// The locations to which the vdev's allocated blocks were copied so far.
pub(super) fn copied(
    pool: &Pool,
    claims: &Claims<'_>,
    vdev: VdevId,
) -> Result<Vec<(VdevId, Range<u64>)>, ZdbError> {
    let Some(top) = pool.vdevs().top_level(vdev) else { return Ok(Vec::new()) };
    let Some(id) = top.own_config().indirect.mapping.and_then(ObjectId::non_zero) else {
        return Ok(Vec::new());
    };
    let (limit, mapping) = read_mapping(pool, id)?;
    let mut copies = Vec::new();
    for range in claims.unclaimed(vdev) {
        let end = range.end.min(limit);
        let mut at = range.start;
        while at < end {
            let Some((dva, available)) = mapping.lookup(at) else { break };
            let len = available.min(end - at);
            let offset = dva.offset();
            copies.push((dva.vdev(), offset..offset.saturating_add(len)));
            at += len;
        }
    }
    Ok(copies)
}

/// The mapping in an object, and the offset up to which it is complete.
fn read_mapping(pool: &Pool, id: ObjectId) -> Result<(u64, IndirectMapping), ZdbError> {
    let corrupt = ZdbError::corrupt(id);
    let object = pool.mos().object(id)?;
    let header = MappingHeader::decode(object.bonus(), object.order()).map_err(&corrupt)?;
    let count = header.entries.min(object.dnode().extent() / MappingEntry::SIZE as u64);
    let mut entries = Vec::new();
    let mut first = 0;
    while first < count {
        let batch = (count - first).min(BATCH) as usize;
        let offset = first * MappingEntry::SIZE as u64;
        let bytes = object.read_bytes(offset, batch * MappingEntry::SIZE)?;
        for chunk in bytes.chunks_exact(MappingEntry::SIZE) {
            entries.push(MappingEntry::decode(chunk, object.order()).map_err(&corrupt)?);
        }
        first += batch as u64;
    }
    let mapping = IndirectMapping::new(entries, Vec::new()).map_err(|_| {
        corrupt(rzfs_format::FormatError::invalid("indirect mapping", "entries out of order"))
    })?;
    Ok((header.max_offset, mapping))
}
