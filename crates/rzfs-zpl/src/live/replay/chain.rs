//! Following an intent log from its first record to its last (spec 05, section 12.2).

use super::super::admission::Admission;
use crate::error::ZplError;
use rzfs_dmu::intent_log::{ChainEnd, LogChain, owned_blocks};
use rzfs_dmu::live::LiveObjset;
use rzfs_dsl::import::MissingLogs;
use rzfs_dsl::live::{DroppedLog, Generation, LivePool, SpaceDemand};
use rzfs_format::zil::{Record, RecordKind, ZilFlags, ZilHeader};
use std::fmt;

/// The result of replaying a log.
#[derive(Debug, Default)]
pub struct ReplaySummary {
    /// Records replayed.
    pub replayed: u64,
    /// Records of files that were removed later.
    pub skipped: u64,
    /// Records skipped because their files or their data are damaged.
    pub damaged: u64,
    /// Why the rest of the log was dropped.
    pub failure: Option<ReplayFailure>,
    /// Where it cannot be read, if its rest was given up for that.
    pub end: Option<ChainEnd>,
}

/// A record that could not be replayed.
#[derive(Debug)]
pub struct ReplayFailure {
    /// Its sequence number.
    pub seq: u64,
    /// The number of its kind.
    pub kind: u64,
    /// Why.
    pub error: Box<ZplError>,
}

/// The result of replaying a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::live) enum Outcome {
    /// It was replayed.
    Done,
    /// Its file was removed later.
    Skipped,
}

impl ReplaySummary {
    /// Tells the log of the program, and has the pool tell people what is lost.
    pub(in crate::live) fn report(&self, pool: &LivePool, dataset: &str) {
        let Self { replayed, skipped, damaged, failure, end } = self;
        tracing::info!(dataset, replayed, skipped, damaged, "the intent log was replayed");
        let name = || dataset.to_owned();
        if *damaged > 0 {
            pool.note_dropped_log(DroppedLog::Changes { dataset: name(), changes: *damaged });
        }
        if let Some(failure) = failure {
            tracing::warn!(dataset, %failure, "the rest of the intent log is lost");
            let reason = failure.to_string();
            pool.note_dropped_log(DroppedLog::Record { dataset: name(), reason });
        }
        if let Some(end) = end {
            tracing::warn!(dataset, %end, "the rest of the intent log is given up");
            pool.note_dropped_log(DroppedLog::Rest { dataset: name(), end: end.clone() });
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

/// Whether a log has records that were claimed but not replayed.
pub(in crate::live) const fn needs_replay(header: &ZilHeader) -> bool {
    header.claim_txg.is_some() && header.flags.has(ZilFlags::REPLAY_NEEDED)
}

/// Calls `perform` for every record of a log that was not replayed yet; retries a failed one when
/// everything before it is on disk, as object numbers become free only then.
///
/// # Errors
/// The pool no longer accepts changes or has no room for them, or part of the claimed log cannot be
/// read, unless that may be [dropped](MissingLogs::Ignore): the log then still exists, with its
/// progress recorded. A record that cannot be replayed is not an error: it is skipped if it is
/// damaged, and otherwise ends the log.
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
                    // Objects not created because of damage are missing later.
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
            MissingLogs::Ignore => Ok(ReplaySummary { end: Some(end.clone()), ..summary }),
        },
        _ => Ok(summary),
    }
}

/// Whether a failed record waits for room, or for devices whose data must not be dropped.
fn may_be_done_later(error: &ZplError, missing_logs: MissingLogs) -> bool {
    match error {
        ZplError::Stopped(_) | ZplError::Suspended | ZplError::NoSpace { .. } => true,
        error => missing_logs == MissingLogs::Refuse && error.may_come_back(),
    }
}

/// Drops a replayed log, and waits until that is on disk.
///
/// # Errors
/// The pool no longer accepts changes.
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
