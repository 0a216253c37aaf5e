//! A space map: its statistics, and its entries word by word.

use super::report::Detail;
use crate::error::ZdbError;
use crate::session::{Session, Verdict};
use rzfs_dsl::pool::MosStore;
use rzfs_format::space_map::{Action, Entry, Form, Geometry, Run};
use rzfs_metaslab::space_map::EntryTotals;
use rzfs_metaslab::{MetaslabError, SpaceMap};
use std::io::{self, Write};

/// The vdev of an entry that has none.
const NO_VDEV: u32 = 1 << 24;

/// Shows a map.
pub(super) fn print(
    session: &mut Session<'_>,
    store: &MosStore,
    map: &SpaceMap,
    detail: Detail,
) -> Result<Verdict, ZdbError> {
    let header = map.header();
    writeln!(session.out, "space map object {}:", map.object())?;
    writeln!(session.out, "  smp_length = {:#x}", header.length)?;
    writeln!(session.out, "  smp_alloc = {:#x}", header.allocated)?;
    if !detail.entries {
        return Ok(Verdict::Clean);
    }
    match entries(session.out, store, map)? {
        Ok(totals) if totals.net() == header.allocated => Ok(Verdict::Clean),
        Ok(totals) => {
            writeln!(
                session.out,
                "space_map_object alloc ({}) INCONSISTENT with space map summary ({})",
                totals.net(),
                header.allocated
            )?;
            Ok(Verdict::Damaged)
        }
        Err(error) => {
            writeln!(session.out, "\t    cannot be read further: {error}")?;
            Ok(Verdict::Damaged)
        }
    }
}

/// Shows the entries; returns their totals, or why the rest cannot be read.
fn entries(
    out: &mut dyn Write,
    store: &MosStore,
    map: &SpaceMap,
) -> io::Result<Result<EntryTotals, MetaslabError>> {
    let mut totals = EntryTotals::default();
    let mut number = 0_u64;
    let mut written = Ok(());
    let read = map.visit(store, |_, entry| {
        if let Entry::Run(run) = &entry {
            let bytes = run.length << map.geometry().shift.min(63);
            totals.entries += 1;
            let sum = match run.action {
                Action::Allocate => &mut totals.allocated,
                Action::Free => &mut totals.freed,
            };
            *sum = sum.saturating_add(bytes);
        }
        if written.is_ok() {
            written = print_entry(out, number, &entry, map.geometry());
        }
        number += 1;
        Ok(())
    });
    written?;
    Ok(read.map(|()| totals))
}

fn print_entry(
    out: &mut dyn Write,
    number: u64,
    entry: &Entry,
    geometry: Geometry,
) -> io::Result<()> {
    match entry {
        Entry::Padding => writeln!(out, "\t    [{number:6}] PADDING"),
        Entry::Debug { action, pass, txg } => {
            let action = ["ALLOC", "FREE"].get(usize::from(*action)).unwrap_or(&"INVALID");
            writeln!(out, "\t    [{number:6}] {action}: txg {txg} pass {pass}")
        }
        Entry::Run(run) => print_run(out, number, run, geometry),
    }
}

fn print_run(out: &mut dyn Write, number: u64, run: &Run, geometry: Geometry) -> io::Result<()> {
    let action = match run.action {
        Action::Allocate => 'A',
        Action::Free => 'F',
    };
    let (vdev, words) = match run.form {
        Form::OneWord => (NO_VDEV, 1),
        Form::TwoWords { vdev } => (vdev.0, 2),
    };
    let shift = geometry.shift.min(63);
    let start = (run.offset << shift).wrapping_add(geometry.start);
    let size = run.length << shift;
    let end = start.wrapping_add(size);
    writeln!(
        out,
        "\t    [{number:6}]    {action}  range: {start:010x}-{end:010x}  size: {size:06x} \
         vdev: {vdev:06} words: {words}"
    )
}
