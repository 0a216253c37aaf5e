//! The source of an increment.

use crate::SendError;
use rzfs_dsl::dataset::{Bookmark, Dataset};
use rzfs_format::{Guid, ObjectId, Txg};

/// The source of an increment: the receiver has it already.
#[derive(Clone, Debug)]
pub enum Source {
    /// A snapshot.
    Snapshot(Dataset),
    /// A bookmark, whose snapshot may be gone.
    Bookmark {
        /// The bookmark.
        bookmark: Bookmark,
        /// The file system or volume that has it.
        head: Dataset,
    },
}

/// A source found in the past of the sent snapshot.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Start {
    pub(crate) guid: Guid,
    /// Blocks born later are sent.
    pub(crate) txg: Txg,
    /// Whether it belongs to the origin of the sent file system.
    pub(crate) is_in_origin: bool,
    /// Identifies its ciphertexts; 0 for none.
    pub(crate) iv_set: Guid,
}

impl Start {
    /// The snapshot with this identity before a partially received one.
    pub(crate) fn before(received: &Dataset, guid: Guid) -> Result<Self, SendError> {
        for earlier in received.earlier_snapshots() {
            let (_, dataset) = earlier?;
            if dataset.guid == guid {
                let (txg, iv_set) = (dataset.creation_txg, Guid(0));
                return Ok(Self { guid, txg, is_in_origin: false, iv_set });
            }
        }
        let from = format!("{:#x}", guid.get());
        Err(SendError::NotEarlier { name: received.name().to_owned(), from })
    }
}

impl Source {
    /// The full name of the snapshot or bookmark.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Snapshot(snapshot) => snapshot.name(),
            Self::Bookmark { bookmark, .. } => bookmark.name(),
        }
    }

    /// Finds it in the past of a snapshot (spec 08, section 7.4).
    pub(crate) fn start_of(&self, snapshot: &Dataset) -> Result<Start, SendError> {
        let not_earlier = || SendError::NotEarlier {
            name: snapshot.name().to_owned(),
            from: self.name().to_owned(),
        };
        let directory = snapshot.directory_object();
        match self {
            Self::Snapshot(from) => {
                let wanted = from.dsl_dataset().creation_txg;
                for earlier in snapshot.earlier_snapshots() {
                    let (object, dataset) = earlier?;
                    if dataset.creation_txg < wanted {
                        break;
                    }
                    if object == from.object() {
                        let (guid, txg) = (dataset.guid, dataset.creation_txg);
                        let is_in_origin = dataset.dir != directory;
                        let iv_set = from.iv_set()?.unwrap_or_default();
                        return Ok(Start { guid, txg, is_in_origin, iv_set });
                    }
                }
                Err(not_earlier())
            }
            Self::Bookmark { bookmark, head } => {
                let record = bookmark.record();
                if record.redaction.is_some() {
                    return Err(SendError::Redacted { name: bookmark.name().to_owned() });
                }
                let txg = record.creation_txg;
                let start = |dir: ObjectId| Start {
                    guid: record.guid,
                    txg,
                    is_in_origin: dir != directory,
                    iv_set: record.ivset_guid,
                };
                let bookmarked = head.directory_object();
                if bookmarked == directory {
                    let is_earlier = txg < snapshot.dsl_dataset().creation_txg;
                    return if is_earlier { Ok(start(directory)) } else { Err(not_earlier()) };
                }
                for earlier in snapshot.earlier_snapshots() {
                    let (_, dataset) = earlier?;
                    if dataset.creation_txg < txg {
                        break;
                    }
                    if dataset.dir == bookmarked {
                        return Ok(start(bookmarked));
                    }
                }
                Err(not_earlier())
            }
        }
    }
}
