//! Bookmarks that track how much of their data has been freed since (spec 04, section 15.4).

use crate::live::LiveError;
use crate::live::amounts::{SpaceDelta, apply};
use crate::mos::bookmarks;
use crate::mos::features::Features;
use crate::mos::live::MosTx;
use rzfs_format::bookmark::BookmarkRecord;
use rzfs_format::features::Feature;
use rzfs_format::{BlockPointer, ObjectId, Txg};
use rzfs_zap::{IntegerSize, ZapValue};

/// The bookmarks of a head whose sums change as its blocks are freed.
#[derive(Debug, Default)]
pub(crate) struct BookmarkSums {
    zap: Option<ObjectId>,
    bookmarks: Vec<Sums>,
}

#[derive(Debug)]
struct Sums {
    name: String,
    record: BookmarkRecord,
    is_dirty: bool,
}

impl BookmarkSums {
    /// The bookmarks of a head that were made with its last snapshot or later.
    pub(crate) fn open(
        mos: &MosTx<'_>,
        features: &Features,
        head: ObjectId,
        since: Txg,
    ) -> Result<Self, LiveError> {
        if !features.is_active(Feature::BookmarkWritten) {
            return Ok(Self::default());
        }
        let zap = bookmarks::of_head(mos, head)?;
        let all = zap.map_or_else(|| Ok(Vec::new()), |zap| bookmarks::all(mos, zap))?;
        let counts = |record: &BookmarkRecord| record.has_sums() && record.creation_txg >= since;
        let counted = all.into_iter().filter(|(_, record)| counts(record));
        let sums = |(name, record)| Sums { name, record, is_dirty: false };
        let bookmarks = counted.map(sums).collect();
        Ok(Self { zap, bookmarks })
    }

    /// Records the death of a block in the head.
    pub(crate) fn died(&mut self, pointer: &BlockPointer, delta: SpaceDelta) {
        let birth = pointer.logical_birth();
        for bookmark in self.bookmarks.iter_mut().filter(|of| birth <= of.record.creation_txg) {
            let sums = &mut bookmark.record.freed_before_next;
            apply(&mut sums.used, delta.used);
            apply(&mut sums.compressed, delta.compressed);
            apply(&mut sums.uncompressed, delta.uncompressed);
            bookmark.is_dirty = true;
        }
    }

    /// Writes the changed sums.
    pub(crate) fn write(&self, mos: &MosTx<'_>) -> Result<(), LiveError> {
        let Some(zap) = self.zap else { return Ok(()) };
        for Sums { name, record, .. } in self.bookmarks.iter().filter(|of| of.is_dirty) {
            let value = ZapValue::new(IntegerSize::Eight, &record.encode());
            mos.set(zap, name.as_str(), value)?;
        }
        Ok(())
    }
}
