//! Lists of block pointers in the MOS: what is free but not yet given back.

use super::error::ZdbError;
use rzfs_dmu::{Object, Objset};
use rzfs_format::bpobj::{self, BpobjHeader, BptreeEntry, BptreeHeader, ListMark, list_mark};
use rzfs_format::dnode::{Dnode, SLOT_SIZE};
use rzfs_format::object_type::ObjectType;
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockId, BlockPointer, FormatError, Level, ObjectId};
use std::collections::{HashMap, HashSet};

/// Most lists below one list; each is visited once.
const MAX_LISTS: usize = 1 << 16;
/// Blocks of a list that are read together.
const BATCH: u64 = 8;
/// Bytes of an object number in an array of sub-objects.
const OBJECT_NUMBER: u64 = 8;

/// A list and what it says about itself.
pub(crate) struct PointerList {
    pub(crate) object: Object,
    pub(crate) header: BpobjHeader,
}

impl PointerList {
    /// Opens the list in an object of the MOS.
    pub(crate) fn open(mos: &Objset, id: ObjectId) -> Result<Self, ZdbError> {
        Self::of(mos.object(id)?)
    }

    /// The list in an object.
    pub(crate) fn of(object: Object) -> Result<Self, ZdbError> {
        let corrupt = ZdbError::corrupt(object.id());
        if object.object_type() != ObjectType::BPOBJ {
            return Err(object.wrong_type(ObjectType::BPOBJ.name()).into());
        }
        let header = BpobjHeader::decode(object.bonus(), object.order()).map_err(&corrupt)?;
        header.check_extent(object.dnode().extent()).map_err(&corrupt)?;
        Ok(Self { object, header })
    }

    /// Calls `visit` for the list's own entries from the first to the last.
    pub(crate) fn visit_own(
        &self,
        visit: &mut dyn FnMut(&BlockPointer) -> Result<(), ZdbError>,
    ) -> Result<(), ZdbError> {
        let corrupt = ZdbError::corrupt(self.object.id());
        let block_size = u64::from(self.object.block_size());
        let bytes = self.header.entries * BlockPointer::SIZE as u64;
        let end = bytes.div_ceil(block_size);
        for first in (0..end).step_by(BATCH as usize) {
            let blocks = self.object.read_blocks(first..end.min(first + BATCH));
            for (block, number) in blocks.into_iter().zip(first..) {
                let block = block?;
                let valid = (bytes - number * block_size).min(block_size) as usize;
                let data = block.data.get(..valid).unwrap_or(&block.data);
                for entry in bpobj::entries(data, block.order) {
                    visit(&entry.map_err(&corrupt)?)?;
                }
            }
        }
        Ok(())
    }

    /// Calls `visit` for the list's own entries from the last to the first.
    pub(crate) fn visit_own_backwards(
        &self,
        visit: &mut dyn FnMut(&BlockPointer) -> Result<(), ZdbError>,
    ) -> Result<(), ZdbError> {
        let corrupt = ZdbError::corrupt(self.object.id());
        let block_size = u64::from(self.object.block_size());
        let bytes = self.header.entries * BlockPointer::SIZE as u64;
        for number in (0..bytes.div_ceil(block_size)).rev() {
            let block = self.object.read_block(BlockId(number))?;
            let valid = (bytes - number * block_size).min(block_size) as usize;
            let data = block.data.get(..valid).unwrap_or(&block.data);
            let entries: Vec<_> = bpobj::entries(data, block.order).collect();
            for entry in entries.into_iter().rev() {
                visit(&entry.map_err(&corrupt)?)?;
            }
        }
        Ok(())
    }

    /// The lists that this one includes.
    pub(crate) fn sublists(&self, mos: &Objset) -> Result<Vec<ObjectId>, ZdbError> {
        let Some(id) = self.header.subobjects.filter(|_| self.header.subobject_count > 0) else {
            return Ok(Vec::new());
        };
        let array = mos.object(id)?;
        let corrupt = ZdbError::corrupt(id);
        self.header.check_subobject_extent(array.dnode().extent()).map_err(&corrupt)?;
        if self.header.subobject_count > MAX_LISTS as u64 {
            let count = self.header.subobject_count;
            return Err(corrupt(FormatError::field("bpobj", "number of sub-objects", count)));
        }
        let mut sublists = Vec::new();
        for index in 0..self.header.subobject_count {
            let bytes = array.read_bytes(index * OBJECT_NUMBER, OBJECT_NUMBER as usize)?;
            let mut word = [0; OBJECT_NUMBER as usize];
            word.copy_from_slice(bytes.get(..OBJECT_NUMBER as usize).unwrap_or(&[0; 8]));
            sublists.push(ObjectId(array.order().u64(word)));
        }
        Ok(sublists)
    }
}

/// Calls `visit` for the entries of a list and of all lists below it.
pub(crate) fn visit(
    mos: &Objset,
    id: ObjectId,
    visit: &mut dyn FnMut(&BlockPointer) -> Result<(), ZdbError>,
) -> Result<(), ZdbError> {
    let mut pending = vec![id];
    let mut seen = HashSet::new();
    while let Some(id) = pending.pop() {
        if !seen.insert(id) || seen.len() > MAX_LISTS {
            let problem = FormatError::invalid("bpobj", "lists that include each other");
            return Err(ZdbError::corrupt(id)(problem));
        }
        let list = PointerList::open(mos, id)?;
        list.visit_own(visit)?;
        pending.extend(list.sublists(mos)?);
    }
    Ok(())
}

/// The blocks that a list of allocations and frees leaves allocated: those that were not freed as
/// often as they were allocated.
pub(crate) fn survivors(mos: &Objset, id: ObjectId) -> Result<Vec<BlockPointer>, ZdbError> {
    let mut entries: Vec<BlockPointer> = Vec::new();
    visit(mos, id, &mut |entry| {
        entries.push(*entry);
        Ok(())
    })?;
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

/// The destroyed objsets in a list of them whose blocks are still to be freed.
pub(crate) fn destroyed(mos: &Objset, id: ObjectId) -> Result<Vec<BptreeEntry>, ZdbError> {
    let corrupt = ZdbError::corrupt(id);
    let object = mos.object(id)?;
    let header = BptreeHeader::decode(object.bonus(), object.order()).map_err(&corrupt)?;
    header.check_extent(object.dnode().extent()).map_err(&corrupt)?;
    // An object can say that it is as long as it likes.
    if header.end.saturating_sub(header.begin) > MAX_LISTS as u64 {
        return Err(corrupt(FormatError::field("bptree", "number of entries", header.end)));
    }
    let mut entries = Vec::new();
    for index in header.begin..header.end {
        let offset = index * BptreeEntry::SIZE as u64;
        let bytes = object.read_bytes(offset, BptreeEntry::SIZE)?;
        entries.push(BptreeEntry::decode(&bytes, object.order()).map_err(&corrupt)?);
    }
    Ok(entries)
}

/// Whether a block of a destroyed objset was freed already: everything below it (and it after
/// everything below it) lies before the place where the destroy goes on.
pub(crate) fn is_freed(entry: &BptreeEntry, bookmark: Bookmark, dnode: Option<&Dnode>) -> bool {
    let Some(dnode) = dnode else { return false };
    let first_after = |level: Level, block: u64| {
        let shift = u32::from(level.0.unsigned_abs()) * dnode.pointers_shift();
        let end = block.saturating_add(1);
        end.checked_shl(shift).filter(|shifted| shifted >> shift == end).unwrap_or(u64::MAX)
    };
    let resume = entry.resume;
    if bookmark.object != ObjectId::META_DNODE {
        let resume_block = first_after(resume.level, resume.block.0.wrapping_sub(1));
        let own_end = first_after(bookmark.level, bookmark.block.0);
        return bookmark.object < resume.object
            || (bookmark.object == resume.object && own_end <= resume_block);
    }
    let dnodes_per_block = u64::from(dnode.data_block_size) / SLOT_SIZE as u64;
    let end = first_after(bookmark.level, bookmark.block.0).saturating_mul(dnodes_per_block);
    end <= resume.object.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_format::{ByteOrder, ObjsetId, Txg};

    fn dnode() -> Dnode {
        let mut bytes = [0; SLOT_SIZE];
        // A plain file of two levels, indirect blocks of 128 KiB, data blocks of 16 KiB.
        bytes[..9].copy_from_slice(&[0x13, 17, 2, 1, 0, 0, 0, 0, 32]);
        Dnode::decode(&bytes, ByteOrder::Little).unwrap().unwrap()
    }

    fn at(object: u64, level: i8, block: u64) -> Bookmark {
        Bookmark {
            objset: ObjsetId(7),
            object: ObjectId(object),
            level: Level(level),
            block: BlockId(block),
        }
    }

    #[test]
    fn blocks_before_the_place_to_resume_are_freed() {
        let dnode = dnode();
        let entry =
            BptreeEntry { root: BlockPointer::HOLE, birth: Txg(0), resume: at(40, 0, 2000) };
        for (bookmark, freed) in [
            (at(39, 0, 9999), true),
            (at(39, 1, 0), true),
            (at(40, 0, 1999), true),
            (at(40, 0, 2000), false),
            (at(40, 1, 0), true),
            (at(40, 1, 1), false),
            (at(41, 0, 0), false),
            // Dnode blocks have 32 dnodes: block 0 ends at object 32, block 1 at 64.
            (at(0, 0, 0), true),
            (at(0, 0, 1), false),
            (at(0, 1, 0), false),
        ] {
            assert_eq!(is_freed(&entry, bookmark, Some(&dnode)), freed, "{bookmark}");
        }
        assert!(!is_freed(&entry, Bookmark::root(ObjsetId(7)), None));
        let fresh = BptreeEntry { resume: Bookmark::default(), ..entry };
        assert!(!is_freed(&fresh, at(1, 0, 0), Some(&dnode)), "nothing is freed yet");
    }
}
