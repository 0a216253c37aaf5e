//! Replaying the intent log of a file system that was not closed (spec 05, sections 12.2 and 12.3).
//!
//! ```text
//! claimed log ── records, in order ── the operation that each says ── replayed seq in the header
//!     │                                                                (of the same txg)
//!     └ at the end: header without a log, its blocks freed
//! ```
//! The operations are those of [`LiveFileSystem`]. What is different while a log is replayed is
//! [`Replay`]: transactions note how far it has got, new files get the numbers that they had,
//! quotas and flags forbid nothing, and directories and files of extended attributes are files.
//! Nobody else has the file system yet.

mod acl;
mod attributes;
mod clock;
mod creation;
mod records;

use super::file_system::LiveFileSystem;
use super::options::SpaceDemand;
use crate::error::ZplError;
use crate::sync::{Arc, Mutex};
use clock::ReplayClock;
use rzfs_dmu::intent_log::{LogChain, owned_blocks};
use rzfs_dmu::live::{LiveObjset, Transaction};
use rzfs_dsl::live::LiveDataset;
use rzfs_format::ObjectId;
use rzfs_format::zil::{Record, RecordKind, Verifier, ZilFlags, ZilHeader};
use rzfs_format::znode::Timestamp;
use std::sync::atomic::{AtomicBool, Ordering};

/// What came of replaying a log.
#[derive(Debug, Default)]
pub struct ReplaySummary {
    /// Records that were done.
    pub replayed: u64,
    /// Records of files that were removed later.
    pub skipped: u64,
    /// Why the rest of the log was given up.
    pub failure: Option<ReplayFailure>,
}

/// Why a log was not replayed to its end.
#[derive(Debug)]
pub enum ReplayFailure {
    /// A record could not be done.
    Record {
        /// Its sequence number.
        seq: u64,
        /// The number of its kind.
        kind: u64,
        /// Why.
        error: Box<ZplError>,
    },
    /// The log ends before the last record that was claimed.
    Truncated {
        /// The last record that is there.
        seq: u64,
        /// The last that was claimed.
        claimed: u64,
    },
}

/// What the log says about a file that is made again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LoggedObject {
    pub(super) object: ObjectId,
    /// Slots of its dnode.
    pub(super) slots: u8,
    pub(super) generation: u64,
    pub(super) create_time: Timestamp,
}

/// Which transactions of a record's operation say that it was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Noting {
    /// None: it has several, and doing it once more changes nothing.
    Nothing,
    /// All: the first one does it, those after it only tidy up.
    Every,
}

/// What replay changes about operations. Off in a file system that is in use.
#[derive(Debug, Default)]
pub(super) struct Replay {
    is_on: AtomicBool,
    state: Mutex<ReplayState>,
}

#[derive(Debug)]
struct ReplayState {
    header: ZilHeader,
    noting: Noting,
    /// The device that a rename is to leave.
    whiteout: Option<LoggedObject>,
}

impl Default for ReplayState {
    fn default() -> Self {
        Self { header: ZilHeader::default(), noting: Noting::Nothing, whiteout: None }
    }
}

impl Replay {
    /// Whether a log is being replayed: then nothing is logged, and nothing forbidden.
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Has a transaction note how far replay has got.
    pub(super) fn note(&self, objset: &LiveObjset, tx: &dyn Transaction) {
        if !self.is_on() {
            return;
        }
        let state = self.state.lock();
        if state.noting == Noting::Every {
            objset.set_log_header(tx, state.header.clone());
        }
    }

    /// The device that the rename which is replayed leaves.
    pub(super) fn take_whiteout(&self) -> Option<LoggedObject> {
        if self.is_on() { self.state.lock().whiteout.take() } else { None }
    }

    fn expect(&self, seq: u64, noting: Noting) {
        let mut state = self.state.lock();
        state.header.replayed_seq = seq;
        state.noting = noting;
        state.whiteout = None;
    }
}

impl LiveFileSystem {
    /// Replays the intent log of the dataset, if it has one that needs that, and gives it up.
    /// To be called before anybody else has the file system.
    ///
    /// # Errors
    /// The pool takes no changes any more. A record that cannot be replayed is no error: it ends
    /// the log.
    pub(super) fn replay_log(&self, dataset: &LiveDataset) -> Result<ReplaySummary, ZplError> {
        let header = self.objset.log_header()?;
        if header.claim_txg.is_none() {
            // Nobody has claimed it, so nothing was ever written into it.
            return Ok(ReplaySummary::default());
        }
        if !header.flags.has(ZilFlags::REPLAY_NEEDED) {
            self.keep_first_block(dataset, header)?;
            return Ok(ReplaySummary::default());
        }
        let clock = Arc::new(ReplayClock::new(Arc::clone(&self.options().clock)));
        let before = Arc::clone(&self.options().clock);
        self.change_options(|options| options.clock = clock.clone());
        self.replay.state.lock().header = header.clone();
        self.replay.is_on.store(true, Ordering::Relaxed);
        let result = self.replay_chain(&header, &clock);
        self.replay.is_on.store(false, Ordering::Relaxed);
        self.change_options(|options| options.clock = before);
        // Files of extended attributes are none from now on.
        self.nodes.all().iter().for_each(|node| self.nodes.remove(node.id()));
        let summary = result?;
        self.report(dataset, &summary);
        let frees = owned_blocks(self.objset.pipeline(), self.objset.id(), &header);
        let tx = self.begin(&[], SpaceDemand::Frees(0))?;
        dataset.change_log(&tx, ZilHeader::default(), &frees);
        let txg = tx.txg();
        drop(tx);
        self.wait_synced(txg)?;
        Ok(summary)
    }

    fn report(&self, dataset: &LiveDataset, summary: &ReplaySummary) {
        let name = dataset.name();
        let ReplaySummary { replayed, skipped, failure } = summary;
        tracing::info!(dataset = name, replayed, skipped, "the intent log was replayed");
        match failure {
            Some(ReplayFailure::Record { seq, kind, error }) => {
                let kind = RecordKind::from_number(*kind).map_or("of no known kind", |k| k.name());
                let what = format!("record {seq} ({kind}): {error}");
                tracing::warn!(dataset = name, what, "the rest of the intent log is lost");
            }
            Some(ReplayFailure::Truncated { seq, claimed }) => {
                let what = format!("it ends after record {seq} of {claimed}");
                tracing::warn!(dataset = name, what, "the rest of the intent log is lost");
            }
            None => {}
        }
    }

    /// Makes a log without records a new one that begins with the block that it has.
    fn keep_first_block(&self, dataset: &LiveDataset, old: ZilHeader) -> Result<(), ZplError> {
        let mut header = ZilHeader::default();
        let mut frees = Vec::new();
        let blocks = owned_blocks(self.objset.pipeline(), self.objset.id(), &old);
        match blocks.as_slice() {
            // One that is encrypted was written with its IV.
            [first]
                if first.order() == rzfs_format::ByteOrder::NATIVE && !first.has_crypt_bit() =>
            {
                let mut words = *first.words();
                let guid = [self.salt(), self.salt()];
                let verifier = Verifier { guid, objset: self.objset.id(), seq: 1 };
                words[12..].copy_from_slice(&verifier.words());
                header.first = rzfs_format::BlockPointer::from_words(words);
            }
            _ => frees = blocks,
        }
        let tx = self.begin(&[], SpaceDemand::Frees(0))?;
        dataset.change_log(&tx, header, &frees);
        Ok(())
    }

    fn replay_chain(
        &self,
        header: &ZilHeader,
        clock: &ReplayClock,
    ) -> Result<ReplaySummary, ZplError> {
        let mut summary = ReplaySummary::default();
        let mut last = header.replayed_seq;
        let key = self.objset.key().map(|key| &**key);
        let chain = LogChain::new(self.objset.pipeline(), self.objset.id(), header).with_key(key);
        for block in chain {
            for record in block.records() {
                last = last.max(record.seq);
                let is_synced = header.claim_txg.is_some_and(|claimed| record.txg < claimed);
                if record.seq <= header.replayed_seq || is_synced {
                    continue;
                }
                match self.replay_record(&record, clock) {
                    Ok(Outcome::Done) => summary.replayed += 1,
                    Ok(Outcome::Skipped) => summary.skipped += 1,
                    Err(ZplError::Stopped(stopped)) => return Err(stopped.into()),
                    Err(error) => {
                        let (seq, kind) = (record.seq, record.kind_number);
                        let error = Box::new(error);
                        summary.failure = Some(ReplayFailure::Record { seq, kind, error });
                        return Ok(summary);
                    }
                }
            }
        }
        let claimed = header.claimed_record_seq;
        if last < claimed {
            summary.failure = Some(ReplayFailure::Truncated { seq: last, claimed });
        }
        Ok(summary)
    }

    /// Replays a record; once more when everything before it is on disk, as numbers of objects are
    /// free only then.
    fn replay_record(&self, record: &Record<'_>, clock: &ReplayClock) -> Result<Outcome, ZplError> {
        match self.apply_record(record, clock) {
            Ok(outcome) => Ok(outcome),
            Err(_) => {
                self.sync()?;
                self.apply_record(record, clock)
            }
        }
    }

    fn apply_record(&self, record: &Record<'_>, clock: &ReplayClock) -> Result<Outcome, ZplError> {
        let place = self.place(ObjectId(0));
        let corrupt = |source| ZplError::Corrupt { place, source };
        let body = record.body().map_err(corrupt)?;
        let kind = record.kind.ok_or(ZplError::Invalid { place, problem: "no such record" })?;
        let is_repeatable = records::is_repeatable(kind);
        let noting = if is_repeatable { Noting::Nothing } else { Noting::Every };
        self.replay.expect(record.seq, noting);
        clock.set(records::time_of(&body));
        let outcome = self.perform_record(kind, &body)?;
        if is_repeatable {
            self.replay.expect(record.seq, Noting::Every);
            drop(self.begin(&[], SpaceDemand::Frees(0))?);
        }
        Ok(outcome)
    }
}

/// What became of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// It was done.
    Done,
    /// Its file was removed later.
    Skipped,
}
