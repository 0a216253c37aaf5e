//! The bookmarks of a dataset.

use super::order::Place;
use crate::error::ZdbError;
use crate::session::Session;
use rzfs_dsl::pool::Pool;
use rzfs_format::bookmark::BookmarkRecord;

/// Prints the bookmarks of a dataset in the order of their ZAP, or one of them.
pub(super) fn print(
    session: &mut Session<'_>,
    pool: &Pool,
    place: &Place,
    wanted: Option<&str>,
) -> Result<(), ZdbError> {
    if place.dataset.is_snapshot() {
        return Ok(());
    }
    let Some(id) = place.field(pool, "com.delphix:bookmarks")? else { return Ok(()) };
    let object = pool.mos().object(id)?;
    for entry in object.zap()?.entries() {
        let entry = entry.map_err(|source| object.zap_error(source))?;
        if wanted.is_some_and(|wanted| wanted.as_bytes() != entry.name()) {
            continue;
        }
        let record = BookmarkRecord::decode(entry.value.integers());
        let record = record.map_err(ZdbError::corrupt(id))?;
        session.out.write_all(b"\t#")?;
        session.out.write_all(entry.name())?;
        writeln!(
            session.out,
            ": {{guid: {:x} creation_txg: {} creation_time: {} redaction_obj: {}}}",
            record.guid.get(),
            record.creation_txg,
            record.creation_time,
            record.redaction.unwrap_or_default()
        )?;
    }
    Ok(())
}
