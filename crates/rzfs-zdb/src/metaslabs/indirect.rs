//! Removed vdevs, shown where other vdevs have metaslabs: the new locations of their contents, and
//! how much of these is obsolete.

use super::map;
use super::report::Report;
use crate::error::ZdbError;
use crate::session::{Session, Verdict};
use rzfs_format::ObjectId;
use rzfs_format::indirect::MappingHeader;
use rzfs_format::space_map::Geometry;
use rzfs_metaslab::SpaceMap;
use rzfs_vdev::Vdev;

/// Size of a count of obsolete bytes.
const COUNT_SIZE: usize = 4;

/// Shows the births and the mapping of a vdev, if present.
pub(super) fn print(
    session: &mut Session<'_>,
    report: &Report<'_>,
    vdev: Vdev<'_>,
) -> Result<Verdict, ZdbError> {
    let config = vdev.own_config();
    let Some(mapping) = vdev.mapping() else { return Ok(Verdict::Clean) };
    let (Some(births_id), Some(mapping_id)) = (config.indirect.births, config.indirect.mapping)
    else {
        return Ok(Verdict::Clean);
    };
    writeln!(session.out, "indirect births obj {births_id}:")?;
    writeln!(session.out, "    vib_count = {}", mapping.births().len())?;
    for part in mapping.births() {
        writeln!(session.out, "\toffset {:x} -> txg {}", part.end, part.birth)?;
    }
    let object = report.pool.mos().object(mapping_id)?;
    let header = MappingHeader::decode(object.bonus(), object.order())
        .map_err(ZdbError::corrupt(mapping_id))?;
    writeln!(session.out, "\nindirect mapping obj {mapping_id}:")?;
    writeln!(session.out, "    vim_max_offset = {:#x}", header.max_offset)?;
    writeln!(session.out, "    vim_bytes_mapped = {:#x}", header.bytes_mapped)?;
    writeln!(session.out, "    vim_count = {}", header.entries)?;
    if !report.detail.entries {
        return Ok(Verdict::Clean);
    }
    let obsolete = counts(report, header.counts, mapping.entries().len())?;
    for (entry, obsolete) in mapping.entries().iter().zip(obsolete) {
        let (from, to, length) = (entry.source(), entry.destination, entry.length());
        writeln!(
            session.out,
            "\t<{:x}:{from:x}:{length:x}> -> <{:x}:{:x}:{length:x}> ({obsolete:x} obsolete)",
            vdev.id(),
            to.vdev().0,
            to.offset(),
        )?;
    }
    writeln!(session.out)?;
    obsolete_map(session, report, vdev)
}

/// Obsolete bytes by entry of the mapping; zeros if not counted.
fn counts(
    report: &Report<'_>,
    object: Option<ObjectId>,
    entries: usize,
) -> Result<Vec<u32>, ZdbError> {
    let mut counts = Vec::new();
    if let Some(object) = object {
        let object = report.pool.mos().object(object)?;
        let stored = usize::try_from(object.dnode().extent()).unwrap_or(usize::MAX);
        let bytes = object.read_bytes(0, entries.saturating_mul(COUNT_SIZE).min(stored))?;
        let words = bytes.as_chunks::<COUNT_SIZE>().0;
        counts.extend(words.iter().map(|word| object.order().u32(*word)));
    }
    counts.resize(entries, 0);
    Ok(counts)
}

/// Shows the map of space that is obsolete but not counted yet.
fn obsolete_map(
    session: &mut Session<'_>,
    report: &Report<'_>,
    vdev: Vdev<'_>,
) -> Result<Verdict, ZdbError> {
    let Some(attributes) = report.pool.top_attributes(vdev)? else { return Ok(Verdict::Clean) };
    let Some(object) = attributes.object("com.delphix:indirect_obsolete_sm")? else {
        return Ok(Verdict::Clean);
    };
    let asize = vdev.own_config().top.asize.unwrap_or(0);
    writeln!(session.out, "obsolete space map object {object}:")?;
    let map = SpaceMap::open(&report.store, object, Geometry::obsolete(asize))?;
    let verdict = map::print(session, &report.store, &map, report.detail)?;
    writeln!(session.out)?;
    Ok(verdict)
}
