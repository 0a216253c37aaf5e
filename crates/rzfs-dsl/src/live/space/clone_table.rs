//! Blocks shared by several files and their reference counts: the tables of block cloning (spec 02,
//! section 10).
//!
//! ```text
//! datasets are synced ──> references of this txg's clones are added
//! blocks are freed ─────> does the range have shared blocks? is this one? then one reference less
//! end of the pass ──────> changed entries, counters and sums are written
//! ```
//! A pointer does not show that its block is shared. So every data block that dies is looked up;
//! for most the counter of their 16 MiB range shows that nothing there is shared, and pools without
//! clones have no table.

mod counters;

use crate::PoolError;
use crate::live::LiveError;
use crate::live::error::UnlessDamaged;
use crate::mos::features::Features;
use crate::mos::live::{MosTx, Spoilt};
use crate::mos::record::record_of;
use crate::mos::{MosSource, OBJECT_DIRECTORY as DIRECTORY};
use crate::pool::Attributes;
use counters::{MAX_ENTRIES, count_entries, read_counters};
use parking_lot::Mutex;
use rzfs_dmu::Objset;
use rzfs_format::brt::{self, BrtHeader};
use rzfs_format::features::Feature;
use rzfs_format::object_type::ObjectType;
use rzfs_format::{BlockPointer, ByteOrder, Dva, FormatError, Level, ObjectId, VdevId};
use rzfs_vdev::VdevTree;
use rzfs_zap::{IntegerSize, NewZap, ZapFlags, ZapValue};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a vdev covered by a counter of a new table.
const RANGE: u64 = 16 << 20;
/// Block size of the counters of a new table, in bytes.
const COUNTER_BLOCK: u32 = 32 << 10;
/// Block size of the entries of a new table, in bytes.
const ENTRY_BLOCK: usize = 4 << 10;
/// Maximum number of counters of a vdev: at 16 MiB each, enough for 4 PiB.
const MAX_COUNTERS: u64 = 1 << 28;

/// What happens to a block that loses a reference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Release {
    /// Its space is free.
    Free,
    /// It still has other references.
    Kept,
}

/// The tables of all vdevs with shared blocks.
#[derive(Debug, Default)]
pub(crate) struct CloneTables {
    tables: Mutex<BTreeMap<VdevId, CloneTable>>,
}

/// The form of the counts in entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum EntryForm {
    /// Eight bytes: a number in memory order.
    Memory,
    /// A number, in pools with the feature `block_cloning_endian`.
    Number,
}

impl EntryForm {
    fn of(features: &Features) -> Self {
        match features.is_active(Feature::BlockCloningEndian) {
            true => Self::Number,
            false => Self::Memory,
        }
    }

    fn value(self, count: u64) -> ZapValue {
        match self {
            Self::Memory => ZapValue::new(IntegerSize::One, &count.to_ne_bytes().map(u64::from)),
            Self::Number => count.into(),
        }
    }
}

/// The table of a vdev.
#[derive(Debug)]
struct CloneTable {
    vdev: VdevId,
    object: ObjectId,
    header: BrtHeader,
    /// Number of entries in each range.
    counters: Vec<u16>,
    /// Additional references of the blocks looked up in this pass, by offset; and whether the entry
    /// has changed.
    entries: BTreeMap<u64, (u64, bool)>,
    /// Blocks whose references are not what memory has of the table.
    unknown: BTreeSet<u64>,
    /// Ranges whose counters have changed.
    ranges: BTreeSet<u64>,
    is_changed: bool,
}

/// Whether a block is of a kind that can be shared.
fn is_shareable(pointer: &BlockPointer) -> bool {
    pointer.level() == Level::DATA
        && !pointer.is_embedded()
        && pointer.object_type().is_ok_and(|of| !of.is_metadata())
}

/// The key of a block in the table of its vdev; `None` if it has no address of its own.
pub(crate) fn key_of(pointer: &BlockPointer) -> Option<Dva> {
    if pointer.is_embedded() {
        return None;
    }
    pointer.dvas().next().filter(|dva| dva.is_valid())
}

impl CloneTables {
    /// The tables of a pool on disk.
    pub(crate) fn open(
        mos: &Objset,
        directory: &Attributes,
        vdevs: &VdevTree,
    ) -> Result<Self, PoolError> {
        let mut tables = BTreeMap::new();
        for id in vdevs.top_levels().filter_map(|top| top.vdev_id()) {
            let Some(object) = directory.object(&brt::vdev_key(id))? else { continue };
            let object = mos.object(object)?;
            let corrupt = PoolError::corrupt(object.id());
            let header: BrtHeader = record_of(&object)?;
            let stored = object.dnode().extent() / 2;
            if header.counters > stored.min(MAX_COUNTERS) {
                let problem = FormatError::invalid("block reference table", "counters are missing");
                return Err(corrupt(problem));
            }
            if header.counter_order != ByteOrder::NATIVE {
                let problem = "its counters have the byte order of another machine";
                return Err(corrupt(FormatError::invalid("block reference table", problem)));
            }
            let table = match read_counters(&object, &header) {
                Err(error) if error.is_damage() => {
                    tracing::warn!(%error, "blocks that are shared are counted again");
                    let counters = count_entries(mos, &header);
                    CloneTable::with_new_counters((id, object.id()), header, counters)
                }
                counters => CloneTable::new((id, object.id()), header, counters?),
            };
            tables.insert(id, table);
        }
        Ok(Self { tables: Mutex::new(tables) })
    }

    /// The objects with the entries.
    pub(crate) fn entries(&self) -> BTreeMap<VdevId, ObjectId> {
        self.tables.lock().iter().map(|(vdev, table)| (*vdev, table.header.entries)).collect()
    }

    /// Deflated bytes saved by sharing.
    pub(crate) fn saved(&self) -> u64 {
        let tables = self.tables.lock();
        let saved = tables.values().map(|table| table.header.saved_space);
        saved.fold(0, u64::saturating_add)
    }

    /// Whether a block is shared.
    pub(crate) fn has(&self, mos: &MosTx<'_>, pointer: &BlockPointer) -> Result<bool, LiveError> {
        let Some(dva) = key_of(pointer) else { return Ok(false) };
        let mut tables = self.tables.lock();
        let count = tables.get_mut(&dva.vdev()).map(|table| table.count(mos, dva.offset()));
        Ok(count.transpose()?.is_some_and(|count| count > 0))
    }

    /// Adds a reference to a block of `dsize` deflated bytes.
    pub(crate) fn add(
        &self,
        mos: &MosTx<'_>,
        features: &mut Features,
        vdevs: &VdevTree,
        (pointer, dsize): (&BlockPointer, u64),
    ) -> Result<(), LiveError> {
        let Some(dva) = key_of(pointer) else { return Ok(()) };
        let mut tables = self.tables.lock();
        let table = match tables.entry(dva.vdev()) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(place) => {
                place.insert(CloneTable::create(mos, features, vdevs, dva.vdev())?)
            }
        };
        table.add(mos, dva.offset(), dsize)
    }

    /// Removes a reference to a block; reports whether others remain.
    pub(crate) fn release(
        &self,
        mos: &MosTx<'_>,
        pointer: &BlockPointer,
        dsize: impl FnOnce() -> u64,
    ) -> Result<Release, LiveError> {
        let mut tables = self.tables.lock();
        if tables.is_empty() || !is_shareable(pointer) {
            return Ok(Release::Free);
        }
        let Some(dva) = key_of(pointer) else { return Ok(Release::Free) };
        match tables.get_mut(&dva.vdev()) {
            Some(table) => table.release(mos, dva.offset(), dsize),
            None => Ok(Release::Free),
        }
    }

    /// Writes what changed in this pass; a table without entries is then removed.
    pub(crate) fn write(&self, mos: &MosTx<'_>, features: &mut Features) -> Result<(), LiveError> {
        let mut tables = self.tables.lock();
        let form = EntryForm::of(features);
        for table in tables.values_mut() {
            table.write(mos, form)?;
        }
        let is_empty =
            |(id, table): (&VdevId, &CloneTable)| (table.header.total_count == 0).then_some(*id);
        let empty: Vec<VdevId> = tables.iter().filter_map(is_empty).collect();
        for id in empty {
            if let Some(table) = tables.remove(&id) {
                mos.destroy_or_leak(table.header.entries)?;
                mos.destroy_or_leak(table.object)?;
                mos.remove(DIRECTORY, &brt::vdev_key(id))?;
                count_users(mos, features, -1)?;
            }
        }
        Ok(())
    }
}

/// Bytes of a vdev that are in metaslabs: OpenZFS rejects counters beyond them.
fn metaslab_space(vdevs: &VdevTree, vdev: VdevId) -> u64 {
    let Some(top) = vdevs.top_level(vdev) else { return 0 };
    let shift = top.own_config().top.metaslab_shift.and_then(|shift| u32::try_from(shift).ok());
    let size = shift.and_then(|shift| 1_u64.checked_shl(shift)).unwrap_or(1).max(1);
    top.asize().unwrap_or(0) / size * size
}

/// Counts vdevs with a table. The form of its entries has a feature of its own.
fn count_users(mos: &MosTx<'_>, features: &mut Features, users: i64) -> Result<(), LiveError> {
    let is_first = users > 0 && !features.is_active(Feature::BlockCloning);
    if features.is_active(Feature::BlockCloningEndian)
        || (is_first && features.is_enabled(Feature::BlockCloningEndian))
    {
        features.add(mos, Feature::BlockCloningEndian, users)?;
    }
    features.add(mos, Feature::BlockCloning, users)
}

impl CloneTable {
    const fn new(
        (vdev, object): (VdevId, ObjectId),
        header: BrtHeader,
        counters: Vec<u16>,
    ) -> Self {
        Self {
            vdev,
            object,
            header,
            counters,
            entries: BTreeMap::new(),
            unknown: BTreeSet::new(),
            ranges: BTreeSet::new(),
            is_changed: false,
        }
    }

    /// A table whose counters differ from those on disk.
    fn with_new_counters(place: (VdevId, ObjectId), header: BrtHeader, counters: Vec<u16>) -> Self {
        let ranges = (0..counters.len() as u64).collect();
        Self { ranges, is_changed: true, ..Self::new(place, header, counters) }
    }

    /// Creates the table of a vdev.
    fn create(
        mos: &MosTx<'_>,
        features: &mut Features,
        vdevs: &VdevTree,
        vdev: VdevId,
    ) -> Result<Self, LiveError> {
        let flags = ZapFlags::WORDS;
        let new = NewZap::new(mos.random()).fat(flags, ENTRY_BLOCK);
        let entries = mos.create_zap_with(ObjectType::ZAP_METADATA, ObjectType::NONE, &[], &new)?;
        let header = BrtHeader {
            entries,
            counters: metaslab_space(vdevs, vdev).div_ceil(RANGE),
            counter_order: ByteOrder::NATIVE,
            total_count: 0,
            range_size: RANGE,
            used_space: 0,
            saved_space: 0,
        };
        let object = mos.create_record(ObjectType::UINT64_METADATA, COUNTER_BLOCK, &header)?;
        mos.insert(DIRECTORY, &brt::vdev_key(vdev), object.get())?;
        count_users(mos, features, 1)?;
        let counters = vec![0; header.counters.min(MAX_COUNTERS) as usize];
        let ranges = (0..counters.len() as u64).collect();
        Ok(Self { ranges, ..Self::new((vdev, object), header, counters) })
    }

    fn counter(&self, offset: u64) -> u16 {
        let range = usize::try_from(self.header.range_of(offset)).unwrap_or(usize::MAX);
        self.counters.get(range).copied().unwrap_or(0)
    }

    /// The additional references of a block.
    fn count(&mut self, mos: &MosTx<'_>, offset: u64) -> Result<u64, LiveError> {
        if let Some((count, _)) = self.entries.get(&offset) {
            return Ok(*count);
        }
        if self.counter(offset) == 0 {
            return Ok(0);
        }
        let zap = self.header.entries;
        if self.unknown.contains(&offset) {
            let problem = FormatError::invalid("block reference table", "it could not be changed");
            return Err(LiveError::corrupt(zap)(problem));
        }
        let count = match mos.lookup(zap, [offset].as_slice())? {
            None => 0,
            Some(value) => match value.as_bytes() {
                Some(bytes) => brt::classic_count(bytes, self.header.counter_order)
                    .map_err(LiveError::corrupt(zap))?,
                None => value.as_u64().unwrap_or(0),
            },
        };
        self.entries.insert(offset, (count, false));
        Ok(count)
    }

    fn add(&mut self, mos: &MosTx<'_>, offset: u64, dsize: u64) -> Result<(), LiveError> {
        let count = match self.stored_or_changed(mos, offset) {
            Err(error) if error.is_damage() => {
                tracing::warn!(%error, offset, "a block that is shared will never be freed");
                return self.pin(offset);
            }
            count => count?,
        };
        if count == 0 {
            self.change_counter(offset, 1)?;
            self.header.total_count = self.header.total_count.saturating_add(1);
            self.header.used_space = self.header.used_space.saturating_add(dsize);
        }
        self.header.saved_space = self.header.saved_space.saturating_add(dsize);
        self.entries.insert(offset, (count.saturating_add(1), true));
        self.is_changed = true;
        Ok(())
    }

    /// The references of a block to which one is added: the table, damaged in part, must have a
    /// place for them even if they are the first.
    fn stored_or_changed(&mut self, mos: &MosTx<'_>, offset: u64) -> Result<u64, LiveError> {
        if self.counter(offset) == 0 && !self.entries.contains_key(&offset) {
            mos.lookup(self.header.entries, [offset].as_slice())?;
        }
        self.count(mos, offset)
    }

    /// Makes lookups of a block fail as damaged when it is freed, so that it is leaked.
    fn pin(&mut self, offset: u64) -> Result<(), LiveError> {
        if self.counter(offset) < MAX_ENTRIES {
            self.change_counter(offset, 1)?;
        }
        self.header.total_count = self.header.total_count.saturating_add(1);
        self.is_changed = true;
        Ok(())
    }

    fn release(
        &mut self,
        mos: &MosTx<'_>,
        offset: u64,
        dsize: impl FnOnce() -> u64,
    ) -> Result<Release, LiveError> {
        let Some(left) = self.count(mos, offset)?.checked_sub(1) else { return Ok(Release::Free) };
        let dsize = dsize();
        if left == 0 {
            self.change_counter(offset, -1)?;
            self.header.total_count = self.header.total_count.saturating_sub(1);
            self.header.used_space = self.header.used_space.saturating_sub(dsize);
        }
        self.header.saved_space = self.header.saved_space.saturating_sub(dsize);
        self.entries.insert(offset, (left, true));
        self.is_changed = true;
        Ok(Release::Kept)
    }

    fn change_counter(&mut self, offset: u64, by: i16) -> Result<(), LiveError> {
        let range = self.header.range_of(offset);
        let invalid = |problem| {
            LiveError::corrupt(self.object)(FormatError::invalid("block reference table", problem))
        };
        if range >= MAX_COUNTERS {
            return Err(invalid("a block lies beyond all ranges"));
        }
        // The vdev may have grown.
        let index = range as usize;
        if index >= self.counters.len() {
            self.ranges.extend(self.counters.len() as u64..=range);
            self.counters.resize(index + 1, 0);
            self.header.counters = range + 1;
        }
        let problem = "a counter does not agree with the entries";
        let counter = self.counters.get(index);
        let counter = counter.and_then(|counter| counter.checked_add_signed(by));
        let counter = counter.ok_or_else(|| invalid(problem))?;
        if let Some(place) = self.counters.get_mut(index) {
            *place = counter;
        }
        self.ranges.insert(range);
        Ok(())
    }

    fn write(&mut self, mos: &MosTx<'_>, form: EntryForm) -> Result<(), LiveError> {
        let entries = std::mem::take(&mut self.entries);
        if !std::mem::take(&mut self.is_changed) {
            return Ok(());
        }
        for (offset, (count, _)) in entries.into_iter().filter(|(_, (_, changed))| *changed) {
            self.write_entry(mos, form, (offset, count))?;
        }
        // Remaining entries are counted again, which is written here.
        self.is_changed = false;
        let ranges = std::mem::take(&mut self.ranges);
        let written = self.write_counters(mos, &ranges);
        let warn =
            |error: &LiveError| tracing::warn!(%error, "counters of clones are written anew");
        if written.unless_damaged(warn)?.is_none() {
            self.move_counters(mos)?;
        }
        mos.set_record(self.object, &self.header)
    }

    /// Writes the additional references of a block.
    fn write_entry(
        &mut self,
        mos: &MosTx<'_>,
        form: EntryForm,
        (offset, count): (u64, u64),
    ) -> Result<(), LiveError> {
        let (zap, key) = (self.header.entries, [offset]);
        let written = if count == 0 {
            mos.remove(zap, key.as_slice()).map(drop)
        } else {
            mos.set(zap, key.as_slice(), form.value(count))
        };
        match written {
            Err(error) if error.leaves_no_room() => {
                tracing::warn!(%error, offset, "a block that was shared will never be freed");
                // An entry too much leaks the block; it is none that the counter has. One that is
                // missing has to be where nobody can tell that it is missing: the block is leaked
                // then, too.
                if count == 0 {
                    return self.pin(offset);
                }
                if mos.spoil(zap, key.as_slice())? == Spoilt::OnDisk {
                    self.unknown.insert(offset);
                }
                Ok(())
            }
            written => written,
        }
    }

    /// Writes the blocks of these ranges' counters as a whole: their old contents on disk may be
    /// damaged.
    fn write_counters(&self, mos: &MosTx<'_>, ranges: &BTreeSet<u64>) -> Result<(), LiveError> {
        let object = mos.object(self.object)?;
        let size = u64::from(object.data_block_size()?).max(2);
        let blocks: BTreeSet<u64> = ranges.iter().map(|range| range * 2 / size).collect();
        for block in blocks {
            let first = (block * size / 2) as usize;
            let counters = self.counters.iter().skip(first).take(size as usize / 2);
            let mut bytes: Vec<u8> = counters.flat_map(|counter| counter.to_ne_bytes()).collect();
            bytes.resize(size as usize, 0);
            object.write(mos.tx(), block * size, &bytes)?;
        }
        Ok(())
    }

    /// Moves the counters to another object, as damage prevents changes of the old one.
    fn move_counters(&mut self, mos: &MosTx<'_>) -> Result<(), LiveError> {
        let object = mos.create_record(ObjectType::UINT64_METADATA, COUNTER_BLOCK, &self.header)?;
        mos.set(DIRECTORY, &brt::vdev_key(self.vdev), object.get())?;
        mos.destroy_or_leak(self.object)?;
        self.object = object;
        self.write_counters(mos, &(0..self.counters.len() as u64).collect())
    }
}
