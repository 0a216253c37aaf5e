//! Pools that are completely filled, in several ways, and emptied again.
//!
//! ```text
//! available ── fill until nothing fits ── sync ── remove everything ── sync ── available again
//!     └─────────────────────────── as often as one likes ───────────────────────────┘
//! end: exported, and the walk over all blocks finds no leak
//! ```
//! The only errors allowed while a pool is filled are "no space" and "quota", and removals must
//! never fail.

mod pattern;

pub use pattern::Pattern;

use crate::view::names;
use crate::{Bounds, Files, OpenPool, PoolFiles, ProofError, Settings, walk};
use pattern::is_full;
use rzfs_format::ObjectId;
use rzfs_format::dirent::FileKind;
use rzfs_hostile::Random;
use rzfs_zpl::live::LiveFileSystem;
use std::path::Path;
use std::sync::Arc;

/// Space that a pool may keep after all rounds: space maps and their logs, tables and directories
/// that do not shrink.
const KEPT: u64 = 1 << 20;
/// Space it may keep after the rounds following the first one.
const KEPT_LATER: u64 = 512 << 10;
/// Maximum txgs until removed data is free: those that defer frees, and those that free what
/// removed files had.
const TXGS_TO_SETTLE: usize = 40;
/// Maximum files created when nothing larger fits.
const LAST_FILES: usize = 20_000;

/// The result of filling a pool.
#[derive(Clone, Debug)]
pub struct FullPool {
    /// Bytes that were available at the beginning.
    pub available: u64,
    /// Maximum bytes left over all rounds when nothing fitted any longer.
    pub left: u64,
    /// Bytes that were available after each round.
    pub afterwards: Vec<u64>,
    /// The error found.
    pub finding: Option<String>,
}

/// Fills a pool in a directory and empties it, this many times.
///
/// # Errors
/// The pool cannot be made, or stops.
pub fn fill_and_empty(
    pattern: Pattern,
    rounds: u64,
    directory: &Path,
) -> Result<FullPool, ProofError> {
    let mut settings = Settings { bounds: Bounds::Accounts, ..Settings::default() };
    // Otherwise each map may keep four blocks of 128 KiB, which would hide what is lost.
    settings.pool.tunables.zfs_metaslab_condense_block_threshold = 0;
    let files = PoolFiles::new(directory, pattern.pool());
    let open = pattern.open(&files, &settings)?;
    let systems: Vec<_> = pattern.file_systems(&open);
    settle(&open, &systems)?;
    let begun = available(&systems);
    let mut result = FullPool { available: begun, left: 0, afterwards: Vec::new(), finding: None };
    for round in 0..rounds {
        let random = Random::of_place(round, &[pattern as u64]);
        result.finding = one_round(pattern, &open, &systems, random, &mut result.left)?;
        settle(&open, &systems)?;
        result.afterwards.push(available(&systems));
        result.finding = result.finding.or_else(|| lost(begun, &result.afterwards));
        if let Some(finding) = &mut result.finding {
            *finding = format!("round {round}: {finding}");
            break;
        }
    }
    drop(systems);
    open.export()?;
    if result.finding.is_none() {
        result.finding = walk(&files.read(&settings)?)?;
    }
    Ok(result)
}

/// Returns how much is missing after the last of some rounds, if that is too much.
fn lost(begun: u64, afterwards: &[u64]) -> Option<String> {
    let (first, last) = (*afterwards.first()?, *afterwards.last()?);
    let (all, later) = (begun.saturating_sub(last), first.saturating_sub(last));
    let is_too_much = all > KEPT || later > KEPT_LATER;
    is_too_much.then(|| format!("{all} of {begun} bytes are gone, {later} after the first round"))
}

/// Fills all file systems and removes everything; returns the error found.
fn one_round(
    pattern: Pattern,
    open: &OpenPool,
    systems: &[Arc<LiveFileSystem>],
    mut random: Random,
    left: &mut u64,
) -> Result<Option<String>, ProofError> {
    for fs in systems {
        let filled = pattern.fill(&Files(fs), &mut random);
        let topped_up = filled.and_then(|()| top_up(&Files(fs)));
        if let Err(error) = topped_up {
            return Ok(Some(format!("filling: {error}")));
        }
    }
    open.sync()?;
    *left = (*left).max(available(systems));
    for fs in systems {
        if let Err(error) = empty(fs, fs.root()) {
            return Ok(Some(format!("removing: {error}")));
        }
    }
    Ok(None)
}

/// Writes ever smaller pieces, until not even an empty file fits.
fn top_up(files: &Files<'_>) -> Result<(), ProofError> {
    let directory = "top";
    if is_full(files.mkdir(directory).map(drop))? {
        return Ok(());
    }
    let mut number = 0;
    for size in [65_536, 4096, 1, 0] {
        while number < LAST_FILES {
            number += 1;
            if is_full(files.put(&format!("{directory}/{number}"), &vec![7; size]))? {
                break;
            }
        }
    }
    Ok(())
}

/// Removes everything below a directory.
fn empty(fs: &LiveFileSystem, directory: ObjectId) -> Result<(), ProofError> {
    let names = names(fs, directory).map_err(|source| ProofError::at("", source))?;
    for (name, child) in names {
        let failed = |source| ProofError::at(&String::from_utf8_lossy(&name), source);
        if fs.attributes(child).map_err(failed)?.kind == FileKind::Directory {
            empty(fs, child)?;
            fs.rmdir(directory, &name).map_err(failed)?;
        } else {
            fs.unlink(directory, &name).map_err(failed)?;
        }
    }
    Ok(())
}

fn available(systems: &[Arc<LiveFileSystem>]) -> u64 {
    let each = systems.iter().map(|fs| fs.options().space.usage().available);
    each.min().unwrap_or(0)
}

/// Syncs until nothing more is freed.
fn settle(open: &OpenPool, systems: &[Arc<LiveFileSystem>]) -> Result<(), ProofError> {
    let mut known = (available(systems), 0);
    for _ in 0..TXGS_TO_SETTLE {
        open.sync()?;
        let now = available(systems);
        known = if now == known.0 { (now, known.1 + 1) } else { (now, 0) };
        if known.1 > 4 {
            break;
        }
    }
    Ok(())
}
