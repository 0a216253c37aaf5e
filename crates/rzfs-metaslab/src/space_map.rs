//! Space maps: reading here (spec 06, sections 4.3 and 4.7), writing in [`append`].

pub mod append;
mod unwind;

use crate::store::SpaceMapStore;
use crate::{MetaslabError, RangeError, RangeTree};
use rzfs_format::object_type::ObjectType;
use rzfs_format::space_map::{Action, Entry, Geometry, Run, SpaceMapHeader, WORD_SIZE};
use rzfs_format::{FormatError, ObjectId};
use std::ops::Range;

/// Words that are read at once.
const READ_WORDS: u64 = (1 << 20) / WORD_SIZE;

/// An open space map: its header, checked, and what its numbers mean.
#[derive(Clone, Debug)]
pub struct SpaceMap {
    object: ObjectId,
    header: SpaceMapHeader,
    geometry: Geometry,
    block_size: u32,
}

/// What the entries of a map add up to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EntryTotals {
    /// Allocations and frees.
    pub entries: u64,
    /// Bytes allocated.
    pub allocated: u64,
    /// Bytes freed.
    pub freed: u64,
}

impl EntryTotals {
    /// Bytes allocated minus bytes freed; saturates.
    #[must_use]
    pub const fn net(&self) -> i64 {
        let wide = self.allocated as i128 - self.freed as i128;
        if wide > i64::MAX as i128 {
            i64::MAX
        } else if wide < i64::MIN as i128 {
            i64::MIN
        } else {
            wide as i64
        }
    }

    pub(crate) fn record(&mut self, action: Action, range: &Range<u64>) {
        let bytes = range.end.saturating_sub(range.start);
        self.entries = self.entries.saturating_add(1);
        match action {
            Action::Allocate => self.allocated = self.allocated.saturating_add(bytes),
            Action::Free => self.freed = self.freed.saturating_add(bytes),
        }
    }
}

impl SpaceMap {
    /// Opens the map `object`, whose area and unit are `geometry`.
    pub fn open(
        store: &(impl SpaceMapStore + ?Sized),
        object: ObjectId,
        geometry: Geometry,
    ) -> Result<Self, MetaslabError> {
        const WHAT: &str = "space map";
        let format = MetaslabError::format(object);
        let stored = store.object(object).map_err(MetaslabError::store(object))?;
        if stored.object_type != ObjectType::SPACE_MAP {
            let number = stored.object_type.number();
            return Err(format(FormatError::field(WHAT, "object type", number)));
        }
        if stored.block_size < 16 || !stored.block_size.is_multiple_of(8) {
            return Err(format(FormatError::field(WHAT, "block size", stored.block_size)));
        }
        let header = SpaceMapHeader::decode(&stored.bonus, stored.order).map_err(&format)?;
        if header.length > stored.extent {
            return Err(format(FormatError::field(WHAT, "length", header.length)));
        }
        Ok(Self { object, header, geometry, block_size: stored.block_size })
    }

    /// The map's object.
    #[must_use]
    pub const fn object(&self) -> ObjectId {
        self.object
    }

    /// The map's header.
    #[must_use]
    pub const fn header(&self) -> &SpaceMapHeader {
        &self.header
    }

    /// The map's area and unit.
    #[must_use]
    pub const fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Bytes of a block of the map.
    #[must_use]
    pub const fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Calls `visit` for all entries in order, with the index of each one's first word; at most
    /// 1 MiB of the map is in memory.
    ///
    /// A block of zeros only, unless it is a single word, is an error: zeros would be allocations
    /// of the map's first unit over and over.
    pub fn visit(
        &self,
        store: &(impl SpaceMapStore + ?Sized),
        mut visit: impl FnMut(u64, Entry) -> Result<(), MetaslabError>,
    ) -> Result<(), MetaslabError> {
        let block_words = u64::from(self.block_size) / WORD_SIZE;
        let chunk_words = (READ_WORDS / block_words).max(1) * block_words;
        let total_words = self.header.length / WORD_SIZE;
        let mut first = 0;
        while first < total_words {
            let count = (total_words - first).min(chunk_words);
            let words = store
                .read_words(self.object, first, count as usize)
                .map_err(MetaslabError::store(self.object))?;
            for (block, base) in
                words.chunks(block_words as usize).zip((first..).step_by(block_words as usize))
            {
                self.visit_block(block, base, &mut visit)?;
            }
            first += count;
        }
        Ok(())
    }

    fn visit_block(
        &self,
        block: &[u64],
        base: u64,
        visit: &mut impl FnMut(u64, Entry) -> Result<(), MetaslabError>,
    ) -> Result<(), MetaslabError> {
        let format = MetaslabError::format(self.object);
        if block.len() > 1 && block.iter().all(|word| *word == 0) {
            return Err(format(FormatError::invalid("space map", "a block of zeros")));
        }
        let mut rest = block;
        while let Some((&first, after)) = rest.split_first() {
            let entry = Entry::from_words(first, after.first().copied()).map_err(&format)?;
            let at = base + (block.len() - rest.len()) as u64;
            visit(at, entry)?;
            rest = rest.get(entry.words() as usize..).unwrap_or(&[]);
        }
        Ok(())
    }

    /// Calls `visit` for the bytes of all allocations and frees in order, and adds them up.
    pub fn visit_ranges(
        &self,
        store: &(impl SpaceMapStore + ?Sized),
        mut visit: impl FnMut(&Run, Range<u64>) -> Result<(), RangeError>,
    ) -> Result<EntryTotals, MetaslabError> {
        let mut totals = EntryTotals::default();
        self.visit(store, |word, entry| {
            let Entry::Run(run) = entry else { return Ok(()) };
            let range = self.geometry.range(&run).map_err(MetaslabError::format(self.object))?;
            totals.record(run.action, &range);
            visit(&run, range).map_err(|source| MetaslabError::Conflict {
                object: self.object,
                word,
                source,
            })
        })?;
        Ok(totals)
    }

    /// Replays the map into a tree of its area: what is allocated according to its entries.
    ///
    /// Fails if an entry allocates what is allocated or frees what is free, or if the entries do
    /// not add up to the header's figure.
    pub fn load_allocated(
        &self,
        store: &(impl SpaceMapStore + ?Sized),
    ) -> Result<RangeTree, MetaslabError> {
        let mut tree = RangeTree::new(self.area(), self.geometry.shift);
        let totals = self.visit_ranges(store, |run, range| match run.action {
            Action::Allocate => tree.add(range),
            Action::Free => tree.remove(range),
        })?;
        self.check_totals(&totals)?;
        Ok(tree)
    }

    /// Replays the map into a tree of what is free; the twin of [`SpaceMap::load_allocated`].
    pub fn load_free(
        &self,
        store: &(impl SpaceMapStore + ?Sized),
    ) -> Result<RangeTree, MetaslabError> {
        let mut tree = RangeTree::full(self.area(), self.geometry.shift);
        let totals = self.visit_ranges(store, |run, range| match run.action {
            Action::Allocate => tree.remove(range),
            Action::Free => tree.add(range),
        })?;
        self.check_totals(&totals)?;
        Ok(tree)
    }

    fn area(&self) -> Range<u64> {
        self.geometry.start..self.geometry.start.saturating_add(self.geometry.size)
    }

    /// The map as it was when it had `length` bytes, which added up to `allocated`.
    pub(crate) fn up_to(&self, length: u64, allocated: i64) -> Self {
        let header = SpaceMapHeader { length, allocated, ..self.header.clone() };
        Self { header, ..self.clone() }
    }

    /// Checks that the entries add up to the header's figure.
    pub fn check_totals(&self, totals: &EntryTotals) -> Result<(), MetaslabError> {
        if totals.net() == self.header.allocated {
            return Ok(());
        }
        let allocated = self.header.allocated.cast_unsigned();
        Err(MetaslabError::format(self.object)(FormatError::field(
            "space map",
            "allocated",
            allocated,
        )))
    }
}
