//! Records of objects: OBJECT and FREEOBJECTS.

use super::Applier;
use crate::error::{ReceiveError, RecordProblem};
use crate::version::generation;
use rzfs_dmu::live::{Extent, LiveObject, NewObject};
use rzfs_format::dnode::{CORE_SIZE, Dnode, SLOT_SIZE};
use rzfs_format::object_type::ObjectType;
use rzfs_format::stream::{FreeObjects, Object, ObjectFlags};
use rzfs_format::{BlockPointer, ByteOrder, ObjectId};
use std::ops::Range;

/// log2 of the size of an indirect block of new objects.
const INDIRECT_SHIFT: u8 = 17;
/// Number of objects that are searched for together when many are freed.
const BATCH: usize = 1024;

/// The fate of the contents of an object described by a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Contents {
    /// They stay, with their block size.
    Kept,
    /// They are dropped: it is another file now, or has another block size.
    Dropped,
}

impl Applier<'_> {
    pub(super) fn put_object(
        &mut self,
        record: &Object,
        payload: &[u8],
    ) -> Result<(), ReceiveError> {
        let id = record.object;
        self.current = None;
        let kind = |number: u32| {
            let number = u8::try_from(number).unwrap_or(u8::MAX);
            ObjectType::from_number(number).map_err(|error| self.wrong(error))
        };
        let new = NewObject {
            object_type: kind(record.object_type)?,
            data_block_size: record.block_size,
            indirect_shift: INDIRECT_SHIFT,
            bonus_type: kind(record.bonus_type)?,
            bonus: payload.get(..record.bonus_length as usize).unwrap_or(payload),
            slots: record.slot_count(),
        };
        let behind = ObjectId(id.get().saturating_add(new.slots.into()));
        let existing = self.find(id)?;
        let object = match existing {
            Some(existing) if self.can_become(&existing, &new)? => {
                self.change_object(&existing, record, &new)?;
                existing
            }
            existing => {
                if let Some(existing) = existing {
                    self.destroy(&existing)?;
                }
                self.free_between(ObjectId(id.get().saturating_add(1))..behind)?;
                self.make_object(id, new)?
            }
        };
        self.touched = self.touched.max(behind);
        self.current = Some(object);
        Ok(())
    }

    fn make_object(&self, id: ObjectId, new: NewObject<'_>) -> Result<LiveObject, ReceiveError> {
        let claim = || {
            let tx = self.begin_new()?;
            self.objset.claim(&tx, id, new).map_err(|error| self.failed(error))
        };
        if let Some(object) = claim()? {
            return Ok(object);
        }
        // A freed number is available once that is on disk.
        self.sync()?;
        claim()?.ok_or_else(|| self.wrong(RecordProblem::Taken { object: id }))
    }

    /// Whether an object can be changed to another one, with the same number of slots and room for
    /// at least as many block pointers.
    fn can_become(&self, existing: &LiveObject, new: &NewObject<'_>) -> Result<bool, ReceiveError> {
        let failed = |error| self.failed(error);
        let pointers = Dnode::pointer_count(new.bonus_type, new.bonus.len(), new.slots);
        let has_room = pointers >= usize::from(existing.pointer_count().map_err(failed)?);
        Ok(existing.slots().map_err(failed)? == new.slots && has_room)
    }

    /// Changes an object as a record describes.
    fn change_object(
        &self,
        existing: &LiveObject,
        record: &Object,
        new: &NewObject<'_>,
    ) -> Result<(), ReceiveError> {
        let failed = |error| self.failed(error);
        let has_spill = existing.has_spill().map_err(failed)?;
        let loses_spill =
            has_spill && self.traits.marks_spills && !record.flags.contains(ObjectFlags::SPILL);
        self.require_room((existing, new.bonus.len()), has_spill && !loses_spill)?;
        let is_same_type = existing.object_type().map_err(failed)? == new.object_type;
        // Blocks record their type.
        let contents =
            if is_same_type { self.contents_of(existing, new)? } else { Contents::Dropped };
        let is_same_bonus = existing.bonus_type().map_err(failed)? == new.bonus_type
            && *existing.bonus().map_err(failed)? == *new.bonus
            && existing.bonus_order() == ByteOrder::NATIVE;
        if contents == Contents::Dropped {
            self.make_hole(existing, 0, Extent::ToEnd)?;
        }
        if contents == Contents::Kept && is_same_type && is_same_bonus && !loses_spill {
            return Ok(());
        }
        let tx = self.begin(existing, 0)?;
        if contents == Contents::Dropped {
            existing.set_data_block_size(&tx, new.data_block_size).map_err(failed)?;
        }
        if !is_same_type {
            existing.set_object_type(&tx, new.object_type).map_err(failed)?;
        }
        if loses_spill {
            existing.remove_spill(&tx).map_err(failed)?;
        }
        existing.set_bonus(&tx, new.bonus_type, new.bonus).map_err(failed)
    }

    /// The fate of the contents. Blocks of the same file grow when it is sent with large ones for
    /// the first time: unchanged data are not sent again, so they must stay.
    fn contents_of(
        &self,
        existing: &LiveObject,
        new: &NewObject<'_>,
    ) -> Result<Contents, ReceiveError> {
        let failed = |error| self.failed(error);
        let size = existing.data_block_size().map_err(failed)?;
        if size == new.data_block_size {
            return Ok(Contents::Kept);
        }
        let old_generation = generation(
            existing.bonus_type().map_err(failed)?,
            &existing.bonus().map_err(failed)?,
            existing.bonus_order(),
        );
        let file = ObjectType::PLAIN_FILE_CONTENTS;
        let is_same_file = !self.traits.is_full
            && existing.object_type().map_err(failed)? == file
            && new.object_type == file
            && existing.max_block_id().map_err(failed)?.0 > 0
            && old_generation == generation(new.bonus_type, new.bonus, ByteOrder::NATIVE);
        if !is_same_file {
            return Ok(Contents::Dropped);
        }
        if new.data_block_size < size {
            return Err(self.wrong(RecordProblem::SmallerBlocks { object: existing.id() }));
        }
        Ok(Contents::Kept)
    }

    /// Checks that the dnode of an object has room for a bonus next to its block pointers, and for
    /// a spill block if it has one.
    pub(super) fn require_room(
        &self,
        (object, bonus): (&LiveObject, usize),
        has_spill: bool,
    ) -> Result<(), ReceiveError> {
        let failed = |error| self.failed(error);
        let pointers = usize::from(object.pointer_count().map_err(failed)?);
        let pointers = pointers + usize::from(has_spill);
        let size = usize::from(object.slots().map_err(failed)?) * SLOT_SIZE;
        if CORE_SIZE + pointers * BlockPointer::SIZE + bonus > size {
            return Err(self.wrong(RecordProblem::NoRoom { object: object.id() }));
        }
        Ok(())
    }

    pub(super) fn free_objects(&mut self, free: &FreeObjects) -> Result<(), ReceiveError> {
        let end = free.first.get().saturating_add(free.count).min(ObjectId::END.get());
        self.current = None;
        self.free_between(ObjectId(free.first.get().max(1))..ObjectId(end))
    }

    /// Frees all objects with these numbers.
    fn free_between(&self, mut range: Range<ObjectId>) -> Result<(), ReceiveError> {
        if range.is_empty() {
            return Ok(());
        }
        if range.start < self.touched {
            // Only objects on disk are found.
            self.sync()?;
        }
        loop {
            let found = self.allocated(&range)?;
            for id in &found {
                if let Some(object) = self.find(*id)? {
                    self.destroy(&object)?;
                }
            }
            match found.last() {
                Some(last) if found.len() == BATCH => range.start = ObjectId(last.get() + 1),
                _ => return Ok(()),
            }
        }
    }

    /// The first objects on disk with numbers in a range.
    fn allocated(&self, range: &Range<ObjectId>) -> Result<Vec<ObjectId>, ReceiveError> {
        loop {
            let synced = self.objset.synced();
            let ids = synced
                .objects_from(range.start)
                .take_while(|entry| entry.as_ref().map_or(true, |entry| entry.id < range.end))
                .take(BATCH)
                .map(|entry| entry.map(|entry| entry.id))
                .collect::<Result<Vec<_>, _>>();
            match ids {
                Ok(ids) => return Ok(ids),
                // A sync may replace the blocks being read.
                Err(_) if self.objset.synced().root() != synced.root() => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
    }
}
