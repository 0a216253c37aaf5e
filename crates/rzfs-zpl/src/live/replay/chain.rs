//! Following an intent log from its first record to its last (spec 05, section 12.2).

use super::super::admission::Admission;
use crate::error::ZplError;
use rzfs_dmu::intent_log::{LogChain, owned_blocks};
use rzfs_dmu::live::LiveObjset;
use rzfs_dsl::import::MissingLogs;
use rzfs_dsl::live::{Generation, SpaceDemand};
use rzfs_format::zil::{Record, RecordKind, ZilFlags, ZilHeader};
use std::fmt;

/// What came of replaying a log.
#[derive(Debug, Default)]
pub struct ReplaySummary {
    /// Records that were done.
    pub replayed: u64,
    /// Records of files that were removed later.
    pub skipped: u64,
    /// Records that were passed over, as something of their files or what was to be written is
    /// damaged.
    pub damaged: u64,
    /// Why the rest of the log was given up.
    pub failure: Option<ReplayFailure>,
}

/// A record that could not be done.
#[derive(Debug)]
pub struct ReplayFailure {
    /// Its sequence number.
    pub seq: u64,
    /// The number of its kind.
    pub kind: u64,
    /// Why.
    pub error: Box<ZplError>,
}

/// What became of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::live) enum Outcome {
    /// It was done.
    Done,
    /// Its file was removed later.
    Skipped,
}

impl ReplaySummary {
    /// Tells the log of the program.
    pub(in crate::live) fn report(&self, dataset: &str) {
        let Self { replayed, skipped, damaged, failure } = self;
        tracing::info!(dataset, replayed, skipped, damaged, "the intent log was replayed");
        if let Some(failure) = failure {
            tracing::warn!(dataset, %failure, "the rest of the intent log is lost");
        }
    }
}

impl fmt::Display for ReplayFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seq, kind, error } = self;
        let kind = RecordKind::from_number(*kind).map_or("of no known kind", |kind| kind.name());
        write!(f, "record {seq} ({kind}): {error}")
    }
}

/// Whether a log has records that were claimed and not replayed.
pub(in crate::live) const fn needs_replay(header: &ZilHeader) -> bool {
    header.claim_txg.is_some() && header.flags.has(ZilFlags::REPLAY_NEEDED)
}

/// Has `perform` do every record of a log that was not done before; once more where that fails,
/// when everything before it is on disk, as numbers of objects are free only then.
///
/// # Errors
/// The pool takes no changes any more or has no room for them, or not all of what was claimed of
/// the log can be read, unless that may be [given up](MissingLogs::Ignore): it is still there then,
/// and how far it was done is noted. A record that cannot be done is no error: it is passed over
/// where that is because of damage, and ends the log where it is not.
pub(in crate::live) fn follow(
    objset: &LiveObjset,
    header: &ZilHeader,
    admission: &Admission<'_>,
    missing_logs: MissingLogs,
    mut perform: impl FnMut(&Record<'_>) -> Result<Outcome, ZplError>,
) -> Result<ReplaySummary, ZplError> {
    let mut summary = ReplaySummary::default();
    let mut last = header.replayed_seq;
    let key = objset.key().map(|key| &**key);
    let mut chain = LogChain::new(objset.pipeline(), objset.id(), header).with_key(key);
    for block in chain.by_ref() {
        for record in block.records() {
            last = last.max(record.seq);
            let is_synced = header.claim_txg.is_some_and(|claimed| record.txg < claimed);
            if record.seq <= header.replayed_seq || is_synced {
                continue;
            }
            let mut outcome = perform(&record);
            if outcome.is_err() {
                admission.sync()?;
                outcome = perform(&record);
            }
            match outcome {
                Ok(Outcome::Done) => summary.replayed += 1,
                Ok(Outcome::Skipped) => summary.skipped += 1,
                Err(error) if may_be_done_later(&error, missing_logs) => return Err(error),
                Err(error) => {
                    // What was to be made where something is damaged is missing later.
                    let is_damage = error.is_damage()
                        || error.may_come_back()
                        || summary.damaged > 0 && error.is_missing();
                    let (seq, kind) = (record.seq, record.kind_number);
                    let failure = ReplayFailure { seq, kind, error: Box::new(error) };
                    if !is_damage {
                        summary.failure = Some(failure);
                        return Ok(summary);
                    }
                    tracing::warn!(objset = %objset.id(), %failure, "a logged change is lost");
                    summary.damaged += 1;
                }
            }
        }
    }
    match chain.end() {
        Some(end) if last < header.claimed_record_seq => match missing_logs {
            MissingLogs::Refuse => {
                Err(ZplError::UnreadableLog { objset: objset.id(), end: Box::new(end.clone()) })
            }
            MissingLogs::Ignore => {
                tracing::warn!(objset = %objset.id(), %end, "the rest of the intent log is given up");
                Ok(summary)
            }
        },
        _ => Ok(summary),
    }
}

/// Whether a record that cannot be done now waits for room, or for devices that may not be given
/// up.
fn may_be_done_later(error: &ZplError, missing_logs: MissingLogs) -> bool {
    match error {
        ZplError::Stopped(_) | ZplError::Suspended | ZplError::NoSpace { .. } => true,
        error => missing_logs == MissingLogs::Refuse && error.may_come_back(),
    }
}

/// Gives a log up that was replayed, and waits until that is on disk.
///
/// # Errors
/// The pool takes no changes any more.
pub(in crate::live) fn give_up(
    contents: &Generation,
    header: &ZilHeader,
    admission: &Admission<'_>,
) -> Result<(), ZplError> {
    let objset = contents.objset();
    let frees = owned_blocks(objset.pipeline(), objset.id(), header);
    let tx = admission.begin(&[], SpaceDemand::Frees(0), |_| 0)?;
    contents.change_log(&tx, ZilHeader::default(), &frees);
    drop(tx);
    admission.sync()
}
