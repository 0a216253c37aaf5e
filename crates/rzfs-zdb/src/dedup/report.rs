//! `zdb -D`: dedup tables, their contents and savings.

use super::{DedupTable, DedupTables};
use crate::dedup_text::{self, Row};
use crate::error::ZdbError;
use crate::session::Session;
use crate::text::pointer::Full;
use rzfs_dsl::pool::{Attributes, Pool};
use rzfs_format::ddt::log::LogRole;
use rzfs_format::ddt::{self, DdtClass, DdtHistogram, DdtKey, DdtStats, DdtValue};
use rzfs_format::{ByteOrder, ObjectId};
use std::io::{self, Write};

/// Bits of the hash in the position of an entry.
const POSITION_HASH_BITS: u32 = 48;

/// Shows all tables.
pub(crate) fn run(session: &mut Session<'_>, pool: &Pool) -> Result<(), ZdbError> {
    let statistics = pool.directory().object(ddt::STATISTICS_KEY)?;
    let statistics = statistics.map(|id| Attributes::open(pool.mos(), id)).transpose()?;
    for table in DedupTables::open(pool)?.tables() {
        print_table(session, pool, table, statistics.as_ref())?;
    }
    let mut all = DdtHistogram::default();
    for table in pool.dedup_tables()? {
        all.add(&table.histogram);
    }
    if all.total().blocks == 0 {
        writeln!(session.out, "All DDTs are empty")?;
        return Ok(());
    }
    writeln!(session.out)?;
    if session.arguments.dedup > 1 {
        writeln!(session.out, "DDT histogram (aggregated over all DDTs):\n")?;
        let rows = rows(&all);
        dedup_text::print(&rows, Some(&dedup_text::total(&rows)), session.out)?;
    }
    print_ratio(session.out, &all.total())?;
    Ok(())
}

fn print_table(
    session: &mut Session<'_>,
    pool: &Pool,
    table: &DedupTable,
    statistics: Option<&Attributes>,
) -> Result<(), ZdbError> {
    let name = ddt::directory_name(table.checksum);
    let kind = if table.version == ddt::VERSION_FDT { "FDT" } else { "LEGACY" };
    let mut features = Vec::new();
    for (flag, feature) in [(ddt::FLAG_FLAT, "FLAT"), (ddt::FLAG_LOG, "LOG")] {
        features.extend((table.flags & flag != 0).then_some(feature));
    }
    let features =
        if features.is_empty() { String::new() } else { format!(" [{}]", features.join(" ")) };
    writeln!(
        session.out,
        "{name}: version={} [{kind}]; flags=0x{:02x}{features}; rootobj={}",
        table.version, table.flags, table.root
    )?;
    for (class, object) in &table.classes {
        print_class(session, pool, table, (*class, *object), statistics)?;
    }
    print_logs(session, pool, table)
}

fn print_class(
    session: &mut Session<'_>,
    pool: &Pool,
    table: &DedupTable,
    (class, id): (DdtClass, ObjectId),
    statistics: Option<&Attributes>,
) -> Result<(), ZdbError> {
    let object = pool.mos().object(id)?;
    let name = ddt::object_name(table.checksum, class);
    let mut count = 0_u64;
    for entry in object.zap()?.entries() {
        entry.map_err(|source| object.zap_error(source))?;
        count += 1;
    }
    if count == 0 {
        return Ok(());
    }
    let dnode = object.dnode();
    let filled = dnode.pointers.iter().fold(0, |sum: u64, one| sum.saturating_add(one.fill()));
    let memory = filled.saturating_mul(u64::from(dnode.data_block_size));
    writeln!(session.out, "{name}: dspace={}; mspace={memory}; entries={count}", dnode.used)?;
    if session.arguments.dedup < 3 {
        return Ok(());
    }
    writeln!(session.out, "{name}: object={id}\n")?;
    let stored = statistics.map(|statistics| statistics.words(&name)).transpose()?.flatten();
    let bytes: Vec<u8> = stored.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
    let histogram = DdtHistogram::decode(&bytes, ByteOrder::Little).unwrap_or_default();
    dedup_text::print(&rows(&histogram), None, session.out)?;
    let shows_contents = match class {
        DdtClass::Unique => session.arguments.dedup > 4,
        DdtClass::Ditto | DdtClass::Duplicate => session.arguments.dedup > 3,
    };
    if !shows_contents {
        return Ok(());
    }
    writeln!(session.out, "{name} contents:\n")?;
    let mut result = Ok(());
    table.visit_class(pool, class, &mut |key, value| {
        if result.is_ok() {
            result = print_entry(session.out, table, key, value);
        }
    })?;
    result?;
    writeln!(session.out)?;
    Ok(())
}

/// Shows an entry after its position in the table.
fn print_entry(
    out: &mut dyn Write,
    table: &DedupTable,
    key: &DdtKey,
    value: &DdtValue,
) -> io::Result<()> {
    // The hash of an entry is the first word of its checksum, and the position is derived from it.
    let [hash, ..] = key.0;
    let position = (1 << POSITION_HASH_BITS) | hash >> (64 - POSITION_HASH_BITS);
    for (index, slot) in value.slots().iter().enumerate().filter(|(_, slot)| !slot.is_empty()) {
        let pointer = slot.pointer(table.checksum, key);
        writeln!(
            out,
            "index {position:x} refcnt {} phys {index} {}",
            slot.references,
            Full(&pointer)
        )?;
    }
    Ok(())
}

fn print_logs(session: &mut Session<'_>, pool: &Pool, table: &DedupTable) -> Result<(), ZdbError> {
    for log in &table.logs {
        let name = ddt::log_name(table.checksum, log.index);
        let header = &log.header;
        let mut flags = Vec::new();
        flags.extend((header.role == LogRole::Flushing).then_some((1, "FLUSHING")));
        flags.extend(header.checkpoint.map(|_| (2, "CHECKPOINT")));
        let bits: u8 = flags.iter().map(|(bit, _)| bit).sum();
        let names: Vec<_> = flags.iter().map(|(_, name)| *name).collect();
        let names =
            if names.is_empty() { String::new() } else { format!(" [{}]", names.join(" ")) };
        let mut entries = super::LoggedEntries::new();
        table.read_log(pool, log, &mut entries)?;
        writeln!(
            session.out,
            "{name}: flags=0x{bits:02x}{names}; obj={}; len={}; txg={}; entries={}",
            log.object,
            header.length,
            header.first_txg,
            entries.len()
        )?;
        if session.arguments.dedup > 3 && !entries.is_empty() {
            writeln!(session.out, "{name} contents:\n")?;
            for (key, value) in &entries {
                print_entry(session.out, table, key, value)?;
            }
            writeln!(session.out)?;
        }
    }
    Ok(())
}

/// A histogram as the rows of a table.
pub(super) fn rows(histogram: &DdtHistogram) -> Vec<Row> {
    let row = |one: &DdtStats| {
        [
            one.blocks,
            one.lsize,
            one.psize,
            one.dsize,
            one.ref_blocks,
            one.ref_lsize,
            one.ref_psize,
            one.ref_dsize,
        ]
    };
    histogram.buckets.iter().map(row).collect()
}

/// Shows the space ratios of dedup, compression and copies.
pub(super) fn print_ratio(out: &mut dyn Write, total: &DdtStats) -> io::Result<()> {
    if total.blocks == 0 {
        return Ok(());
    }
    let ratio = |part: u64, whole: u64| part as f64 / whole as f64;
    let dedup = ratio(total.ref_dsize, total.dsize);
    let compress = ratio(total.ref_lsize, total.ref_psize);
    let copies = ratio(total.ref_dsize, total.ref_psize);
    writeln!(
        out,
        "dedup = {dedup:.2}, compress = {compress:.2}, copies = {copies:.2}, \
         dedup * compress / copies = {:.2}\n",
        dedup * compress / copies
    )
}
