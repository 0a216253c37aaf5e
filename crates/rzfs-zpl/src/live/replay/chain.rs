//! Following an intent log from its first record to its last (spec 05, section 12.2).

use super::super::change::Admission;
use super::super::options::SpaceDemand;
use crate::error::ZplError;
use rzfs_dmu::intent_log::{LogChain, owned_blocks};
use rzfs_dmu::live::LiveObjset;
use rzfs_dsl::live::LiveDataset;
use rzfs_format::zil::{Record, RecordKind, ZilFlags, ZilHeader};

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
        let Self { replayed, skipped, failure } = self;
        tracing::info!(dataset, replayed, skipped, "the intent log was replayed");
        let what = match failure {
            Some(ReplayFailure::Record { seq, kind, error }) => {
                let kind = RecordKind::from_number(*kind).map_or("of no known kind", |k| k.name());
                format!("record {seq} ({kind}): {error}")
            }
            Some(ReplayFailure::Truncated { seq, claimed }) => {
                format!("it ends after record {seq} of {claimed}")
            }
            None => return,
        };
        tracing::warn!(dataset, what, "the rest of the intent log is lost");
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
/// The pool takes no changes any more, or devices do not deliver what the log says: it is still
/// there then, and how far it was done is noted. A record that cannot be done is no error: it ends
/// the log.
pub(in crate::live) fn follow(
    objset: &LiveObjset,
    header: &ZilHeader,
    admission: &Admission<'_>,
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
                Err(error @ (ZplError::Stopped(_) | ZplError::Suspended)) => return Err(error),
                Err(error) if error.is_of_devices() => return Err(error),
                Err(error) => {
                    let (seq, kind) = (record.seq, record.kind_number);
                    let error = Box::new(error);
                    summary.failure = Some(ReplayFailure::Record { seq, kind, error });
                    return Ok(summary);
                }
            }
        }
    }
    if let Some(end) = chain.end().filter(|end| end.is_of_devices()) {
        return Err(ZplError::UnreadableLog { objset: objset.id(), end: Box::new(end.clone()) });
    }
    let claimed = header.claimed_record_seq;
    if last < claimed {
        summary.failure = Some(ReplayFailure::Truncated { seq: last, claimed });
    }
    Ok(summary)
}

/// Gives a log up that was replayed, and waits until that is on disk.
///
/// # Errors
/// The pool takes no changes any more.
pub(in crate::live) fn give_up(
    dataset: &LiveDataset,
    header: &ZilHeader,
    admission: &Admission<'_>,
) -> Result<(), ZplError> {
    let objset = dataset.objset();
    let frees = owned_blocks(objset.pipeline(), objset.id(), header);
    let tx = admission.begin(&[], SpaceDemand::Frees(0), |_| 0)?;
    dataset.change_log(&tx, ZilHeader::default(), &frees);
    drop(tx);
    admission.sync()
}
