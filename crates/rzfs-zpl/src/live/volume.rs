//! Volumes of a live pool: writes that are only in their intent logs are replayed (spec 05,
//! sections 12.3 and 13).

use super::admission::{Admission, DNODE_BYTES, Freeing};
use super::block_size::written_bytes;
use super::replay::{Outcome, ReplaySummary, follow, give_up, logged_data, needs_replay};
use crate::error::{Place, ZplError};
use crate::sync::Arc;
use crate::volume::{DATA, Volume};
use rzfs_dmu::live::{Extent, LiveObject, LiveObjset, Transaction};
use rzfs_dmu::txg::Patience;
use rzfs_dsl::live::{LiveDataset, LivePool, SpaceDemand};
use rzfs_format::BlockId;
use rzfs_format::zil::{Body, Record, Write, ZilHeader};

/// Replays the intent log of a volume, if needed, and drops it.
///
/// # Errors
/// It is not a volume, its key is not loaded, the pool no longer accepts changes or has no room for
/// them, or part of the log cannot be read: it is then kept. A damaged record is skipped; another
/// failure ends the log.
pub fn replay_volume(
    pool: &LivePool,
    dataset: &Arc<LiveDataset>,
) -> Result<ReplaySummary, ZplError> {
    let contents = dataset.generation();
    let objset = contents.objset();
    let header = objset.log_header()?;
    if !needs_replay(&header) {
        return Ok(ReplaySummary::default());
    }
    let size = Volume::open(&objset.synced())?.size();
    let space = pool.budget(dataset);
    let admission = Admission {
        engine: pool.engine(),
        space: &space,
        objset: objset.id(),
        patience: Patience::Wait,
    };
    let replay = VolumeReplay {
        objset,
        object: objset.object(DATA)?,
        size,
        admission: &admission,
        header: &header,
    };
    let perform = |record: &Record<'_>| replay.perform(record);
    let summary = follow(objset, &header, &admission, pool.missing_logs(), perform)?;
    summary.report(pool, &dataset.name());
    give_up(&contents, &header, &admission)?;
    Ok(summary)
}

struct VolumeReplay<'a> {
    objset: &'a LiveObjset,
    object: LiveObject,
    /// Bytes of the volume.
    size: u64,
    admission: &'a Admission<'a>,
    header: &'a ZilHeader,
}

impl VolumeReplay<'_> {
    fn perform(&self, record: &Record<'_>) -> Result<Outcome, ZplError> {
        let place = self.place();
        let body = record.body().map_err(|source| ZplError::Corrupt { place, source })?;
        match body {
            Body::Write(write) if write.object == DATA => self.write(record.seq, &write)?,
            Body::Truncate { object: DATA, offset, length } => {
                self.free(record.seq, offset, length)?;
            }
            _ => return Err(self.invalid("no record of a volume")),
        }
        Ok(Outcome::Done)
    }

    fn write(&self, seq: u64, write: &Write<'_>) -> Result<(), ZplError> {
        let logged;
        let (start, data) = if write.is_indirect() {
            logged = logged_data(self.objset, write)?;
            (logged.0, &*logged.1)
        } else {
            (write.offset, write.data)
        };
        let end = start.checked_add(data.len() as u64).filter(|end| *end <= self.size);
        let end = end.ok_or_else(|| self.invalid("a write beyond the end of the volume"))?;
        let block_size = u64::from(self.object.data_block_size()?);
        let bytes = DNODE_BYTES + written_bytes(block_size, None, start, end);
        let demand = SpaceDemand::Takes(bytes).done_before();
        let tx = self.admission.begin(&[&self.object], demand, |_| 0)?;
        self.object.write(&tx, start, data)?;
        self.note(&tx, seq);
        Ok(())
    }

    /// Punches a hole, from its end on; its last transaction marks the record as done.
    fn free(&self, seq: u64, offset: u64, length: u64) -> Result<(), ZplError> {
        let block_size = u64::from(self.object.data_block_size()?);
        let mut end = offset.saturating_add(length).min(self.size);
        let first = BlockId(offset.div_ceil(block_size));
        loop {
            let engine = self.admission.engine;
            let (open, room) = engine.room_for_frees();
            if room == 0 {
                engine.wait_synced(open)?;
                continue;
            }
            let piece =
                self.object.last_piece(first..first.max(BlockId(end / block_size)), room)?;
            let is_last = piece.first <= first;
            let start = if is_last { offset } else { piece.first.0.saturating_mul(block_size) };
            let last = BlockId(end.div_ceil(block_size));
            let checked = self.object.check_blocks(BlockId(start / block_size)..last)?;
            let bytes = DNODE_BYTES + 2 * block_size;
            match self.admission.begin_freeing(&[&self.object], bytes, piece.blocks)? {
                Freeing::After(until) => engine.wait_synced(until)?,
                Freeing::Begun(tx) => {
                    let length = Extent::Bytes(end.saturating_sub(start));
                    self.object.free_checked(&tx, start, length, &checked)?;
                    if is_last {
                        self.note(&tx, seq);
                        return Ok(());
                    }
                    end = start;
                }
            }
        }
    }

    /// Marks a record as done, in the same txg.
    fn note(&self, tx: &dyn Transaction, seq: u64) {
        let header = ZilHeader { replayed_seq: seq, ..self.header.clone() };
        self.objset.set_log_header(tx, header);
    }

    fn place(&self) -> Place {
        Place { objset: self.objset.id(), object: DATA }
    }

    fn invalid(&self, problem: &'static str) -> ZplError {
        ZplError::Invalid { place: self.place(), problem }
    }
}
