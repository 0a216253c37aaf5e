//! `zdb -b` and `-c`: counts and verifies all blocks of a pool, and checks its space maps.

mod claim;
mod count;
mod failures;
mod removal;
mod sharing;
mod table;
mod verify;
mod walk;

use super::checkpoint;
use super::error::ZdbError;
use super::metaslabs::embedded_log;
use super::session::{Session, Verdict};
use super::text::histogram;
use claim::{Claims, LoadError};
use count::BlockCounts;
use failures::Failures;
use rzfs_dsl::pool::{MosStore, Pool};
use rzfs_dsl::walk::Part;
use rzfs_metaslab::{PoolMetaslabs, VdevMetaslabs};
use rzfs_vdev::config::AllocationBias;
use sharing::Sharing;
use std::io;
use std::sync::atomic::AtomicU64;
use verify::Verifier;
use walk::{Progress, Verify, Walk};

/// Bytes of an allocation class.
#[derive(Clone, Copy, Default)]
struct ClassSpace {
    allocated: i64,
    space: u64,
}

/// The allocation classes of a pool, according to the metaslabs' own space maps.
#[derive(Default)]
struct Classes {
    normal: ClassSpace,
    special: ClassSpace,
    dedup: ClassSpace,
    log: ClassSpace,
    embedded_log: ClassSpace,
}

impl Classes {
    fn read(pool: &Pool, metaslabs: &PoolMetaslabs) -> Self {
        let mut classes = Self::default();
        for vdev in metaslabs.vdevs() {
            let top = pool.vdevs().top_level(vdev.geometry().vdev);
            let bias = top.and_then(|top| top.allocation_bias());
            let log = embedded_log(vdev, bias);
            for metaslab in vdev.metaslabs() {
                let class = match bias {
                    _ if log == Some(metaslab.id()) => &mut classes.embedded_log,
                    Some(AllocationBias::Log) => &mut classes.log,
                    Some(AllocationBias::Special) => &mut classes.special,
                    Some(AllocationBias::Dedup) => &mut classes.dedup,
                    None => &mut classes.normal,
                };
                class.allocated = class.allocated.saturating_add(metaslab.own_allocated());
                class.space = class.space.saturating_add(metaslab.size());
            }
        }
        classes
    }

    /// Adds the space of removed vdevs, as OpenZFS's zdb does when it looks for leaks: it treats
    /// their mappings as metaslabs.
    fn add_removed(&mut self, pool: &Pool) {
        for vdev in pool.vdevs().top_levels().filter(|vdev| vdev.mapping().is_some()) {
            let config = vdev.own_config();
            let top = &config.top;
            let (Some(asize), Some(shift)) = (top.asize, top.metaslab_shift) else { continue };
            let shift = u32::try_from(shift).unwrap_or(u32::MAX).min(63);
            self.normal.space = self.normal.space.saturating_add(asize >> shift << shift);
        }
    }

    fn allocated(&self) -> i64 {
        [self.normal, self.special, self.dedup, self.log, self.embedded_log]
            .iter()
            .fold(0, |sum: i64, class| sum.saturating_add(class.allocated))
    }
}

/// The findings of the walk, once its threads are done.
struct Findings<'a> {
    counts: BlockCounts,
    sharing: Sharing,
    /// The unclaimed space, if it was tracked.
    claims: Option<Claims<'a>>,
    claim_errors: u64,
    removing_bytes: u64,
    failures: Failures,
}

/// Walks all blocks and reports.
pub(crate) fn run(session: &mut Session<'_>, pool: &Pool) -> Result<Verdict, ZdbError> {
    let track_leaks = session.arguments.no_leaks == 0;
    let verify = match session.arguments.checksum {
        0 => Verify::Nothing,
        1 => Verify::Metadata,
        _ => Verify::Everything,
    };
    print_title(session, verify, track_leaks)?;
    let metaslabs = pool.metaslabs()?;
    let mut classes = Classes::read(pool, &metaslabs);
    let (claims, checkpoint_bytes) = if track_leaks {
        classes.add_removed(pool);
        let (claims, checkpoint) = load_claims(session, pool, &metaslabs)?;
        (Some(claims), checkpoint)
    } else {
        (None, 0)
    };
    let allocated = classes.allocated().saturating_add(metaslabs.unflushed_net());
    let found = walk(session, pool, verify, claims, allocated.max(0).cast_unsigned())?;
    let mut verdict = found.failures.print_counts(session)?;
    if track_leaks {
        let leaks = print_leaks(session, &found)?;
        let balance = Balance { allocated, checkpoint_bytes, leaks };
        if !print_balance(session, &found, balance)? {
            verdict = verdict.max(Verdict::Damaged);
        }
    }
    print_summary(session, pool, &found, &classes)?;
    let verbosity = session.arguments.blocks;
    if verbosity >= 2 {
        table::print(session, &found.counts, verbosity)?;
        table::print_sizes(session, &found.counts)?;
    }
    writeln!(session.out)?;
    Ok(verdict)
}

fn print_title(session: &mut Session<'_>, verify: Verify, track_leaks: bool) -> io::Result<()> {
    let checksums = match verify {
        Verify::Nothing => "",
        Verify::Metadata => " metadata checksums",
        Verify::Everything => " checksums",
    };
    let to_verify = if verify != Verify::Nothing || track_leaks { " to verify" } else { "" };
    let and = if verify != Verify::Nothing && track_leaks { " and verify" } else { "" };
    let leaks = if track_leaks { " nothing leaked" } else { "" };
    writeln!(session.out, "\nTraversing all blocks{to_verify}{checksums}{and}{leaks} ...\n")
}

/// Loads the allocated space, without the checkpoint's part; also returns the size of that.
fn load_claims<'a>(
    session: &mut Session<'_>,
    pool: &'a Pool,
    metaslabs: &PoolMetaslabs,
) -> Result<(Claims<'a>, u64), ZdbError> {
    let mut claims = Claims::load(pool, &mut |vdev, metaslab, count| {
        // A failure to show progress is no reason to stop.
        let _ = write!(
            session.notes,
            "\rloading concrete vdev {vdev}, metaslab {metaslab} of {count} ..."
        );
    })
    .map_err(|error| match error {
        LoadError::Pool(error) => ZdbError::Pool(error),
        LoadError::Metaslab(error) => ZdbError::Space(error),
    })?;
    let _ = writeln!(session.notes);
    let mut checkpoint_bytes = 0;
    for vdev in metaslabs.vdevs() {
        checkpoint_bytes += exclude_checkpoint(session, pool, vdev, &mut claims)?;
    }
    Ok((claims, checkpoint_bytes))
}

/// Removes the space that is allocated only for the checkpoint; returns its size.
fn exclude_checkpoint(
    session: &mut Session<'_>,
    pool: &Pool,
    vdev: &VdevMetaslabs,
    claims: &mut Claims<'_>,
) -> Result<u64, ZdbError> {
    let Some(map) = checkpoint::space_map(pool, vdev)? else { return Ok(0) };
    let id = vdev.geometry().vdev;
    let store = MosStore::new(pool.mos().clone());
    let mut problems = Vec::new();
    let totals = map.visit_ranges(&store, |_, range| {
        problems.extend(claims.take(id, range).err());
        Ok(())
    })?;
    for problem in problems {
        writeln!(session.out, "checkpoint: block claim error: {problem}")?;
    }
    Ok(totals.freed)
}

fn walk<'a>(
    session: &mut Session<'_>,
    pool: &'a Pool,
    verify: Verify,
    claims: Option<Claims<'a>>,
    expected: u64,
) -> Result<Findings<'a>, ZdbError> {
    let sharing = Sharing::load(pool)?;
    let verified = AtomicU64::new(0);
    let in_flight = session.arguments.inflight;
    std::thread::scope(|scope| {
        let verifier = Verifier::start(scope, pool.pipeline(), in_flight, &verified)?;
        let mut walk = Walk {
            pool,
            session,
            counts: BlockCounts::default(),
            sharing,
            claims,
            claim_errors: 0,
            removing_bytes: 0,
            failures: Failures::default(),
            verify,
            verifier: Some(verifier),
            progress: Progress::new(expected),
            part: Part::FreeLists,
            stopped: None,
        };
        walk.run()?;
        walk.finish();
        Ok(Findings {
            counts: walk.counts,
            sharing: walk.sharing,
            claims: walk.claims,
            claim_errors: walk.claim_errors,
            removing_bytes: walk.removing_bytes,
            failures: walk.failures,
        })
    })
}

/// Shows allocated space that belongs to no block; returns the number of ranges.
fn print_leaks(session: &mut Session<'_>, found: &Findings<'_>) -> io::Result<u64> {
    let mut leaks = 0;
    for leak in found.claims.iter().flat_map(Claims::leaks) {
        leaks += 1;
        let (offset, size) = (leak.range.start, leak.range.end - leak.range.start);
        writeln!(session.out, "leaked space: vdev {}, offset {offset:#x}, size {size}", leak.vdev)?;
    }
    Ok(leaks)
}

/// The totals of the space maps.
#[derive(Clone, Copy)]
struct Balance {
    allocated: i64,
    checkpoint_bytes: u64,
    /// Unclaimed ranges.
    leaks: u64,
}

/// Compares the blocks with the space maps; returns whether they agree.
fn print_balance(
    session: &mut Session<'_>,
    found: &Findings<'_>,
    Balance { allocated, checkpoint_bytes, leaks }: Balance,
) -> io::Result<bool> {
    let shared = found.sharing.dedup_bytes.saturating_add(found.sharing.clone_bytes);
    let blocks = found
        .counts
        .total()
        .asize
        .saturating_sub(shared)
        .saturating_add(found.removing_bytes)
        .saturating_add(checkpoint_bytes);
    let difference = i128::from(allocated) - i128::from(blocks);
    if difference == 0 && leaks == 0 && found.claim_errors == 0 {
        writeln!(session.out, "\n\tNo leaks (block sum matches space maps exactly)")?;
        return Ok(true);
    }
    if difference != 0 {
        let kind = if difference > 0 { "leaked" } else { "unreachable" };
        writeln!(
            session.out,
            "block traversal size {blocks} != alloc {allocated} ({kind} {difference})"
        )?;
    }
    Ok(false)
}

fn print_summary(
    session: &mut Session<'_>,
    pool: &Pool,
    found: &Findings<'_>,
    classes: &Classes,
) -> io::Result<()> {
    let total = found.counts.total();
    let Sharing { dedup_bytes, dedup_references, clone_bytes, clone_references, .. } =
        found.sharing;
    let average = |bytes: u64| bytes.checked_div(total.count).unwrap_or(0);
    let ratio = |part: u64| total.lsize as f64 / part as f64;
    let dedup = dedup_bytes as f64 / total.asize as f64 + 1.0;
    let out = &mut *session.out;
    writeln!(out, "\n\t{:<16} {:14}", "bp count:", total.count)?;
    writeln!(out, "\t{:<16} {:14}", "ganged count:", total.gangs)?;
    writeln!(
        out,
        "\t{:<16} {:14}      avg: {:6}",
        "bp logical:",
        total.lsize,
        average(total.lsize)
    )?;
    for (name, bytes) in [("bp physical:", total.psize), ("bp allocated:", total.asize)] {
        writeln!(
            out,
            "\t{name:<16} {bytes:14}      avg: {:6}     compression: {:6.2}",
            average(bytes),
            ratio(bytes)
        )?;
    }
    writeln!(
        out,
        "\t{:<16} {dedup_bytes:14}    ref>1: {dedup_references:6}   deduplication: {dedup:6.2}",
        "bp deduped:"
    )?;
    writeln!(out, "\t{:<16} {clone_bytes:14}    count: {clone_references:6}", "bp cloned:")?;
    print_classes(out, classes)?;
    print_details(session, pool, &found.counts)
}

fn print_classes(out: &mut dyn io::Write, classes: &Classes) -> io::Result<()> {
    for (name, class, shown) in [
        ("Normal class:", classes.normal, true),
        ("Special class", classes.special, classes.special.allocated > 0),
        ("Dedup class", classes.dedup, classes.dedup.allocated > 0),
        ("Embedded log class", classes.embedded_log, true),
    ] {
        if !shown {
            continue;
        }
        let used = 100.0 * class.allocated as f64 / class.space as f64;
        // C prints the quotient of two zeros like this.
        let used = if used.is_nan() { " -nan".to_owned() } else { format!("{used:5.2}") };
        writeln!(out, "\t{name:<16} {:14}     used: {used}%", class.allocated)?;
    }
    Ok(())
}

/// Embedded pointers, copies on one vdev, removed vdevs.
fn print_details(session: &mut Session<'_>, pool: &Pool, counts: &BlockCounts) -> io::Result<()> {
    for (kind, count) in counts.embedded_kinds.iter().enumerate().filter(|(_, count)| **count > 0) {
        writeln!(session.out, "\n\tadditional, non-pointer bps of type {kind}: {count:10}")?;
        if session.arguments.blocks >= 3 {
            writeln!(session.out, "\t number of (compressed) bytes:  number of bps")?;
            histogram::print(session.out, &counts.embedded_sizes, 0)?;
        }
    }
    let dittos = counts.total().dittos;
    if dittos > 0 {
        writeln!(session.out, "\tDittoed blocks on same vdev: {dittos}")?;
    }
    for vdev in pool.vdevs().top_levels() {
        if let (Some(id), Some(mapping)) = (vdev.vdev_id(), vdev.mapping()) {
            let segments = mapping.entries().len();
            writeln!(
                session.out,
                "\tindirect vdev id {id} has {segments} segments ({segments} in memory)"
            )?;
        }
    }
    Ok(())
}
