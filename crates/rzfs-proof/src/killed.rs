//! Writers that are killed, and the expected state afterwards.
//!
//! Each writer has a directory. Its step `n` makes the file `n`, writes it, and removes the file
//! `n - KEPT`. So after any crash, a directory has the files of successive steps. A journal outside
//! the pool records what the pool reported as on disk, which must be there. The first writer waits
//! for each of its steps, which makes it durable by the intent log, and records it there itself.
//!
//! Steps not waited for may be truncated anywhere: the intent log has all names before the contents
//! of files, so a file of such a step has any prefix of what was written.

use crate::fill::noise;
use crate::view::record;
use crate::{Files, OpenPool, PoolFiles, ProofError, Settings, walk};
use rzfs_hostile::Random;
use rzfs_testkit::{EntryKind, FileSystemManifest};
use rzfs_zpl::live::LiveFileSystem;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number of writers.
pub const WRITERS: u64 = 3;
/// Number of files kept by a writer in its directory.
const KEPT: u64 = 40;
/// Largest file.
const LARGEST: u64 = 300_000;
/// How long a transaction group stays open, so that several are cut off at a time.
const TIMEOUT: Duration = Duration::from_millis(150);
/// Interval between requests to write a group.
const BETWEEN_SYNCS: Duration = Duration::from_millis(300);
/// The writer that waits for each of its steps.
const WAITING: u64 = 0;

fn directory(writer: u64) -> String {
    format!("writer-{writer}")
}

fn contents(writer: u64, step: u64) -> Vec<u8> {
    let mut random = Random::of_place(writer, &[step]);
    let largest = if step.is_multiple_of(3) { LARGEST } else { 5000 };
    let size = random.below(largest) as usize + 1;
    noise(random.draw(), size)
}

/// Opens a pool and changes it until this process is killed. Steps on disk are recorded in the
/// journal, a line for each writer: `writer step`.
///
/// # Errors
/// Anything but being killed.
pub fn write_until_killed(files: &PoolFiles, journal: &Path) -> Result<(), ProofError> {
    let mut settings = Settings::default();
    settings.pool.tunables.zfs_txg_timeout = TIMEOUT;
    let open = files.open(&settings)?;
    let (_, fs) = open.root()?;
    let steps: Vec<AtomicU64> = (0..WRITERS)
        .map(|writer| Ok(AtomicU64::new(first_step(fs, writer)?)))
        .collect::<Result<_, ProofError>>()?;
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (writer, step) in (0..WRITERS).zip(&steps) {
            let journal = (writer == WAITING).then_some(journal);
            threads.push(scope.spawn(move || write(fs, writer, step, journal)));
        }
        note(&open, journal, &steps)?;
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    })
}

/// The step after the last one whose file exists. Truncated files are rewritten, and files that
/// steps should have removed are removed.
fn first_step(fs: &LiveFileSystem, writer: u64) -> Result<u64, ProofError> {
    let files = Files(fs);
    if files.find(&directory(writer)).is_err() {
        files.mkdir(&directory(writer))?;
    }
    let names = files.names(&directory(writer))?;
    let steps: Vec<u64> = names.iter().filter_map(|name| name.parse().ok()).collect();
    let next = steps.iter().max().map_or(0, |last| last + 1);
    for step in steps {
        let path = format!("{}/{step}", directory(writer));
        if step + KEPT < next {
            files.unlink(&path)?;
            continue;
        }
        let attributes = fs.attributes(files.find(&path)?);
        let size = attributes.map_err(|source| ProofError::at(&path, source))?.size;
        let wanted = contents(writer, step);
        if size != wanted.len() as u64 {
            files.write(&path, 0, &wanted)?;
        }
    }
    Ok(next)
}

/// Makes step after step; records each when it is durable, if there is a journal for that.
fn write(
    fs: &LiveFileSystem,
    writer: u64,
    next: &AtomicU64,
    journal: Option<&Path>,
) -> Result<(), ProofError> {
    let files = Files(fs);
    loop {
        let step = next.load(Ordering::Relaxed);
        let path = |step: u64| format!("{}/{step}", directory(writer));
        files.put(&path(step), &contents(writer, step))?;
        if let Some(journal) = journal {
            fs.commit_all().map_err(|source| ProofError::at(&path(step), source))?;
            append(journal, &format!("{writer} {}\n", step + 1))?;
        }
        next.store(step + 1, Ordering::Release);
        if let Some(old) = step.checked_sub(KEPT)
            && files.find(&path(old)).is_ok()
        {
            files.unlink(&path(old))?;
        }
    }
}

/// Syncs repeatedly, and records what is on disk.
fn note(open: &OpenPool, journal: &Path, steps: &[AtomicU64]) -> Result<(), ProofError> {
    loop {
        let done: Vec<u64> = steps.iter().map(|step| step.load(Ordering::Acquire)).collect();
        open.pool.sync().map_err(|_| ProofError::Suspended(open.pool.failure()))?;
        let lines: String = (0..)
            .zip(done)
            .map(|(writer, step): (u64, u64)| format!("{writer} {step}\n"))
            .collect();
        append(journal, &lines)?;
        std::thread::sleep(BETWEEN_SYNCS);
    }
}

fn append(journal: &Path, lines: &str) -> Result<(), ProofError> {
    let file = File::options().create(true).append(true).open(journal);
    file.and_then(|mut file| file.write_all(lines.as_bytes())).map_err(ProofError::Journal)
}

/// The error in a pool whose writers were killed.
///
/// # Errors
/// It cannot be examined.
pub fn look_at(files: &PoolFiles, journal: &Path) -> Result<Option<String>, ProofError> {
    let settings = Settings::default();
    let seen = {
        // Data in the intent log is there once the pool is opened for writing.
        let open = files.open(&settings)?;
        open.sync()?;
        record(&**open.root()?.1)?
    };
    let pool = files.read(&settings)?;
    let journal = std::fs::read_to_string(journal).unwrap_or_default();
    for writer in 0..WRITERS {
        let noted = journal.lines().filter_map(|line| {
            let (who, step) = line.split_once(' ')?;
            (who.parse() == Ok(writer)).then(|| step.parse().ok())?
        });
        let noted = noted.max();
        if let Some(finding) = wrong_with(writer, &seen, noted.unwrap_or(0)) {
            return Ok(Some(format!("writer {writer}: {finding}")));
        }
    }
    walk(&pool)
}

/// The error in a writer's directory with this many steps on disk.
fn wrong_with(writer: u64, seen: &FileSystemManifest, noted: u64) -> Option<String> {
    let prefix = format!("{}/", directory(writer));
    let mut steps: Vec<(u64, &rzfs_testkit::Entry)> = seen
        .entries
        .iter()
        .filter_map(|(path, entry)| {
            let name = path.strip_prefix(prefix.as_bytes())?;
            Some((std::str::from_utf8(name).ok()?.parse().ok()?, entry))
        })
        .collect();
    steps.sort_unstable_by_key(|(step, _)| *step);
    let (first, last) = (steps.first().map_or(0, |it| it.0), steps.last().map_or(0, |it| it.0));
    if noted > 0 && last + 1 < noted {
        return Some(format!("{noted} steps were on disk, the last file is {last}"));
    }
    let count = steps.len() as u64;
    if count > 0 && (count != last - first + 1 || count > KEPT + 1) {
        return Some(format!("{count} files, from {first} to {last}"));
    }
    steps.into_iter().find_map(|(step, entry)| {
        let wanted = contents(writer, step);
        let there = usize::try_from(entry.size).ok().and_then(|size| wanted.get(..size));
        let may_be_cut_off = step >= noted;
        let is_right = entry.kind == EntryKind::Regular
            && there.is_some_and(|there| {
                (may_be_cut_off || there.len() == wanted.len())
                    && entry.sha256 == Some(Sha256::digest(there).into())
            });
        let size = entry.size;
        (!is_right).then(|| format!("file {step} of {size} bytes is not what was written"))
    })
}
