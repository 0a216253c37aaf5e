//! `zdb -bb`: the table of blocks by type, and the histogram of block sizes.

use super::count::{
    ALL_LEVELS, BlockCounts, DEFERRED, LEVELS, POWER_BUCKETS, PowerHistogram, ROWS, TOTAL, Tally,
};
use crate::session::Session;
use crate::text::histogram;
use rzfs_format::object_type::ObjectType;
use std::io;

/// The name of a row.
fn row_name(row: usize) -> &'static str {
    const OWN: [&str; ROWS - DEFERRED] = ["deferred free", "dedup ditto", "other", "Total"];
    match u8::try_from(row).ok().and_then(|number| ObjectType::from_number(number).ok()) {
        Some(object_type) => object_type.name(),
        None => row.checked_sub(DEFERRED).and_then(|row| OWN.get(row)).copied().unwrap_or(""),
    }
}

/// Prints the table; with verbosity 3 each level has a row.
pub(super) fn print(
    session: &mut Session<'_>,
    counts: &BlockCounts,
    verbosity: u8,
) -> io::Result<()> {
    writeln!(session.out, "\nBlocks\tLSIZE\tPSIZE\tASIZE\t  avg\t comp\t%Total\tType")?;
    let total = counts.total();
    for row in 0..ROWS {
        print_row(session, counts, row, &total, verbosity)?;
    }
    print_tally(session, &counts.metadata(), &total)?;
    writeln!(session.out, "Metadata Total")
}

fn print_row(
    session: &mut Session<'_>,
    counts: &BlockCounts,
    row: usize,
    total: &Tally,
    verbosity: u8,
) -> io::Result<()> {
    let name = row_name(row);
    let all = counts.tally(row, ALL_LEVELS).cloned().unwrap_or_default();
    if all.asize == 0 {
        return writeln!(
            session.out,
            "{:>6}\t{:>5}\t{:>5}\t{:>5}\t{:>5}\t{:>5}\t{:>6}\t{name}",
            "-", "-", "-", "-", "-", "-", "-"
        );
    }
    let levels = (0..LEVELS).rev().chain([ALL_LEVELS]);
    for level in levels {
        let Some(tally) = counts.tally(row, level).filter(|tally| tally.asize > 0) else {
            continue;
        };
        // A type with blocks of level 0 only needs no row for that level.
        let only_level = level != ALL_LEVELS && tally.asize == all.asize;
        if level != ALL_LEVELS && (verbosity < 3 || (level == 0 && only_level)) {
            continue;
        }
        print_tally(session, tally, total)?;
        if level == ALL_LEVELS {
            writeln!(session.out, "{name}")?;
        } else {
            writeln!(session.out, "    L{level} {name}")?;
        }
        if verbosity >= 3 && tally.gangs > 0 {
            let gangs = session.number(tally.gangs);
            writeln!(session.out, "\t number of ganged blocks: {gangs}")?;
        }
        if verbosity >= 4 {
            writeln!(session.out, "psize (in 512-byte sectors): number of blocks")?;
            histogram::print(session.out, &tally.sizes, 0)?;
        }
    }
    Ok(())
}

fn print_tally(session: &mut Session<'_>, tally: &Tally, total: &Tally) -> io::Result<()> {
    let [count, lsize, psize, asize, average] = [
        tally.count,
        tally.lsize,
        tally.psize,
        tally.asize,
        tally.asize.checked_div(tally.count).unwrap_or(0),
    ]
    .map(|number| session.number(number));
    let compression = tally.lsize as f64 / tally.psize as f64;
    let share = 100.0 * tally.asize as f64 / total.asize as f64;
    write!(
        session.out,
        "{count:>6}\t{lsize:>5}\t{psize:>5}\t{asize:>5}\t{average:>5}\t{compression:5.2}\t\
         {share:6.2}\t"
    )
}

/// Prints the number of blocks for each power of two, by their three sizes.
pub(super) fn print_sizes(session: &mut Session<'_>, counts: &BlockCounts) -> io::Result<()> {
    writeln!(session.out, "\nBlock Size Histogram\n")?;
    writeln!(session.out, "  block   psize                lsize                asize")?;
    writeln!(
        session.out,
        "   size   Count   Size   Cum.  Count   Size   Cum.  Count   Size   Cum."
    )?;
    let mut sums = [0_u64; 3];
    for bucket in 0..POWER_BUCKETS {
        let size = session.number(512 << bucket);
        write!(session.out, "{size:>7}:")?;
        let columns = [&counts.psizes, &counts.lsizes, &counts.asizes];
        for (column, sum) in columns.into_iter().zip(&mut sums) {
            print_bucket(session, column, bucket, sum)?;
        }
        writeln!(session.out)?;
    }
    Ok(())
}

fn print_bucket(
    session: &mut Session<'_>,
    histogram: &PowerHistogram,
    bucket: usize,
    sum: &mut u64,
) -> io::Result<()> {
    let count = histogram.counts.get(bucket).copied().unwrap_or(0);
    let bytes = histogram.bytes.get(bucket).copied().unwrap_or(0);
    *sum = sum.saturating_add(bytes);
    let [count, bytes, sum] = [count, bytes, *sum].map(|number| session.number(number));
    write!(session.out, "{count:>7}{bytes:>7}{sum:>7}")
}

/// Index of the total row, for callers that print it alone.
const _: () = assert!(TOTAL + 1 == ROWS);
