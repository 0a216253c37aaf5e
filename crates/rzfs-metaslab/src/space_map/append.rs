//! Writing space maps (spec 06, sections 4.5 to 4.9).
//!
//! A map only grows: an append adds, for each of its parts, a note of txg, pass and action, and
//! then the part's segments. Only condensing begins it anew ([`SpaceMap::truncate`]).

use super::SpaceMap;
use crate::range_tree::SizeHistogram;
use crate::store::{CountChange, CountedFeature, NewObject, SyncStore};
use crate::{MetaslabError, RangeTree};
use rzfs_format::object_type::ObjectType;
use rzfs_format::space_map::{
    Action, EntryWriter, Geometry, HEADER_SIZE, HEADER_SIZE_V0, HISTOGRAM_BUCKETS, SpaceMapHeader,
    SpaceMapVersion, WORD_SIZE,
};
use rzfs_format::{ByteOrder, FormatError, ObjectId, Txg, VdevId};

/// log2 of the bytes of an indirect block of a space map.
const INDIRECT_SHIFT: u32 = 14;

/// What a pool's features allow its space maps to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapFeatures {
    /// Which header new maps get.
    pub header: HeaderForm,
    /// Which entries may be written.
    pub version: SpaceMapVersion,
}

/// The header of a space map.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HeaderForm {
    /// 24 bytes without a histogram: the feature `spacemap_histogram` is not enabled.
    V0,
    /// 320 bytes.
    Histogram,
}

impl HeaderForm {
    const fn size(self) -> usize {
        match self {
            Self::V0 => HEADER_SIZE_V0,
            Self::Histogram => HEADER_SIZE,
        }
    }
}

/// When an append happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// The txg that is syncing.
    pub txg: Txg,
    /// Its sync pass, from 1 on.
    pub pass: u32,
}

/// Segments to which the same happened.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// What happened.
    pub action: Action,
    /// The segments.
    pub segments: &'a RangeTree,
}

impl SpaceMap {
    /// Creates a map without entries.
    pub fn create(
        store: &mut (impl SyncStore + ?Sized),
        geometry: Geometry,
        block_size: u32,
        header: HeaderForm,
    ) -> Result<Self, MetaslabError> {
        let nowhere = MetaslabError::store(ObjectId(0));
        let object = store
            .create_object(&NewObject {
                object_type: ObjectType::SPACE_MAP,
                block_size,
                indirect_shift: INDIRECT_SHIFT,
                bonus_type: ObjectType::SPACE_MAP_HEADER,
                bonus_size: header.size() as u32,
            })
            .map_err(&nowhere)?;
        let histogram = match header {
            HeaderForm::V0 => None,
            HeaderForm::Histogram => {
                store
                    .count_feature(CountedFeature::SpaceMapHistogram, CountChange::Increment)
                    .map_err(nowhere)?;
                Some([0; HISTOGRAM_BUCKETS])
            }
        };
        let header = SpaceMapHeader { object: ObjectId(0), length: 0, allocated: 0, histogram };
        Ok(Self { object, header, geometry, block_size })
    }

    /// Frees the map's object; one that is damaged is leaked.
    pub fn destroy(self, store: &mut (impl SyncStore + ?Sized)) -> Result<(), MetaslabError> {
        let failed = MetaslabError::store(self.object);
        if self.header.histogram.is_some() {
            store
                .count_feature(CountedFeature::SpaceMapHistogram, CountChange::Decrement)
                .map_err(&failed)?;
        }
        match store.free_object(self.object).map_err(failed) {
            Err(error) if error.is_damage(store) => {
                tracing::warn!(%error, "a space map is leaked");
                Ok(())
            }
            freed => freed,
        }
    }

    /// Appends parts in order, each if it has segments, and stores the header. A log map needs
    /// the `vdev` of the segments; other maps have none. Answers with the words appended.
    pub fn append(
        &mut self,
        store: &mut (impl SyncStore + ?Sized),
        stamp: Stamp,
        version: SpaceMapVersion,
        vdev: Option<VdevId>,
        parts: &[Part<'_>],
    ) -> Result<u64, MetaslabError> {
        self.append_all(store, stamp, version, parts.iter().map(|part| (vdev, *part)))
    }

    /// Appends parts of several vdevs at once: what [`SpaceMap::append`] does for each, with one
    /// write.
    pub fn append_all<'a>(
        &mut self,
        store: &mut (impl SyncStore + ?Sized),
        stamp: Stamp,
        version: SpaceMapVersion,
        parts: impl IntoIterator<Item = (Option<VdevId>, Part<'a>)>,
    ) -> Result<u64, MetaslabError> {
        let first = self.header.length / WORD_SIZE;
        let mut writer = EntryWriter::new(self.header.length, u64::from(self.block_size), version);
        let mut allocated = self.header.allocated;
        let parts = parts.into_iter().filter(|(_, part)| !part.segments.is_empty());
        for (vdev, part) in parts {
            // The entry keeps the low ten bits of the pass.
            writer.debug(part.action, (stamp.pass & 0x3ff) as u16, stamp.txg);
            for range in part.segments.iter() {
                let units = self.units(&range)?;
                writer.segment(part.action, units.start, units.end - units.start, vdev);
            }
            let bytes = part.segments.space().cast_signed();
            allocated = match part.action {
                Action::Allocate => allocated.saturating_add(bytes),
                Action::Free => allocated.saturating_sub(bytes),
            };
        }
        let length = writer.length();
        let words = writer.into_words();
        if words.is_empty() {
            // Storing the header would make the object dirty, and another sync pass necessary.
            return Ok(0);
        }
        store.write_words(self.object, first, &words).map_err(MetaslabError::store(self.object))?;
        self.header.length = length;
        self.header.allocated = allocated;
        self.store_header(store)?;
        Ok(words.len() as u64)
    }

    /// Units of the map that bytes of its area are.
    fn units(&self, range: &std::ops::Range<u64>) -> Result<std::ops::Range<u64>, MetaslabError> {
        let Geometry { start, size, shift } = self.geometry;
        let wrong = || {
            let wrong = FormatError::field("space map", "offset of a segment", range.start);
            MetaslabError::format(self.object)(wrong)
        };
        let unit_mask = (1_u64 << shift.min(63)) - 1;
        let first = range.start.checked_sub(start).ok_or_else(wrong)?;
        let end = range.end.checked_sub(start).filter(|end| *end <= size).ok_or_else(wrong)?;
        if (first | end) & unit_mask != 0 {
            return Err(wrong());
        }
        Ok(first >> shift..end >> shift)
    }

    /// Begins the map anew, without entries, and with the block size and header that new maps
    /// have. The object may change (spec 06, section 4.9).
    pub fn truncate(
        &mut self,
        store: &mut (impl SyncStore + ?Sized),
        block_size: u32,
        header: HeaderForm,
    ) -> Result<(), MetaslabError> {
        let old_header = self.header.histogram.is_none() && header == HeaderForm::Histogram;
        let failed = MetaslabError::store(self.object);
        let indirect_shift = match store.indirect_shift(self.object).map_err(&failed) {
            Err(error) if error.is_damage(store) => None,
            shift => Some(shift?),
        };
        if old_header || self.block_size != block_size || indirect_shift != Some(INDIRECT_SHIFT) {
            return self.replace(store, block_size, header);
        }
        match store.free_blocks(self.object).map_err(failed) {
            Err(error) if error.is_damage(store) => return self.replace(store, block_size, header),
            freed => freed?,
        }
        self.header.length = 0;
        self.header.allocated = 0;
        self.header.histogram = self.header.histogram.map(|_| [0; HISTOGRAM_BUCKETS]);
        self.store_header(store)
    }

    /// As [`SpaceMap::truncate`], with another object in any case.
    pub fn replace(
        &mut self,
        store: &mut (impl SyncStore + ?Sized),
        block_size: u32,
        header: HeaderForm,
    ) -> Result<(), MetaslabError> {
        let new = Self::create(store, self.geometry, block_size, header)?;
        std::mem::replace(self, new).destroy(store)
    }

    /// Replaces the histogram and stores it if it changed; a header without one stays as it is.
    pub fn set_histogram(
        &mut self,
        store: &mut (impl SyncStore + ?Sized),
        counts: &[u64; HISTOGRAM_BUCKETS],
    ) -> Result<(), MetaslabError> {
        match &mut self.header.histogram {
            Some(histogram) if histogram != counts => {
                *histogram = *counts;
                self.store_header(store)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn store_header(
        &mut self,
        store: &mut (impl SyncStore + ?Sized),
    ) -> Result<(), MetaslabError> {
        self.header.object = self.object;
        let bonus = self.header.encode(ByteOrder::NATIVE);
        store.set_bonus(self.object, &bonus).map_err(MetaslabError::store(self.object))
    }

    /// Blocks that the entries take.
    #[must_use]
    pub fn block_count(&self) -> u64 {
        self.header.length.div_ceil(u64::from(self.block_size.max(1)))
    }
}

/// Adds the segments of a tree to the histogram of a map whose unit is `1 << shift` bytes. A
/// segment larger than the last bucket counts as several (spec 06, section 4.8).
pub fn add_to_histogram(
    histogram: &mut [u64; HISTOGRAM_BUCKETS],
    segments: &SizeHistogram,
    shift: u32,
) {
    const LAST: u32 = HISTOGRAM_BUCKETS as u32 - 1;
    for (size, &count) in (0_u32..).zip(segments).skip(shift as usize) {
        let bucket = (size - shift).min(LAST);
        let scaled = u128::from(count) << (size - shift - bucket);
        if let Some(sum) = histogram.get_mut(bucket as usize) {
            *sum = sum.saturating_add(u64::try_from(scaled).unwrap_or(u64::MAX));
        }
    }
}

#[cfg(test)]
mod tests;
