//! The walk of zdb over all blocks of a pool: it counts them, claims their space and has their
//! checksums verified.

use super::claim::Claims;
use super::count::{BlockCounts, CountAs, is_metadata};
use super::failures::Failures;
use super::removal;
use super::sharing::{Reference, Sharing};
use super::verify::Verifier;
use crate::error::ZdbError;
use crate::session::Session;
use crate::text::pointer::Full;
use rzfs_dmu::{DmuError, Visit, Visitor};
use rzfs_dsl::pool::{Pool, PoolError};
use rzfs_dsl::walk::{Part, PoolVisitor, PoolWalk};
use rzfs_format::dnode::Dnode;
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockPointer, Level};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// The blocks that are read to verify their checksums.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Verify {
    /// Only those that the walk needs.
    Nothing,
    /// Metadata.
    Metadata,
    /// All.
    Everything,
}

/// The state of the walk: its totals, and the data it compares with.
pub(super) struct Walk<'a, 'r, 'scope, 's> {
    pub(super) pool: &'a Pool,
    pub(super) session: &'r mut Session<'s>,
    pub(super) counts: BlockCounts,
    pub(super) sharing: Sharing,
    pub(super) claims: Option<Claims<'a>>,
    pub(super) claim_errors: u64,
    /// Bytes of blocks copied by a running removal.
    pub(super) removing_bytes: u64,
    /// Failures to read.
    pub(super) failures: Failures,
    pub(super) verify: Verify,
    /// The verifier; taken when the walk is done.
    pub(super) verifier: Option<Verifier<'scope>>,
    pub(super) progress: Progress,
    /// The current part of the walk.
    pub(super) part: Part,
    /// The error that stopped the walk.
    pub(super) stopped: Option<ZdbError>,
}

/// The progress of the walk, shown once a second.
pub(super) struct Progress {
    started: Instant,
    shown: Instant,
    /// Allocated bytes, all of which a full verification reads.
    expected: u64,
}

impl Progress {
    pub(super) fn new(expected: u64) -> Self {
        let now = Instant::now();
        Self { started: now, shown: now, expected }
    }

    fn show(&mut self, session: &mut Session<'_>, done: u64) {
        if done == 0 || self.shown.elapsed() < Duration::from_secs(1) {
            return;
        }
        self.shown = Instant::now();
        let elapsed = self.started.elapsed().as_millis().max(1) as u64;
        let per_second = (done / elapsed).saturating_mul(1000).max(1);
        let rest = self.expected.saturating_sub(done) / per_second;
        let (hours, minutes, seconds) = (rest / 3600, rest / 60 % 60, rest % 60);
        let text = format!(
            "{:>5} completed ({:4}MB/s) estimated time remaining: \
             {hours}hr {minutes:02}min {seconds:02}sec        \r",
            session.number(done),
            per_second >> 20,
        );
        // A failure to show progress is no reason to stop.
        let _ = session.notes.write_all(text.as_bytes());
    }
}

impl Walk<'_, '_, '_, '_> {
    /// Visits everything.
    pub(super) fn run(&mut self) -> Result<(), ZdbError> {
        PoolWalk::new(self.pool).run(self);
        self.stopped.take().map_or(Ok(()), Err)
    }

    fn stop_over(&mut self, result: Result<(), impl Into<ZdbError>>) -> ControlFlow<()> {
        match result {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.stopped = Some(error.into());
                ControlFlow::Break(())
            }
        }
    }

    /// The blocks of a vdev being removed exist twice: in their old and new locations. Pointers
    /// lead to the old one, so the new one is claimed here.
    fn removal(&mut self) -> Result<(), ZdbError> {
        let Some(claims) = &mut self.claims else { return Ok(()) };
        let Some(vdev) = self.pool.removal().and_then(removal::active) else {
            return Ok(());
        };
        let copied = removal::copied(self.pool, claims, vdev)?;
        for (target, range) in copied {
            self.removing_bytes += range.end - range.start;
            if let Err(error) = claims.take(target, range) {
                self.claim_errors += 1;
                writeln!(self.session.out, "removal: block claim error: {error}")?;
            }
        }
        Ok(())
    }

    fn visit(&mut self, visit: &Visit<'_>) -> Result<(), ZdbError> {
        let Visit { bookmark, pointer, .. } = *visit;
        if self.part.is_free() {
            return self.count(bookmark, pointer, CountAs::Deferred);
        }
        let is_in_tree = bookmark.level != Level::ZIL;
        if is_in_tree && self.session.arguments.blocks >= 5 {
            self.list(visit)?;
        }
        self.count(bookmark, pointer, CountAs::Type)?;
        if is_in_tree {
            self.verify(bookmark, pointer);
        }
        Ok(())
    }

    fn list(&mut self, &Visit { bookmark, pointer, dnode }: &Visit<'_>) -> Result<(), ZdbError> {
        let offset = dnode.map_or(0, |dnode| offset_of(bookmark, dnode));
        Ok(writeln!(
            self.session.out,
            "objset {} object {} level {} offset {offset:#x} {}",
            bookmark.objset,
            bookmark.object.0.cast_signed(),
            bookmark.level,
            Full(pointer)
        )?)
    }

    /// Counts a reference to a block, claims its space and queues its verification.
    fn count(
        &mut self,
        bookmark: Bookmark,
        pointer: &BlockPointer,
        count_as: CountAs,
    ) -> Result<(), ZdbError> {
        self.counts.record(pointer, count_as);
        if pointer.is_embedded() {
            return Ok(());
        }
        if self.sharing.visit(pointer) == Reference::Owner
            && let Some(claims) = &mut self.claims
            && let Err(error) = claims.claim(pointer)
        {
            self.claim_errors += 1;
            writeln!(
                self.session.out,
                "{bookmark}: block claim error: {error}: {}",
                Full(pointer)
            )?;
        }
        Ok(())
    }

    /// Passes a block of the tree to the verifier, unless the walk reads it anyway.
    fn verify(&mut self, bookmark: Bookmark, pointer: &BlockPointer) {
        let wanted = match self.verify {
            Verify::Nothing => false,
            Verify::Metadata => is_metadata(pointer),
            Verify::Everything => true,
        };
        if !wanted || pointer.is_embedded() {
            return;
        }
        let Some(verifier) = &mut self.verifier else { return };
        verifier.push(bookmark, pointer);
        self.progress.show(self.session, verifier.verified_bytes());
        self.report_unverified();
    }

    /// Reports failures of the verifier so far.
    fn report_unverified(&mut self) {
        let Some(verifier) = &self.verifier else { return };
        for failure in verifier.failures() {
            self.failures.unverified(self.session, &failure);
        }
    }

    /// Waits until all blocks are verified.
    pub(super) fn finish(&mut self) {
        let failures = self.verifier.take().map(Verifier::finish).unwrap_or_default();
        for failure in failures {
            self.failures.unverified(self.session, &failure);
        }
        self.failures.report_unwalked(self.session);
    }
}

/// The first byte of an object covered by a block; saturates.
fn offset_of(bookmark: Bookmark, dnode: &Dnode) -> u64 {
    let levels = u32::from(bookmark.level.0.unsigned_abs()) * dnode.pointers_shift();
    let first = bookmark.block.0.checked_shl(levels).unwrap_or(u64::MAX);
    first.saturating_mul(u64::from(dnode.data_block_size))
}

impl Visitor for Walk<'_, '_, '_, '_> {
    fn block(&mut self, visit: &Visit<'_>) -> ControlFlow<()> {
        let result = self.visit(visit);
        self.stop_over(result)
    }

    fn damage(&mut self, error: DmuError) -> ControlFlow<()> {
        if self.failures.walk_failures(error) {
            if let Some(verifier) = &mut self.verifier {
                verifier.catch_up();
            }
            self.report_unverified();
            self.failures.report_unwalked(self.session);
        }
        ControlFlow::Continue(())
    }
}

impl PoolVisitor for Walk<'_, '_, '_, '_> {
    fn enter(&mut self, part: Part) -> ControlFlow<()> {
        self.part = part;
        // Deferred frees have been claimed before: the others have copies.
        let result = if part == Part::Destroyed { self.removal() } else { Ok(()) };
        self.stop_over(result)
    }

    fn broken(&mut self, error: PoolError) -> ControlFlow<()> {
        self.stop_over(Err(error))
    }
}
