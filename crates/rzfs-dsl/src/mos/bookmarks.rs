//! The stored bookmarks of a head (spec 04, section 15).

use super::MosSource;
use super::error::MosError;
use super::extensible::field;
use rzfs_format::ObjectId;
use rzfs_format::bookmark::BookmarkRecord;
use rzfs_zap::ZapValue;

/// The field of a head's object that refers to its bookmarks.
pub(crate) const FIELD: &str = "com.delphix:bookmarks";

/// The ZAP of a head's bookmarks, if it has any.
pub(crate) fn of_head<M: MosSource>(mos: &M, head: ObjectId) -> Result<Option<ObjectId>, M::Error> {
    Ok(field(mos, head, FIELD)?.and_then(|zap| ObjectId(zap).non_zero()))
}

/// All bookmarks in a ZAP, by name.
pub(crate) fn all<M: MosSource>(
    mos: &M,
    zap: ObjectId,
) -> Result<Vec<(String, BookmarkRecord)>, M::Error> {
    let mut bookmarks = Vec::new();
    for entry in mos.entries(zap)? {
        let name = String::from_utf8_lossy(entry.name()).into_owned();
        bookmarks.push((name, record(zap, &entry.value)?));
    }
    Ok(bookmarks)
}

/// Decodes a bookmark from its value in a ZAP.
pub(crate) fn record(zap: ObjectId, value: &ZapValue) -> Result<BookmarkRecord, MosError> {
    BookmarkRecord::decode(value.integers()).map_err(MosError::corrupt(zap))
}
