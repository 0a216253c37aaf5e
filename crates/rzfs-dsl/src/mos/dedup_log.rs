//! The stored log of a dedup table (spec 02, section 9.4).

use super::MosSource;
use super::error::MosError;
use rzfs_dmu::SourceObject;
use rzfs_format::ddt::DdtLayout;
use rzfs_format::ddt::log::{LogHeader, LogRecord, records};
use rzfs_format::{BlockId, ObjectId};

/// Maximum entries in memory for the logs of a table.
const MAX_LOGGED: usize = 1 << 24;

/// Visits the records of a log whose changes are not in the ZAPs, in the order of the changes: the
/// last one of an entry counts. `take` returns the number of entries so far.
pub(crate) fn visit<M: MosSource>(
    mos: &M,
    (log, header): (ObjectId, &LogHeader),
    layout: DdtLayout,
    take: impl FnMut(LogRecord) -> usize,
) -> Result<(), M::Error> {
    Ok(visit_records(&mos.object(log)?, header, layout, take)?)
}

fn visit_records(
    log: &impl SourceObject,
    header: &LogHeader,
    layout: DdtLayout,
    mut take: impl FnMut(LogRecord) -> usize,
) -> Result<(), MosError> {
    let length = header.length.min(log.extent()?);
    for number in 0..length.div_ceil(u64::from(log.data_block_size()?).max(1)) {
        let (data, order) = log.read_block(BlockId(number))?;
        for record in records(&data, order, layout) {
            let record = record.map_err(MosError::corrupt(log.id()))?;
            let is_moved = header.checkpoint.is_some_and(|flushed| record.key <= flushed);
            if !is_moved && take(record) > MAX_LOGGED {
                let (what, limit) = ("logged entries of a dedup table", MAX_LOGGED);
                return Err(MosError::TooMany { object: log.id(), what, limit });
            }
        }
    }
    Ok(())
}
