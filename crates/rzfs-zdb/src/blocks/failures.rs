//! Blocks that cannot be read, and how often which error happened.
//!
//! A block of metadata is read twice: by the walk, which needs what is in it, and by the verifier.
//! What both cannot read is reported once; in a pool with thousands of such blocks a few are
//! reported twice, because no more than [`MAX_WAITING`] of them wait for each other.

use super::count::is_metadata;
use super::verify::Failure;
use crate::session::{Session, Verdict};
use crate::text::pointer::Full;
use rzfs_dmu::{BlockError, DmuError};
use rzfs_format::units::Bookmark;
use std::collections::{BTreeMap, HashSet};
use std::io;

/// Most errors of the walk that wait for the verifier.
const MAX_WAITING: usize = 1 << 14;

/// Everything that could not be read.
#[derive(Default)]
pub(super) struct Failures {
    counts: BTreeMap<i32, u64>,
    /// Metadata that the verifier has reported since the errors of the walk were.
    reported: HashSet<Bookmark>,
    /// What the walk could not read, until the verifier has said which of it it reports.
    unwalked: Vec<DmuError>,
}

impl Failures {
    /// Reports a block that the verifier cannot read.
    pub(super) fn unverified(&mut self, session: &mut Session<'_>, failure: &Failure) {
        let (bookmark, errno) = (failure.bookmark, errno(&failure.error));
        *self.counts.entry(errno).or_default() += 1;
        if is_metadata(&failure.pointer) {
            self.reported.insert(bookmark);
        }
        let shown = session.arguments.blocks >= 2;
        let pointer = if shown { Full(&failure.pointer).to_string() } else { String::new() };
        // A report that cannot be written fails again where it can be handled.
        let _ = writeln!(
            session.out,
            "zdb_blkptr_cb: Got error {errno} reading {bookmark} {pointer} -- skipping"
        );
    }

    /// Notes what the walk cannot read. Says whether it is time to [report](Self::report_unwalked)
    /// it.
    pub(super) fn unwalked(&mut self, error: DmuError) -> bool {
        self.unwalked.push(error);
        self.unwalked.len() >= MAX_WAITING
    }

    /// Reports what only the walk cannot read, once all blocks so far are verified.
    pub(super) fn report_unwalked(&mut self, session: &mut Session<'_>) {
        for error in std::mem::take(&mut self.unwalked) {
            let (errno, text) = match &error {
                DmuError::Block { bookmark, .. } if self.reported.contains(bookmark) => continue,
                DmuError::Block { bookmark, source } => {
                    (errno(source), format!(" reading {bookmark} "))
                }
                error => (error.errno(), format!(": {error}")),
            };
            *self.counts.entry(errno).or_default() += 1;
            let _ = writeln!(session.out, "zdb_blkptr_cb: Got error {errno}{text} -- skipping");
        }
        self.reported.clear();
    }

    /// Shows how often which error happened.
    pub(super) fn print_counts(&self, session: &mut Session<'_>) -> io::Result<Verdict> {
        if self.counts.is_empty() {
            return Ok(Verdict::Clean);
        }
        writeln!(session.out, "\nError counts:\n\n\t{:>5}  count", "errno")?;
        for (errno, count) in &self.counts {
            writeln!(session.out, "\t{errno:>5}  {count}")?;
        }
        Ok(Verdict::Unreadable)
    }
}

/// The number of an error, as OpenZFS has it: a wrong checksum is not just an I/O error.
fn errno(error: &BlockError) -> i32 {
    match error {
        BlockError::Device(error) => error.errno(),
        error => error.errno(),
    }
}
