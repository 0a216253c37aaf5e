//! The walk over all blocks of a pool.
//!
//! In this order: what is free but not yet given back (deferred frees, destroyed snapshots, a
//! removal that runs, destroyed datasets, livelists that are being deleted), the MOS, and all
//! datasets. A dataset has the blocks that were born after its previous snapshot; the older ones
//! belong to that snapshot, so every block is visited once for each reference.

use super::claim::Claims;
use super::count::{BlockCounts, CountAs, is_metadata};
use super::failures::Failures;
use super::removal;
use super::sharing::{Reference, Sharing};
use super::verify::Verifier;
use crate::zdb::error::ZdbError;
use crate::zdb::pointer_list;
use crate::zdb::session::Session;
use crate::zdb::text::pointer::Full;
use rzfs_dmu::intent_log::{self, LogChain};
use rzfs_dmu::{DmuError, Traversal, Visitor};
use rzfs_dsl::pool::Pool;
use rzfs_format::bpobj::BptreeEntry;
use rzfs_format::dnode::Dnode;
use rzfs_format::dsl::DslDataset;
use rzfs_format::object_type::ObjectType;
use rzfs_format::objset::ObjsetBlock;
use rzfs_format::units::Bookmark;
use rzfs_format::zil::{Body, ZilHeader};
use rzfs_format::{BlockPointer, Level, ObjectId, ObjsetId, Txg};
use std::time::{Duration, Instant};

/// Which blocks are read to verify their checksums.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Verify {
    /// Those that the walk needs.
    Nothing,
    /// Metadata.
    Metadata,
    /// All.
    Everything,
}

/// Everything that the walk adds up, and what it compares with.
pub(super) struct Walk<'a, 'r, 'scope, 's> {
    pub(super) pool: &'a Pool,
    pub(super) session: &'r mut Session<'s>,
    pub(super) counts: BlockCounts,
    pub(super) sharing: Sharing,
    pub(super) claims: Option<Claims<'a>>,
    pub(super) claim_errors: u64,
    /// Bytes of blocks that a running removal has copied.
    pub(super) removing_bytes: u64,
    /// What cannot be read.
    pub(super) failures: Failures,
    pub(super) verify: Verify,
    /// Where blocks are verified; taken when the walk is done.
    pub(super) verifier: Option<Verifier<'scope>>,
    pub(super) progress: Progress,
}

/// How far the walk is, shown once a second.
pub(super) struct Progress {
    started: Instant,
    shown: Instant,
    /// Bytes that are allocated, all of which a full verification reads.
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
        // Progress that nobody can see is no reason to stop.
        let _ = session.notes.write_all(text.as_bytes());
    }
}

impl Walk<'_, '_, '_, '_> {
    /// Visits everything.
    pub(super) fn run(&mut self) -> Result<(), ZdbError> {
        self.free_lists()?;
        self.removal()?;
        self.destroyed()?;
        self.deleted_livelists()?;
        let mos = *self.pool.mos().root();
        self.objset(ObjsetId::MOS, &mos, Txg(0));
        self.datasets()
    }

    /// Deferred frees and the blocks of destroyed snapshots.
    fn free_lists(&mut self) -> Result<(), ZdbError> {
        for name in ["sync_bplist", "free_bpobj"] {
            let Some(list) = self.pool.directory().object(name)? else { continue };
            let mos = self.pool.mos().clone();
            pointer_list::visit(&mos, list, &mut |pointer| {
                self.count(Bookmark::default(), pointer, CountAs::Deferred)
            })?;
        }
        Ok(())
    }

    /// Objsets that are being destroyed in the background.
    fn destroyed(&mut self) -> Result<(), ZdbError> {
        let Some(list) = self.pool.directory().object("bptree_obj")? else { return Ok(()) };
        for entry in pointer_list::destroyed(self.pool.mos(), list)? {
            let traversal = Traversal {
                pipeline: self.pool.pipeline(),
                objset: entry.resume.objset,
                key: None,
                after: entry.birth,
            };
            let mut visitor = Destroyed { walk: &mut *self, entry: &entry, result: Ok(()) };
            traversal.run(&entry.root, &mut visitor);
            visitor.result?;
        }
        Ok(())
    }

    /// Blocks that only livelists still know which are being deleted.
    fn deleted_livelists(&mut self) -> Result<(), ZdbError> {
        let directory = self.pool.directory();
        let Some(set) = directory.object("com.delphix:deleted_clones")? else { return Ok(()) };
        let mos = self.pool.mos().clone();
        for livelist in numbers(&mos.object(set)?)? {
            for list in numbers(&mos.object(livelist)?)? {
                for pointer in pointer_list::survivors(&mos, list)? {
                    self.count(Bookmark::default(), &pointer, CountAs::Deferred)?;
                }
            }
        }
        Ok(())
    }

    /// A vdev that is being removed has its blocks twice: where they were, and where they were
    /// copied to. Pointers lead to the old place, so the new one is taken here.
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

    /// All datasets, with the blocks that were born after their previous snapshots.
    fn datasets(&mut self) -> Result<(), ZdbError> {
        let mos = self.pool.mos().clone();
        for entry in mos.objects() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.damage(error);
                    continue;
                }
            };
            if entry.dnode.bonus_type != ObjectType::DSL_DATASET {
                continue;
            }
            let dataset = DslDataset::decode(&entry.dnode.bonus, entry.dnode.order)
                .map_err(ZdbError::corrupt(entry.id))?;
            let objset = ObjsetId(entry.id.0);
            if !dataset.is_snapshot() {
                self.intent_log(objset, &dataset.root)?;
            }
            self.objset(objset, &dataset.root, dataset.previous_snapshot_txg);
        }
        Ok(())
    }

    fn objset(&mut self, objset: ObjsetId, root: &BlockPointer, after: Txg) {
        let pipeline = self.pool.pipeline();
        Traversal { pipeline, objset, key: None, after }.run(root, self);
    }

    /// The intent log of a head: its blocks, and the data that records of a claimed log point to.
    fn intent_log(&mut self, objset: ObjsetId, root: &BlockPointer) -> Result<(), ZdbError> {
        let Some(header) = self.log_header(objset, root) else { return Ok(()) };
        let pool = self.pool;
        let mut chain = LogChain::new(pool.pipeline(), objset, &header);
        if header.claim_txg.is_none() {
            // What is younger than the pool was never committed.
            chain = chain.up_to(pool.txg());
        }
        for block in chain {
            let bookmark = intent_log::bookmark(objset, &block.pointer);
            self.count(bookmark, &block.pointer, CountAs::Type)?;
            let Some(claimed) = header.claim_txg else { continue };
            for record in block.records() {
                let Ok(Body::Write(write)) = record.body() else { continue };
                let data = write.pointer;
                if write.is_indirect() && !data.is_hole() && data.logical_birth() >= claimed {
                    let bookmark = Bookmark {
                        objset,
                        object: write.object,
                        level: Level::ZIL,
                        ..Bookmark::default()
                    };
                    self.count(bookmark, &data, CountAs::Type)?;
                }
            }
        }
        Ok(())
    }

    fn log_header(&self, objset: ObjsetId, root: &BlockPointer) -> Option<ZilHeader> {
        if root.is_hole() {
            return None;
        }
        let request =
            rzfs_dmu::BlockRequest { pointer: root, bookmark: Bookmark::root(objset), key: None };
        // A root that cannot be read is reported when the objset itself is walked.
        let block = self.pool.pipeline().read(request).ok()?;
        let objset = ObjsetBlock::decode(&block.data, block.order).ok()?;
        ZilHeader::decode(&objset.zil_header, objset.order).ok()
    }

    /// Counts a reference to a block, claims its space and has its checksum verified.
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

    /// Hands a block of the tree to the verifier, unless the walk reads it anyway.
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

    /// Reports what the verifier could not read so far.
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

/// The first byte of an object that a block is about; saturates.
fn offset_of(bookmark: Bookmark, dnode: &Dnode) -> u64 {
    let levels = u32::from(bookmark.level.0.unsigned_abs()) * dnode.pointers_shift();
    let first = bookmark.block.0.checked_shl(levels).unwrap_or(u64::MAX);
    first.saturating_mul(u64::from(dnode.data_block_size))
}

/// The numbers in a ZAP from anything to one number.
fn numbers(object: &rzfs_dmu::Object) -> Result<Vec<ObjectId>, ZdbError> {
    let mut numbers = Vec::new();
    for entry in object.zap()?.entries() {
        let entry = entry.map_err(|source| object.zap_error(source))?;
        numbers.extend(entry.value.first_u64().map(ObjectId));
    }
    Ok(numbers)
}

impl Visitor for Walk<'_, '_, '_, '_> {
    fn pointer(&mut self, bookmark: Bookmark, pointer: &BlockPointer, dnode: Option<&Dnode>) {
        if self.session.arguments.blocks >= 5 {
            let offset = dnode.map_or(0, |dnode| offset_of(bookmark, dnode));
            let _ = writeln!(
                self.session.out,
                "objset {} object {} level {} offset {offset:#x} {}",
                bookmark.objset,
                bookmark.object.0.cast_signed(),
                bookmark.level,
                Full(pointer)
            );
        }
        if self.count(bookmark, pointer, CountAs::Type).is_ok() {
            self.verify(bookmark, pointer);
        }
    }

    fn damage(&mut self, error: DmuError) {
        if self.failures.unwalked(error) {
            if let Some(verifier) = &mut self.verifier {
                verifier.catch_up();
            }
            self.report_unverified();
            self.failures.report_unwalked(self.session);
        }
    }
}

/// The walk over an objset that is being destroyed: blocks that were freed already are passed
/// over.
struct Destroyed<'w, 'a, 'r, 'scope, 's> {
    walk: &'w mut Walk<'a, 'r, 'scope, 's>,
    entry: &'w BptreeEntry,
    result: Result<(), ZdbError>,
}

impl Visitor for Destroyed<'_, '_, '_, '_, '_> {
    fn pointer(&mut self, bookmark: Bookmark, pointer: &BlockPointer, dnode: Option<&Dnode>) {
        if self.result.is_ok() && !pointer_list::is_freed(self.entry, bookmark, dnode) {
            self.result = self.walk.count(bookmark, pointer, CountAs::Deferred);
        }
    }

    fn damage(&mut self, error: DmuError) {
        self.walk.damage(error);
    }
}
