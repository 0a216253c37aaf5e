//! Replaying the intent log of a file system that was not closed (spec 05, sections 12.2 and 12.3).
//!
//! ```text
//! claimed log ── records, in order ── the operation that each says ── replayed seq in the header
//!     │                                                                (of the same txg)
//!     └ at the end: header without a log, its blocks freed
//! ```
//! The operations are those of [`LiveFileSystem`]. The differences during replay are in [`state`]:
//! transactions record the progress, new files get the numbers in the log, quotas and flags are
//! ignored, and directories and files of extended attributes are accessible as files. The file
//! system is not in use yet.

mod acl;
mod attributes;
mod chain;
mod clock;
mod creation;
mod records;
pub(super) mod state;

use super::file_system::LiveFileSystem;
use super::options::Changes;
use crate::error::ZplError;
use crate::sync::Arc;
use clock::ReplayClock;
use rzfs_dmu::intent_log::owned_blocks;
use rzfs_dsl::live::{Generation, LivePool, SpaceDemand};
use rzfs_format::ObjectId;
use rzfs_format::zil::{Record, Verifier, ZilHeader};
use state::Noting;

pub(super) use chain::{Outcome, follow, give_up, needs_replay};
pub use chain::{ReplayFailure, ReplaySummary};
pub(super) use records::logged_data;

impl LiveFileSystem {
    /// Replays the intent log of the dataset, if needed, and drops it. To be called before the file
    /// system is in use.
    ///
    /// # Errors
    /// As [`follow`]; the log is then kept.
    pub(super) fn replay_log(
        &self,
        pool: &LivePool,
        (name, contents): (&str, &Generation),
    ) -> Result<ReplaySummary, ZplError> {
        let header = self.objset().log_header()?;
        if header.claim_txg.is_none() {
            // It was not claimed, so nothing was ever written to it.
            return Ok(ReplaySummary::default());
        }
        if !needs_replay(&header) {
            self.keep_first_block(contents, header)?;
            return Ok(ReplaySummary::default());
        }
        let before = self.options();
        let clock = Arc::new(ReplayClock::new(Arc::clone(&before.clock)));
        self.change_options(|options| {
            options.clock = clock.clone();
            // The changes are older than the property that may forbid them now.
            options.changes = Changes::Allowed;
        });
        self.source.replay.begin(header.clone());
        let admission = self.admission(&before);
        let apply = |record: &Record<'_>| self.apply_record(record, &clock);
        let result = follow(self.objset(), &header, &admission, pool.missing_logs(), apply);
        self.source.replay.end();
        self.change_options(|options| {
            options.clock = Arc::clone(&before.clock);
            options.changes = before.changes;
        });
        // Files of extended attributes are not accessible as files from now on.
        self.source.nodes.all().iter().for_each(|node| self.source.nodes.remove(node.id()));
        let summary = result?;
        summary.report(pool, name);
        give_up(contents, &header, &admission)?;
        Ok(summary)
    }

    /// Turns a log without records into a new one that begins with its existing block.
    fn keep_first_block(&self, contents: &Generation, old: ZilHeader) -> Result<(), ZplError> {
        let mut header = ZilHeader::default();
        let mut frees = Vec::new();
        let blocks = owned_blocks(self.objset().pipeline(), self.objset().id(), &old);
        match blocks.as_slice() {
            // One that is encrypted was written with its IV.
            [first]
                if first.order() == rzfs_format::ByteOrder::NATIVE && !first.has_crypt_bit() =>
            {
                let mut words = *first.words();
                let guid = [self.salt(), self.salt()];
                let verifier = Verifier { guid, objset: self.objset().id(), seq: 1 };
                words[12..].copy_from_slice(&verifier.words());
                header.first = rzfs_format::BlockPointer::from_words(words);
            }
            _ => frees = blocks,
        }
        let tx = self.begin_administration(&[], SpaceDemand::Frees(0))?;
        contents.change_log(&tx, header, &frees);
        Ok(())
    }

    fn apply_record(&self, record: &Record<'_>, clock: &ReplayClock) -> Result<Outcome, ZplError> {
        let place = self.place(ObjectId(0));
        let corrupt = |source| ZplError::Corrupt { place, source };
        let body = record.body().map_err(corrupt)?;
        let kind = record.kind.ok_or(ZplError::Invalid { place, problem: "no such record" })?;
        let is_repeatable = records::is_repeatable(kind);
        let noting = if is_repeatable { Noting::Nothing } else { Noting::Every };
        self.source.replay.expect(record.seq, noting);
        clock.set(records::time_of(&body));
        let outcome = self.perform_record(kind, &body)?;
        if is_repeatable {
            self.source.replay.expect(record.seq, Noting::Every);
            drop(self.begin(&[], SpaceDemand::Frees(0))?);
        }
        Ok(outcome)
    }
}
