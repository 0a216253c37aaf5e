//! Metaslabs: the equal parts of a top-level vdev, each with its own space map (spec 06, sections 5
//! and 7).

use crate::fragmentation;
use crate::range_tree::cancel_or_add;
use crate::space_map::SpaceMap;
use crate::store::SpaceMapStore;
use crate::{MetaslabError, RangeError, RangeTree};
use rzfs_format::object_type::ObjectType;
use rzfs_format::space_map::{Action, Geometry};
use rzfs_format::{FormatError, ObjectId, Txg, VdevId};
use std::ops::Range;

/// The metaslab geometry of a top-level vdev from its configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VdevGeometry {
    /// The vdev.
    pub vdev: VdevId,
    /// Allocatable bytes.
    pub asize: u64,
    /// log2 of the allocation unit.
    pub ashift: u32,
    /// log2 of a metaslab's size.
    pub metaslab_shift: u32,
    /// dRAID: bytes of a full row of one group; allocations start at multiples of it.
    pub row_size: Option<u64>,
}

/// Most metaslabs that a vdev may have; a format limit would be far higher, OpenZFS aims at 200
/// and stops making them more at 2^17, beyond which only a vdev that grew can come.
const MAX_METASLABS: u64 = 1 << 20;
/// More metaslabs than this are of the least size that any release gave them.
const MAX_SMALL_METASLABS: u64 = 1 << 10;
/// log2 of that size.
const MIN_METASLAB_SHIFT: u32 = 17;

impl VdevGeometry {
    /// Number of metaslabs; the remainder at the end of the vdev is never allocated.
    pub fn metaslab_count(&self) -> Result<u64, MetaslabError> {
        let wrong = |field, value| MetaslabError::Geometry { vdev: self.vdev, field, value };
        if !(9..=62).contains(&self.metaslab_shift) || self.metaslab_shift < self.ashift {
            return Err(wrong("metaslab_shift", u64::from(self.metaslab_shift)));
        }
        match self.asize >> self.metaslab_shift {
            count @ 1..=MAX_SMALL_METASLABS => Ok(count),
            _ if self.metaslab_shift < MIN_METASLAB_SHIFT => {
                Err(wrong("metaslab_shift", u64::from(self.metaslab_shift)))
            }
            count @ 1..=MAX_METASLABS => Ok(count),
            _ => Err(wrong("asize", self.asize)),
        }
    }

    /// The bytes of a metaslab. On dRAID its start is rounded up and its length down to whole
    /// rows of a group.
    #[must_use]
    pub fn metaslab_range(&self, metaslab: u64) -> Range<u64> {
        let size = 1_u64 << self.metaslab_shift.min(62);
        let start = metaslab.saturating_mul(size);
        let end = start.saturating_add(size);
        match self.row_size {
            None | Some(0) => start..end,
            Some(row) => {
                let first = start.checked_next_multiple_of(row).unwrap_or(end).min(end);
                first..first + (end - first) / row * row
            }
        }
    }
}

/// Whether a metaslab has changes in the logs that its own map lacks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Freshness {
    /// Something was logged since the last flush.
    Dirty,
    /// The own map is complete.
    Clean,
}

impl Freshness {
    /// Its contribution to the number of dirty metaslabs.
    pub(crate) const fn count(self) -> u64 {
        match self {
            Self::Dirty => 1,
            Self::Clean => 0,
        }
    }
}

/// A metaslab: its own space map, and the changes that only the log space maps have so far.
#[derive(Clone, Debug)]
pub struct Metaslab {
    id: u64,
    range: Range<u64>,
    ashift: u32,
    space_map: Option<SpaceMap>,
    unflushed_txg: Txg,
    unflushed_allocated: RangeTree,
    unflushed_freed: RangeTree,
    freshness: Freshness,
}

impl Metaslab {
    /// Its index in the vdev.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Its bytes on the vdev.
    #[must_use]
    pub const fn range(&self) -> &Range<u64> {
        &self.range
    }

    /// Its size in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Its own space map; without one nothing was ever flushed to it.
    #[must_use]
    pub const fn space_map(&self) -> Option<&SpaceMap> {
        self.space_map.as_ref()
    }

    /// Changes of this txg and later ones are not in the own map but in the logs; 0 = no change
    /// was ever logged.
    #[must_use]
    pub const fn unflushed_txg(&self) -> Txg {
        self.unflushed_txg
    }

    /// What is allocated but free in the own map.
    #[must_use]
    pub const fn unflushed_allocated(&self) -> &RangeTree {
        &self.unflushed_allocated
    }

    /// What is free but allocated in the own map.
    #[must_use]
    pub const fn unflushed_freed(&self) -> &RangeTree {
        &self.unflushed_freed
    }

    /// Whether the logs have changes that the own map lacks.
    #[must_use]
    pub const fn freshness(&self) -> Freshness {
        self.freshness
    }

    /// Bytes that the own map has as allocated.
    #[must_use]
    pub fn own_allocated(&self) -> i64 {
        self.space_map.as_ref().map_or(0, |map| map.header().allocated)
    }

    /// Net bytes that the logs allocate beyond the own map.
    #[must_use]
    pub fn unflushed_net(&self) -> i64 {
        let difference =
            i128::from(self.unflushed_allocated.space()) - i128::from(self.unflushed_freed.space());
        i64::try_from(difference).unwrap_or(if difference < 0 { i64::MIN } else { i64::MAX })
    }

    /// Bytes that are allocated.
    #[must_use]
    pub fn allocated(&self) -> i64 {
        self.own_allocated().saturating_add(self.unflushed_net())
    }

    /// How fragmented its free space is; `None` if its map has no histogram.
    #[must_use]
    pub fn fragmentation(&self) -> Option<u64> {
        match &self.space_map {
            None => Some(0),
            Some(map) => {
                let histogram = map.header().histogram.as_ref()?;
                Some(fragmentation::of_histogram(histogram, self.ashift))
            }
        }
    }

    /// The allocated space: the own map followed by the logged changes replayed into this metaslab.
    pub fn load_allocated(&self, store: &impl SpaceMapStore) -> Result<RangeTree, MetaslabError> {
        let (object, mut tree) = match &self.space_map {
            Some(map) => (map.object(), map.load_allocated(store)?),
            None => (ObjectId(0), RangeTree::new(self.range.clone(), self.ashift)),
        };
        let conflict = |source| MetaslabError::Conflict { object, word: 0, source };
        for range in self.unflushed_allocated.iter() {
            tree.add(range).map_err(conflict)?;
        }
        for range in self.unflushed_freed.iter() {
            tree.remove(range).map_err(conflict)?;
        }
        Ok(tree)
    }

    /// The free space: everything not in [`Metaslab::load_allocated`].
    pub fn load_free(&self, store: &impl SpaceMapStore) -> Result<RangeTree, MetaslabError> {
        let allocated = self.load_allocated(store)?;
        let mut free = RangeTree::new(self.range.clone(), self.ashift);
        let conflict = |source| MetaslabError::Conflict {
            object: self.space_map.as_ref().map_or(ObjectId(0), SpaceMap::object),
            word: 0,
            source,
        };
        let mut start = self.range.start;
        for range in allocated.iter() {
            if start < range.start {
                free.add(start..range.start).map_err(conflict)?;
            }
            start = range.end;
        }
        if start < self.range.end {
            free.add(start..self.range.end).map_err(conflict)?;
        }
        Ok(free)
    }

    /// The parts taken over by a live metaslab.
    pub(crate) fn into_parts(self) -> MetaslabParts {
        MetaslabParts {
            space_map: self.space_map,
            unflushed_txg: self.unflushed_txg,
            unflushed_allocated: self.unflushed_allocated,
            unflushed_freed: self.unflushed_freed,
            freshness: self.freshness,
        }
    }

    /// Applies a logged change (spec 06, section 13.4).
    pub(crate) fn log(&mut self, action: Action, range: Range<u64>) -> Result<(), RangeError> {
        self.freshness = Freshness::Dirty;
        let (allocated, freed) = (&mut self.unflushed_allocated, &mut self.unflushed_freed);
        match action {
            Action::Allocate => cancel_or_add(range, freed, allocated),
            Action::Free => cancel_or_add(range, allocated, freed),
        }
    }
}

/// The state of a metaslab as read.
#[derive(Debug)]
pub(crate) struct MetaslabParts {
    pub(crate) space_map: Option<SpaceMap>,
    pub(crate) unflushed_txg: Txg,
    pub(crate) unflushed_allocated: RangeTree,
    pub(crate) unflushed_freed: RangeTree,
    pub(crate) freshness: Freshness,
}

/// The metaslabs of one top-level vdev.
#[derive(Clone, Debug)]
pub struct VdevMetaslabs {
    geometry: VdevGeometry,
    metaslab_array: Option<ObjectId>,
    unflushed_array: Option<ObjectId>,
    metaslabs: Vec<Metaslab>,
}

impl VdevMetaslabs {
    /// Opens the metaslabs of a vdev: the array of their space maps, and the array of their
    /// unflushed txgs if the vdev has one. The maps themselves are opened but not read.
    pub fn open(
        store: &impl SpaceMapStore,
        geometry: VdevGeometry,
        metaslab_array: Option<ObjectId>,
        unflushed_array: Option<ObjectId>,
    ) -> Result<Self, MetaslabError> {
        let count = geometry.metaslab_count()?;
        let maps = read_array(store, metaslab_array, ObjectType::OBJECT_ARRAY.number(), count)?;
        let unflushed = read_array(store, unflushed_array, UINT64_METADATA, count)?;
        let mut metaslabs = Vec::with_capacity(maps.len());
        for ((id, map), txg) in (0..count).zip(maps).zip(unflushed) {
            let range = geometry.metaslab_range(id);
            let area = Geometry {
                start: range.start,
                size: range.end - range.start,
                shift: geometry.ashift,
            };
            let space_map = match ObjectId(map).non_zero() {
                Some(object) => Some(SpaceMap::open(store, object, area)?),
                None => None,
            };
            metaslabs.push(Metaslab {
                id,
                range: range.clone(),
                ashift: geometry.ashift,
                space_map,
                unflushed_txg: Txg(txg),
                unflushed_allocated: RangeTree::new(range.clone(), geometry.ashift),
                unflushed_freed: RangeTree::new(range, geometry.ashift),
                freshness: Freshness::Clean,
            });
        }
        Ok(Self { geometry, metaslab_array, unflushed_array, metaslabs })
    }

    /// The geometry from the configuration.
    #[must_use]
    pub const fn geometry(&self) -> &VdevGeometry {
        &self.geometry
    }

    /// The array of the metaslabs' space maps.
    #[must_use]
    pub const fn metaslab_array(&self) -> Option<ObjectId> {
        self.metaslab_array
    }

    /// The array of the metaslabs' unflushed txgs.
    #[must_use]
    pub const fn unflushed_array(&self) -> Option<ObjectId> {
        self.unflushed_array
    }

    /// The metaslabs in order.
    #[must_use]
    pub fn metaslabs(&self) -> &[Metaslab] {
        &self.metaslabs
    }

    pub(crate) fn into_metaslabs(self) -> Vec<Metaslab> {
        self.metaslabs
    }

    /// The metaslab of an offset.
    #[must_use]
    pub fn metaslab_of(&self, offset: u64) -> Option<&Metaslab> {
        self.metaslabs.get(self.index_of(offset)?)
    }

    pub(crate) fn metaslab_of_mut(&mut self, offset: u64) -> Option<&mut Metaslab> {
        let index = self.index_of(offset)?;
        self.metaslabs.get_mut(index)
    }

    fn index_of(&self, offset: u64) -> Option<usize> {
        usize::try_from(offset >> self.geometry.metaslab_shift.min(63)).ok()
    }

    /// Bytes of all metaslabs; saturates.
    #[must_use]
    pub fn space(&self) -> u64 {
        self.metaslabs.iter().fold(0, |sum, metaslab| sum.saturating_add(metaslab.size()))
    }

    /// Bytes that are allocated, with logged changes; saturates.
    #[must_use]
    pub fn allocated(&self) -> i64 {
        self.metaslabs.iter().fold(0, |sum: i64, metaslab| sum.saturating_add(metaslab.allocated()))
    }

    /// Fragmentation of the vdev's free space, weighted by it; `None` if too few metaslabs have a
    /// figure.
    #[must_use]
    pub fn fragmentation(&self) -> Option<u64> {
        fragmentation::mean(self.metaslabs.iter().map(|metaslab| {
            let free = (metaslab.size().cast_signed()).saturating_sub(metaslab.own_allocated());
            (metaslab.fragmentation(), free.max(0).cast_unsigned())
        }))
    }
}

/// Number of the object type `DMU_OTN_UINT64_METADATA`.
const UINT64_METADATA: u8 = 0xc3;

/// The first `count` words of an array object of the type with this number; zeros where there is
/// no array.
fn read_array(
    store: &impl SpaceMapStore,
    object: Option<ObjectId>,
    type_number: u8,
    count: u64,
) -> Result<Vec<u64>, MetaslabError> {
    const CHUNK: u64 = 1 << 17;
    let mut words = Vec::new();
    if let Some(object) = object {
        let stored = store.object(object).map_err(MetaslabError::store(object))?;
        if stored.object_type.number() != type_number {
            let number = stored.object_type.number();
            let wrong = FormatError::field("metaslab array", "object type", number);
            return Err(MetaslabError::format(object)(wrong));
        }
        let there = count.min(stored.extent / 8);
        let mut first = 0;
        while first < there {
            let part = (there - first).min(CHUNK);
            let read = store.read_words(object, first, part as usize);
            words.extend(read.map_err(MetaslabError::store(object))?);
            first += part;
        }
    }
    words.resize(usize::try_from(count).unwrap_or(usize::MAX), 0);
    Ok(words)
}
