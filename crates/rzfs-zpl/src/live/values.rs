//! The system attributes of one object during a change: their order, and their placement (spec 05,
//! section 2.4).

use super::access_list::AccessList;
use super::access_list::mode_flags;
use crate::error::{Place, ZplError};
use rzfs_dmu::live::LiveObject;
use rzfs_format::acl::{Ace, trivial};
use rzfs_format::dirent::FileKind;
use rzfs_format::dnode::{CORE_SIZE, SLOT_SIZE};
use rzfs_format::sa::{
    Attribute, AttributeNumber, Registry, SaBuffer, SaValue, Schema, SwapClass, header_size,
};
use rzfs_format::znode::{FileFlags, Timestamp};
use rzfs_format::{BlockPointer, ByteOrder, FormatError};
use std::ops::Range;

/// Maximum total size of an object's attributes.
const MAX_BYTES: usize = 128 << 10;
const ALIGNMENT: usize = 8;

/// Attributes in storage order, in the machine's byte order.
#[derive(Clone, Debug, Default)]
pub(super) struct Values {
    entries: Vec<(AttributeNumber, Range<usize>)>,
    bytes: Vec<u8>,
}

/// New permission bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ModeChange {
    /// From a change of the mode: the access control entries are adjusted to it.
    Rewrites(u32),
    /// From a POSIX list: the entries stay, as they would give the list's mask to the owning group.
    Follows(u32),
}

/// Room for a bonus beside one block pointer, in a dnode of this many slots.
pub(super) const fn bonus_capacity(slots: u8) -> usize {
    (slots as usize * SLOT_SIZE).saturating_sub(CORE_SIZE + BlockPointer::SIZE)
}

/// Which attributes go into the bonus; the others go into the spill block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Split {
    in_bonus: usize,
    /// The length of the bonus when there is a spill block.
    bonus_len: usize,
}

impl Split {
    /// Whether the bonus fits in this many bytes.
    pub(super) const fn in_capacity(self, capacity: usize) -> bool {
        self.bonus_len <= capacity
    }
}

/// The contents of a bonus and a spill block.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) bonus: Vec<u8>,
    pub(super) spill: Option<Vec<u8>>,
}

impl Values {
    /// The attributes of an object.
    pub(super) fn of(object: &LiveObject, place: Place, schema: &Schema) -> Result<Self, ZplError> {
        let corrupt = |source| ZplError::Corrupt { place, source };
        let mut values = Self::default();
        let bonus = object.bonus()?;
        values.take(&schema.buffer(&bonus).map_err(corrupt)?).map_err(corrupt)?;
        if let Some(spill) = object.spill()? {
            values.take(&schema.buffer(&spill.data).map_err(corrupt)?).map_err(corrupt)?;
        }
        Ok(values)
    }

    fn take(&mut self, buffer: &SaBuffer<'_>) -> Result<(), FormatError> {
        for value in buffer.values() {
            if self.range(value.number).is_some() {
                let number = value.number.0;
                return Err(FormatError::field("SA buffer", "repeated attribute", number));
            }
            let start = self.bytes.len();
            self.bytes.extend_from_slice(value.bytes);
            let bytes = self.bytes.get_mut(start..).unwrap_or_default();
            make_native(&value, bytes)?;
            self.entries.push((value.number, start..start + value.bytes.len()));
        }
        Ok(())
    }

    fn range(&self, number: AttributeNumber) -> Option<Range<usize>> {
        let entry = self.entries.iter().find(|(found, _)| *found == number)?;
        Some(entry.1.clone())
    }

    fn get(&self, number: AttributeNumber) -> Option<&[u8]> {
        self.bytes.get(self.range(number)?)
    }

    /// Sets an attribute: in place if it has a value, else after all others.
    pub(super) fn set(&mut self, schema: &Schema, attribute: Attribute, value: &[u8]) {
        // Every written attribute is registered before anything is changed.
        let Some(number) = schema.registry.number(attribute) else { return };
        let found = self.range(number);
        if let Some(place) = found.and_then(|range| self.bytes.get_mut(range))
            && place.len() == value.len()
        {
            place.copy_from_slice(value);
            return;
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(value);
        let range = start..start + value.len();
        match self.entries.iter_mut().find(|(found, _)| *found == number) {
            Some(entry) => entry.1 = range,
            None => self.entries.push((number, range)),
        }
    }

    /// Sets a numeric attribute.
    pub(super) fn set_u64(&mut self, schema: &Schema, attribute: Attribute, value: u64) {
        self.set(schema, attribute, &value.to_ne_bytes());
    }

    /// Changes the flags.
    pub(super) fn change_flags(
        &mut self,
        schema: &Schema,
        change: impl FnOnce(FileFlags) -> FileFlags,
    ) {
        let stored = schema.registry.number(Attribute::Flags).and_then(|number| self.get(number));
        let flags = stored.and_then(|bytes| bytes.first_chunk()).copied().map(u64::from_ne_bytes);
        self.set_u64(schema, Attribute::Flags, change(FileFlags(flags.unwrap_or(0))).0);
    }

    /// Changes the mode in one of two ways.
    pub(super) fn change_mode(&mut self, schema: &Schema, kind: FileKind, change: ModeChange) {
        match change {
            ModeChange::Rewrites(permissions) => self.set_permissions(schema, kind, permissions),
            ModeChange::Follows(permissions) => {
                let mode = kind.mode_bits() | permissions;
                self.set_u64(schema, Attribute::Mode, u64::from(mode));
                if mode_flags(permissions) != FileFlags::NO_EXECS_DENIED {
                    self.change_flags(schema, |flags| flags.without(FileFlags::NO_EXECS_DENIED));
                }
            }
        }
    }

    /// Changes the permission bits, with the corresponding access control list and flags.
    pub(super) fn set_permissions(&mut self, schema: &Schema, kind: FileKind, permissions: u32) {
        let mode = kind.mode_bits() | permissions;
        self.set_u64(schema, Attribute::Mode, u64::from(mode));
        self.set_acl(schema, &trivial(kind, mode));
        self.change_flags(schema, |flags| {
            let others = flags.without(FileFlags::NO_EXECS_DENIED);
            others.with(FileFlags::ACL_TRIVIAL).with(mode_flags(permissions))
        });
    }

    /// Changes the permission bits, and sets an access control list that extends them.
    pub(super) fn set_list(
        &mut self,
        schema: &Schema,
        kind: FileKind,
        permissions: u32,
        list: &AccessList,
    ) {
        self.set_permissions(schema, kind, permissions);
        self.set_acl(schema, &list.entries);
        let of_lists = AccessList::FLAGS
            .with(FileFlags::INHERIT_ACE)
            .with(FileFlags::ACL_TRIVIAL)
            .with(FileFlags::ACL_OBJ_ACE)
            .with(FileFlags::NO_EXECS_DENIED);
        let new = list.all_flags(kind, permissions);
        self.change_flags(schema, |flags| flags.without(of_lists).with(new));
    }

    /// Sets a time attribute.
    pub(super) fn set_time(&mut self, schema: &Schema, attribute: Attribute, time: Timestamp) {
        let [seconds, nanoseconds] = time.encode().map(u64::to_ne_bytes);
        self.set(schema, attribute, &[seconds, nanoseconds].concat());
    }

    /// Replaces the access control list.
    pub(super) fn set_acl(&mut self, schema: &Schema, list: &[Ace]) {
        self.set_u64(schema, Attribute::DaclCount, list.len() as u64);
        self.set(schema, Attribute::DaclAces, &Ace::encode_list(list, ByteOrder::NATIVE));
    }

    /// Sets an attribute: in place if it has a value, else right after another one.
    pub(super) fn insert_after(
        &mut self,
        schema: &Schema,
        before: Attribute,
        attribute: Attribute,
        value: u64,
    ) {
        let count = self.entries.len();
        self.set_u64(schema, attribute, value);
        if self.entries.len() == count {
            return;
        }
        let position = |wanted: Attribute, entries: &[(AttributeNumber, Range<usize>)]| {
            let number = schema.registry.number(wanted);
            entries.iter().position(|(found, _)| Some(*found) == number)
        };
        if let (Some(from), Some(after)) =
            (position(attribute, &self.entries), position(before, &self.entries))
            && from > after
        {
            let entry = self.entries.remove(from);
            self.entries.insert(after + 1, entry);
        }
    }

    /// The placement of attributes in an object whose bonus has room for `capacity` bytes without a
    /// spill block; `None` when they do not fit in both.
    ///
    /// The first attribute that does not fit beside a spill pointer and all after it go into the
    /// spill block, unless everything fits without one.
    pub(super) fn split(&self, registry: &Registry, capacity: usize) -> Option<Split> {
        let beside_spill = capacity.saturating_sub(BlockPointer::SIZE);
        let (mut data, mut variable) = (0_usize, 0);
        let (mut first_out, mut total) = (None, 0);
        for (index, (number, range)) in self.entries.iter().enumerate() {
            if registry.get(*number).is_some_and(|entry| entry.length == 0) {
                variable += 1;
            }
            data = data.next_multiple_of(ALIGNMENT) + range.len();
            total = header_size(variable) + data;
            if total > beside_spill && first_out.is_none() {
                first_out = Some(index);
            }
        }
        if total > MAX_BYTES {
            return None;
        }
        let all = Split { in_bonus: self.entries.len(), bonus_len: total };
        Some(match first_out {
            Some(in_bonus) if total > capacity => Split { in_bonus, bonus_len: beside_spill },
            _ => all,
        })
    }

    fn numbers(entries: &[(AttributeNumber, Range<usize>)]) -> Vec<AttributeNumber> {
        entries.iter().map(|(number, _)| *number).collect()
    }

    /// The attributes of the bonus and, if there is one, of the spill block.
    pub(super) fn lists(&self, split: Split) -> (Vec<AttributeNumber>, Vec<AttributeNumber>) {
        let (bonus, spill) = self.entries.split_at(split.in_bonus.min(self.entries.len()));
        (Self::numbers(bonus), Self::numbers(spill))
    }

    /// The bonus and the spill block. The schema has the layouts of both.
    pub(super) fn encode(&self, schema: &Schema, split: Split) -> Result<Encoded, FormatError> {
        let (bonus, spill) = self.lists(split);
        let part = |numbers: &[AttributeNumber]| {
            let layout = schema.layouts.find(numbers);
            let layout =
                layout.ok_or_else(|| FormatError::invalid("SA layouts", "a layout is missing"))?;
            SaBuffer::encode(layout, ByteOrder::NATIVE, |number| self.get(number))
        };
        let mut encoded = Encoded { bonus: part(&bonus)?, spill: None };
        if !spill.is_empty() {
            encoded.bonus.resize(split.bonus_len.max(encoded.bonus.len()), 0);
            encoded.spill = Some(part(&spill)?);
        }
        Ok(encoded)
    }
}

/// Swaps the bytes of a value in the other byte order.
fn make_native(value: &SaValue<'_>, bytes: &mut [u8]) -> Result<(), FormatError> {
    if value.order == ByteOrder::NATIVE {
        return Ok(());
    }
    let width = match value.class {
        SwapClass::Uint64 => 8,
        SwapClass::Uint32 => 4,
        SwapClass::Uint16 => 2,
        SwapClass::Bytes => return Ok(()),
        SwapClass::Acl => {
            let list = Ace::decode_packed(value.bytes, value.order)?;
            let swapped = Ace::encode_list(&list, ByteOrder::NATIVE);
            if swapped.len() == bytes.len() {
                bytes.copy_from_slice(&swapped);
            }
            return Ok(());
        }
    };
    bytes.chunks_exact_mut(width).for_each(<[u8]>::reverse);
    Ok(())
}
