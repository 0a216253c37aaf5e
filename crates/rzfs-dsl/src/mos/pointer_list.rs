//! Reading lists of block pointers in the MOS: pending frees, dead lists and livelists (spec 04,
//! sections 4, 5 and 10).

use rzfs_dmu::{Block, DmuError, Object, Objset, SourceObject};
use rzfs_format::bpobj::{self, BpobjHeader, BptreeEntry, BptreeHeader, ListMark, list_mark};
use rzfs_format::object_type::ObjectType;
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockId, BlockPointer, FormatError, Level, ObjectId, ObjsetId};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Maximum sublists of a list; each is visited once.
const MAX_LISTS: usize = 1 << 16;
/// Blocks of a list read together.
const BATCH: u64 = 8;
/// Size of an object number in a sub-object array, in bytes.
const OBJECT_NUMBER: u64 = 8;

/// A list and its header. Its object is large enough for all of its entries.
#[derive(Debug)]
pub struct PointerList<O = Object> {
    object: O,
    header: BpobjHeader,
    /// Entries per block.
    per_block: u64,
}

/// The error of an object with an inconsistent dnode or bonus.
fn corrupt(object: ObjectId) -> impl Fn(FormatError) -> DmuError {
    move |source| DmuError::Dnode { objset: ObjsetId::MOS, object, source }
}

impl<O: SourceObject> PointerList<O> {
    /// The list in an object.
    ///
    /// # Errors
    /// [`DmuError`] when it is not a list.
    pub fn of(object: O) -> Result<Self, DmuError> {
        let corrupt = corrupt(object.id());
        let found = object.object_type()?;
        if found != ObjectType::BPOBJ {
            return Err(object.is_not(found, ObjectType::BPOBJ.name()));
        }
        let header = BpobjHeader::decode(&object.bonus()?, object.bonus_order());
        let header = header.map_err(&corrupt)?;
        header.check_extent(object.extent()?).map_err(&corrupt)?;
        let per_block = u64::from(object.data_block_size()?) / BlockPointer::SIZE as u64;
        Ok(Self { object, header, per_block: per_block.max(1) })
    }

    /// The list in an object, followed by all its sublists. One that cannot be opened yields an
    /// error in its place; lists that include each other are visited once.
    pub fn with_sublists(object: O) -> impl Iterator<Item = Result<Self, DmuError>> {
        let id = object.id();
        Lists { set: object, pending: vec![id], seen: HashSet::new(), failed: None }
    }

    /// The header of the list.
    #[must_use]
    pub const fn header(&self) -> &BpobjHeader {
        &self.header
    }

    /// Its own entries from number `first` on. An unreadable block yields one error.
    pub fn entries_from(
        &self,
        first: u64,
    ) -> impl Iterator<Item = Result<BlockPointer, DmuError>> + '_ {
        let (block, skipped) = (first / self.per_block, first % self.per_block);
        let end = self.blocks();
        (block..end)
            .step_by(BATCH as usize)
            .flat_map(move |block| self.read(block..end.min(block + BATCH)))
            .skip(skipped as usize)
    }

    /// Its own entries from the last to the first.
    pub fn entries_backwards(&self) -> impl Iterator<Item = Result<BlockPointer, DmuError>> + '_ {
        let blocks = (0..self.blocks()).rev();
        blocks.flat_map(|block| self.read(block..block + 1).into_iter().rev())
    }

    fn blocks(&self) -> u64 {
        self.header.entries.div_ceil(self.per_block)
    }

    /// The entries in a range of its blocks.
    fn read(&self, blocks: Range<u64>) -> Vec<Result<BlockPointer, DmuError>> {
        let contents = match self.object.read_blocks(blocks.clone(), |_| {}) {
            Ok(contents) => contents,
            Err(error) => return vec![Err(error)],
        };
        let mut entries = Vec::new();
        for (contents, block) in contents.into_iter().zip(blocks) {
            let contents = match contents {
                Ok(contents) => contents,
                Err(error) => {
                    entries.push(Err(error));
                    continue;
                }
            };
            let left = self.header.entries.saturating_sub(block * self.per_block);
            let bookmark = Bookmark {
                objset: ObjsetId::MOS,
                object: self.object.id(),
                level: Level::DATA,
                block: BlockId(block),
            };
            let decoded = bpobj::entries(&contents.data, contents.order)
                .take(usize::try_from(left).unwrap_or(usize::MAX))
                .map(|entry| entry.map_err(|source| DmuError::Corrupt { bookmark, source }));
            entries.extend(decoded);
        }
        entries
    }

    /// The sublists of this list.
    ///
    /// # Errors
    /// [`DmuError`] when they cannot be read or are too many.
    pub fn sublists(&self) -> Result<Vec<ObjectId>, DmuError> {
        let Some(id) = self.header.subobjects.filter(|_| self.header.subobject_count > 0) else {
            return Ok(Vec::new());
        };
        let array = self.object.sibling(id)?;
        let corrupt = corrupt(id);
        self.header.check_subobject_extent(array.extent()?).map_err(&corrupt)?;
        if self.header.subobject_count > MAX_LISTS as u64 {
            let count = self.header.subobject_count;
            return Err(corrupt(FormatError::field("bpobj", "number of sub-objects", count)));
        }
        let (count, block_size) = (self.header.subobject_count, array.data_block_size()?);
        let blocks = (count * OBJECT_NUMBER).div_ceil(u64::from(block_size).max(1));
        let mut sublists = Vec::new();
        for block in array.read_blocks(0..blocks, |_| {})? {
            let Block { data, order } = block?;
            let words = data.as_chunks::<{ OBJECT_NUMBER as usize }>().0;
            sublists.extend(words.iter().map(|word| ObjectId(order.u64(*word))));
        }
        sublists.truncate(count as usize);
        Ok(sublists)
    }
}

/// A list and all its sublists.
struct Lists<O> {
    /// Any object of their set.
    set: O,
    pending: Vec<ObjectId>,
    seen: HashSet<ObjectId>,
    /// Why the sublists of the last list are unknown.
    failed: Option<DmuError>,
}

impl<O: SourceObject> Iterator for Lists<O> {
    type Item = Result<PointerList<O>, DmuError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.failed.take() {
            return Some(Err(error));
        }
        let id = self.pending.pop()?;
        if !self.seen.insert(id) {
            let problem = FormatError::invalid("bpobj", "lists that include each other");
            return Some(Err(corrupt(id)(problem)));
        }
        let list = match self.set.sibling(id).and_then(PointerList::of) {
            Ok(list) => list,
            Err(error) => return Some(Err(error)),
        };
        match list.sublists() {
            Ok(sublists) => {
                self.pending.extend(sublists);
                if self.seen.len() + self.pending.len() > MAX_LISTS {
                    self.pending.clear();
                    let problem = FormatError::invalid("bpobj", "too many lists in one");
                    self.failed = Some(corrupt(id)(problem));
                }
            }
            Err(error) => self.failed = Some(error),
        }
        Some(Ok(list))
    }
}

/// The blocks that a list of allocations and frees leaves allocated: those freed fewer times than
/// allocated. Memory use is that of the list.
pub(crate) fn survivors(mos: &Objset, id: ObjectId) -> Result<Vec<BlockPointer>, DmuError> {
    let mut entries: Vec<BlockPointer> = Vec::new();
    for list in PointerList::with_sublists(mos.object(id)?) {
        for entry in list?.entries_from(0) {
            entries.push(entry?);
        }
    }
    let mut freed: HashMap<[u64; 2], u64> = HashMap::new();
    let mut survivors = Vec::new();
    for entry in entries.iter().rev() {
        let Some(dva) = entry.dvas().next() else { continue };
        let place = freed.entry(dva.0).or_default();
        match list_mark(entry) {
            ListMark::Freed => *place += 1,
            ListMark::Allocated if *place > 0 => *place -= 1,
            ListMark::Allocated => survivors.push(*entry),
        }
    }
    Ok(survivors)
}

/// The destroyed objsets in a list whose blocks are still to be freed, by their index in the list.
pub(crate) fn destroyed(mos: &Objset, id: ObjectId) -> Result<Vec<(u64, BptreeEntry)>, DmuError> {
    let corrupt = corrupt(id);
    let object = mos.object(id)?;
    let header = BptreeHeader::decode(object.bonus(), object.order()).map_err(&corrupt)?;
    header.check_extent(object.dnode().extent()).map_err(&corrupt)?;
    // An object can claim any length.
    if header.end.saturating_sub(header.begin) > MAX_LISTS as u64 {
        return Err(corrupt(FormatError::field("bptree", "number of entries", header.end)));
    }
    let mut entries = Vec::new();
    for index in header.begin..header.end {
        let offset = index * BptreeEntry::SIZE as u64;
        let bytes = object.read_bytes(offset, BptreeEntry::SIZE)?;
        entries.push((index, BptreeEntry::decode(&bytes, object.order()).map_err(&corrupt)?));
    }
    Ok(entries)
}
