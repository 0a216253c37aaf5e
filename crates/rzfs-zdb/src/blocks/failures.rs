//! Unreadable blocks, and counts of errors.
//!
//! A block of metadata is read twice: by the walk, which needs its contents, and by the verifier.
//! If both fail it is reported once; in a pool with thousands of such blocks a few are reported
//! twice, because at most [`MAX_WAITING`] failures are held back for comparison.

use super::count::is_metadata;
use super::verify::Failure;
use crate::session::{Session, Verdict};
use crate::text::pointer::Full;
use rzfs_dmu::{BlockError, DmuError};
use rzfs_format::units::Bookmark;
use std::collections::{BTreeMap, HashSet};
use std::io;

/// Maximum number of errors of the walk held back for the verifier.
const MAX_WAITING: usize = 1 << 14;

/// All failures to read.
#[derive(Default)]
pub(super) struct Failures {
    counts: BTreeMap<i32, u64>,
    /// Metadata reported by the verifier since the last report of the walk's errors.
    reported: HashSet<Bookmark>,
    /// Errors of the walk, held back until the verifier has reported its own.
    walk_failures: Vec<DmuError>,
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
        // If a report cannot be written the next write fails where that can be handled.
        let _ = writeln!(
            session.out,
            "zdb_blkptr_cb: Got error {errno} reading {bookmark} {pointer} -- skipping"
        );
    }

    /// Records a failure of the walk. Returns whether it is time to [report](Self::report_unwalked)
    /// them.
    pub(super) fn walk_failures(&mut self, error: DmuError) -> bool {
        self.walk_failures.push(error);
        self.walk_failures.len() >= MAX_WAITING
    }

    /// Reports failures of the walk alone, once all blocks so far are verified.
    pub(super) fn report_unwalked(&mut self, session: &mut Session<'_>) {
        for error in std::mem::take(&mut self.walk_failures) {
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

    /// Shows the counts of errors.
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

/// The errno of an error, as in OpenZFS: a wrong checksum is not just an I/O error.
fn errno(error: &BlockError) -> i32 {
    match error {
        BlockError::Device(error) => error.errno(),
        error => error.errno(),
    }
}
