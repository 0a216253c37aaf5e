//! Lists of block pointers that grow and are drained (spec 04, section 4). They are read by
//! [`PointerList`](super::pointer_list::PointerList).

use super::error::MosError;
use super::record::record_of;
use crate::live::LiveError;
use crate::live::amounts::{Deflation, SpaceDelta, apply};
use crate::live::error::UnlessDamaged;
use crate::mos::MosSource;
use crate::mos::live::MosTx;
use rzfs_dmu::SourceObject;
use rzfs_dmu::live::{Extent, LiveObject};
use rzfs_format::bpobj::{self, BpobjHeader, BpobjVersion, ListMark, stored_form};
use rzfs_format::object_type::ObjectType;
use rzfs_format::{BlockId, BlockPointer, ByteOrder, FormatError, ObjectId};

/// Block size of a list in bytes.
pub(crate) const LIST_BLOCK: u32 = 128 << 10;
/// Lists within lists; real ones are two or three deep.
const MAX_DEPTH: usize = 4096;
/// Sublists visited when a list is destroyed; the remaining ones are leaked.
const MOST_DESTROYED: usize = 1 << 20;
/// Maximum entries of a list: more than any pool has blocks, with offsets that fit a number.
const MOST_ENTRIES: u64 = 1 << 48;
const ENTRY: u64 = BlockPointer::SIZE as u64;
/// Size of an object number in an array of sublists, in bytes.
const NUMBER: u64 = 8;

fn header_of(list: &impl SourceObject) -> Result<BpobjHeader, MosError> {
    let header: BpobjHeader = record_of(list)?;
    let corrupt = MosError::corrupt(list.id());
    header.check_extent(list.extent()?).map_err(&corrupt)?;
    if header.entries.max(header.subobject_count) > MOST_ENTRIES {
        let problem = FormatError::invalid("bpobj", "it has more entries than there can be");
        return Err(corrupt(problem));
    }
    Ok(header)
}

/// Creates an empty list.
pub(crate) fn create(
    mos: &MosTx<'_>,
    version: BpobjVersion,
    block_size: u32,
) -> Result<ObjectId, LiveError> {
    let empty = BpobjHeader {
        version,
        entries: 0,
        bytes: 0,
        compressed: 0,
        uncompressed: 0,
        subobjects: None,
        subobject_count: 0,
        freed: 0,
    };
    mos.create_record(ObjectType::BPOBJ, block_size, &empty)
}

/// Checks that an object is a list that can hold the entries it claims.
pub(crate) fn check(mos: &MosTx<'_>, id: ObjectId) -> Result<(), LiveError> {
    Open::new(mos, id).map(drop)
}

/// Appends pointers, in stored form.
pub(crate) fn append(
    mos: &MosTx<'_>,
    id: ObjectId,
    (pointers, mark): (&[BlockPointer], ListMark),
    deflation: Deflation<'_>,
) -> Result<(), LiveError> {
    let object = mos.object(id)?;
    let mut header = header_of(&object)?;
    let mut bytes = Vec::with_capacity(pointers.len() * BlockPointer::SIZE);
    for pointer in pointers {
        let delta = deflation.of(pointer);
        match mark {
            ListMark::Allocated => add(&mut header, delta),
            ListMark::Freed => {
                header.freed = header.freed.saturating_add(1);
                add(&mut header, -delta);
            }
        }
        let stored = stored_form(pointer, mark);
        bytes.extend_from_slice(&stored.encode(ByteOrder::NATIVE));
    }
    let offset = header.entries.saturating_mul(ENTRY);
    object.write(mos.tx(), offset, &bytes)?;
    header.entries += pointers.len() as u64;
    mos.set_record(id, &header)
}

/// Moves all entries of a list to another one, `id`: its entries, and the lists in it, are taken over
/// where they are few, so that lists are not nested ever more deeply. Otherwise it becomes one of
/// the lists in the other one (spec 04, section 4.2).
pub(crate) fn enqueue(mos: &MosTx<'_>, id: ObjectId, list: ObjectId) -> Result<(), LiveError> {
    let Some(mut list) = descend(mos, &[], list)? else { return Ok(()) };
    if list.header.entries == 0 && list.header.subobject_count == 0 {
        return list.destroy(mos);
    }
    let mut into = Open::new(mos, id)?;
    add(&mut into.header, list.sums());
    // Damaged parts are found, and leaked, when it is drained.
    let stays = |error: &LiveError| tracing::warn!(%error, "a list of blocks is damaged");
    if let Some((lists, moved)) = list.few_subobjects(mos).unless_damaged(stays)?.flatten() {
        add(&mut list.header, -moved);
        into.append_subobjects(mos, &lists)?;
        list.header.subobjects.take().map_or(Ok(()), |array| mos.destroy_or_leak(array))?;
        list.header.subobject_count = 0;
        mos.set_record(list.object.id(), &list.header)?;
    }
    match list.few_entries().unless_damaged(stays)?.flatten() {
        Some(entries) => {
            into.append_entries(mos, &entries)?;
            list.destroy(mos)?;
        }
        None => into.append_subobjects(mos, &[list.object.id()])?,
    }
    mos.set_record(id, &into.header)
}

/// Removes up to `limit` entries from a list and its sublists, last ones first; reports whether the
/// list is empty. Damaged entries and sublists are dropped; both count as entries.
pub(crate) fn drain(
    mos: &MosTx<'_>,
    id: ObjectId,
    limit: usize,
    deflation: Deflation<'_>,
    mut take: impl FnMut(BlockPointer) -> Result<(), LiveError>,
) -> Result<Progress, LiveError> {
    let mut left = limit;
    let mut has_lost = false;
    // The current list, after the lists that contain it.
    let mut path = vec![Open::new(mos, id)?];
    loop {
        let Some(open) = path.last_mut() else { return Ok(Progress::EMPTY) };
        if left == 0 && !open.header.is_empty() {
            break;
        }
        if open.header.entries > 0 {
            let taken = open.take_entries(left, deflation, &mut take)?;
            left = left.saturating_sub(taken.count.max(1));
            has_lost |= taken.has_lost;
            path.iter_mut().for_each(|open| add(&mut open.header, -taken.sums));
            continue;
        }
        match open.take_subobject()? {
            Subobject::List(next) => {
                left = left.saturating_sub(1);
                match descend(mos, &path, next)? {
                    Some(list) => path.push(list),
                    None => has_lost = true,
                }
            }
            Subobject::Lost => {
                left = left.saturating_sub(1);
                has_lost = true;
            }
            Subobject::None => {
                let Some(empty) = path.pop() else { return Ok(Progress::EMPTY) };
                if path.is_empty() {
                    let left = empty.sums();
                    empty.reset(mos)?;
                    return Ok(Progress::Empty { has_lost, left });
                }
                empty.destroy(mos)?;
            }
        }
    }
    let mut has_more_below = false;
    for mut open in path.into_iter().rev() {
        // The current list is still the last one of its parent.
        open.header.subobject_count += u64::from(has_more_below);
        has_more_below = true;
        open.truncate(mos)?;
        mos.set_record(open.object.id(), &open.header)?;
    }
    Ok(Progress::More)
}

/// Frees a list and its sublists, as far as they can be read; their blocks belong to others.
pub(crate) fn destroy(mos: &MosTx<'_>, id: ObjectId) -> Result<(), LiveError> {
    let mut path: Vec<Open> = descend(mos, &[], id)?.into_iter().collect();
    for _ in 0..MOST_DESTROYED {
        let Some(open) = path.last_mut() else { return Ok(()) };
        match open.take_subobject()? {
            Subobject::List(next) => path.extend(descend(mos, &path, next)?),
            Subobject::Lost => {}
            Subobject::None => path.pop().map_or(Ok(()), |done| done.destroy(mos))?,
        }
    }
    tracing::warn!(list = %id, "lists of blocks are leaked: there are too many in one");
    Ok(())
}

/// The end of the last data before `end`, skipping holes, in bytes.
fn data_end(object: &LiveObject, end: u64) -> Result<u64, LiveError> {
    // From `high` to `end` is a hole.
    let (mut low, mut high) = (0, end);
    while low < high {
        let middle = low + (high - low) / 2;
        match object.next_data(middle)?.filter(|data| *data < high) {
            Some(data) => low = data.saturating_add(1),
            None => high = middle,
        }
    }
    Ok(high)
}

/// Opens a sublist; `None` if it is damaged.
fn descend(mos: &MosTx<'_>, path: &[Open], id: ObjectId) -> Result<Option<Open>, LiveError> {
    let is_loop = path.len() == MAX_DEPTH || path.iter().any(|open| open.object.id() == id);
    let list = if is_loop {
        let loops = FormatError::invalid("bpobj", "its sub-objects are a loop");
        Err(LiveError::corrupt(id)(loops))
    } else {
        Open::new(mos, id)
    };
    list.unless_damaged(|error| tracing::warn!(%error, "a list of blocks is lost"))
}

/// How many of `count` items of `size` bytes at the beginning of an object come before the first
/// hole. What damage hides counts as present.
fn before_hole(object: &LiveObject, (count, size): (u64, u64)) -> Result<u64, LiveError> {
    let unknown = |error: &LiveError| tracing::warn!(%error, "a list may be shorter");
    let end = data_end(object, count.saturating_mul(size)).unless_damaged(unknown)?;
    Ok(end.map_or(count, |end| end.div_ceil(size)))
}

/// Whether a list is empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// It is empty.
    Empty {
        /// Whether this call dropped entries because of damage.
        has_lost: bool,
        /// What the list says that it had beside all that was taken off it.
        left: SpaceDelta,
    },
    /// Entries remain.
    More,
}

impl Progress {
    const EMPTY: Self = Self::Empty {
        has_lost: false,
        left: SpaceDelta { used: 0, compressed: 0, uncompressed: 0 },
    };
}

/// What was removed from a list.
#[derive(Default)]
struct Taken {
    count: usize,
    sums: SpaceDelta,
    has_lost: bool,
}

/// The last element of a sublist array.
enum Subobject {
    List(ObjectId),
    /// An invalid one, because of damage.
    Lost,
    /// Nothing: the array is empty.
    None,
}

/// A list being drained.
struct Open {
    object: LiveObject,
    header: BpobjHeader,
}

impl Open {
    fn new(mos: &MosTx<'_>, id: ObjectId) -> Result<Self, LiveError> {
        let object = mos.object(id)?;
        let header = header_of(&object)?;
        Ok(Self { object, header })
    }

    /// Takes the last entries, at most those of one block. Holes are skipped, however long they
    /// are.
    fn take_entries(
        &mut self,
        limit: usize,
        deflation: Deflation<'_>,
        take: &mut impl FnMut(BlockPointer) -> Result<(), LiveError>,
    ) -> Result<Taken, LiveError> {
        let id = self.object.id();
        let per_block = (u64::from(self.object.data_block_size()?) / ENTRY).max(1);
        let number = (self.header.entries - 1) / per_block;
        let in_block = self.header.entries - number * per_block;
        let lost = |error: &LiveError| tracing::warn!(%error, "a part of a list of blocks is lost");
        let block = self.object.read_block(BlockId(number)).map_err(LiveError::from);
        let Some(block) = block.unless_damaged(lost)? else {
            self.header.entries = number * per_block;
            return Ok(Taken { has_lost: true, ..Taken::default() });
        };
        let in_block = usize::try_from(in_block).unwrap_or(usize::MAX);
        let mut taken = Taken::default();
        let pointers = bpobj::entries(&block.data, block.order).take(in_block);
        let pointers: Vec<_> = pointers.collect();
        for pointer in pointers.into_iter().rev().take(limit) {
            taken.count += 1;
            let pointer = pointer.map_err(LiveError::corrupt(id)).unless_damaged(lost)?;
            let Some(pointer) = pointer else {
                taken.has_lost = true;
                continue;
            };
            taken.sums += deflation.of(&pointer);
            take(pointer)?;
        }
        let left = self.header.entries.saturating_sub(taken.count as u64);
        self.header.entries = match taken.has_lost {
            true => before_hole(&self.object, (left, ENTRY))?,
            false => left,
        };
        Ok(taken)
    }

    /// Removes the last sublist from its array. Holes in that are skipped, however long they are.
    fn take_subobject(&mut self) -> Result<Subobject, LiveError> {
        let lost = |error: &LiveError| tracing::warn!(%error, "lists of blocks are lost");
        let Some(last) = self.header.subobject_count.checked_sub(1) else {
            return Ok(Subobject::None);
        };
        let Some((array, per_block)) = self.subobjects().unless_damaged(lost)?.flatten() else {
            self.header.subobject_count = 0;
            return Ok(Subobject::Lost);
        };
        let number = last / per_block;
        let block = array.read_block(BlockId(number)).map_err(LiveError::from);
        let Some(block) = block.unless_damaged(lost)? else {
            self.header.subobject_count = number * per_block;
            return Ok(Subobject::Lost);
        };
        let (words, _) = block.data.as_chunks::<8>();
        let word = words.get((last % per_block) as usize).copied().unwrap_or_default();
        let list = ObjectId(block.order.u64(word)).non_zero();
        self.header.subobject_count = match list {
            Some(_) => last,
            None => before_hole(&array, (last, NUMBER))?,
        };
        Ok(list.map_or(Subobject::Lost, Subobject::List))
    }

    /// The sublist array, and the number of elements in a block of it.
    fn subobjects(&self) -> Result<Option<(LiveObject, u64)>, LiveError> {
        let Some(array) = self.header.subobjects else { return Ok(None) };
        let array = self.object.objset().object(array)?;
        let corrupt = LiveError::corrupt(self.object.id());
        self.header.check_subobject_extent(array.extent()?).map_err(corrupt)?;
        let per_block = (u64::from(array.data_block_size()?) / NUMBER).max(1);
        Ok(Some((array, per_block)))
    }

    fn sums(&self) -> SpaceDelta {
        sums(&self.header)
    }

    /// Its sublists with their sums, if they fit in a block.
    fn few_subobjects(
        &self,
        mos: &MosTx<'_>,
    ) -> Result<Option<(Vec<ObjectId>, SpaceDelta)>, LiveError> {
        let mut moved = SpaceDelta::default();
        let Some((array, per_block)) = self.subobjects()? else {
            return Ok(Some((Vec::new(), moved)));
        };
        let count = self.header.subobject_count;
        if count > per_block {
            return Ok(None);
        }
        let block = array.read_block(BlockId(0))?;
        let (words, _) = block.data.as_chunks::<8>();
        let numbers = words.iter().map(|word| ObjectId(block.order.u64(*word)));
        let lists: Vec<_> = numbers.take(usize::try_from(count).unwrap_or(usize::MAX)).collect();
        for list in &lists {
            moved += sums(&mos.record(*list)?);
        }
        Ok(Some((lists, moved)))
    }

    /// Its own entries in stored form, if they fit in a block and it has no sublists.
    fn few_entries(&self) -> Result<Option<Vec<u8>>, LiveError> {
        let size = u64::from(self.object.data_block_size()?);
        let count = self.header.entries;
        if self.header.subobject_count > 0 || count > size / ENTRY {
            return Ok(None);
        }
        if count == 0 {
            return Ok(Some(Vec::new()));
        }
        let block = self.object.read_block(BlockId(0))?;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let mut bytes = Vec::with_capacity(count.saturating_mul(BlockPointer::SIZE));
        for pointer in bpobj::entries(&block.data, block.order).take(count) {
            let pointer = pointer.map_err(LiveError::corrupt(self.object.id()))?;
            bytes.extend_from_slice(&pointer.encode(ByteOrder::NATIVE));
        }
        Ok(Some(bytes))
    }

    fn append_entries(&mut self, mos: &MosTx<'_>, entries: &[u8]) -> Result<(), LiveError> {
        self.object.write(mos.tx(), self.header.entries.saturating_mul(ENTRY), entries)?;
        self.header.entries += entries.len() as u64 / ENTRY;
        Ok(())
    }

    /// Adds sublists whose sums it already includes.
    fn append_subobjects(&mut self, mos: &MosTx<'_>, lists: &[ObjectId]) -> Result<(), LiveError> {
        if lists.is_empty() {
            return Ok(());
        }
        let array = match self.header.subobjects {
            Some(array) => self.object.objset().object(array)?,
            None => mos.create(ObjectType::BPOBJ_SUBOBJ, LIST_BLOCK, ObjectType::NONE, &[])?,
        };
        self.header.subobjects = Some(array.id());
        let bytes: Vec<u8> = lists.iter().flat_map(|list| list.get().to_ne_bytes()).collect();
        array.write(mos.tx(), self.header.subobject_count.saturating_mul(NUMBER), &bytes)?;
        self.header.subobject_count += lists.len() as u64;
        Ok(())
    }

    /// Frees the blocks after its entries.
    fn truncate(&self, mos: &MosTx<'_>) -> Result<(), LiveError> {
        let end = self.header.entries.saturating_mul(ENTRY);
        let freed = self.object.free(mos.tx(), end, Extent::ToEnd).map_err(LiveError::from);
        let warn =
            |error: &LiveError| tracing::warn!(%error, "blocks of a list stay where they are");
        freed.unless_damaged(warn).map(drop)
    }

    /// Frees it and its array.
    fn destroy(self, mos: &MosTx<'_>) -> Result<(), LiveError> {
        self.header.subobjects.map_or(Ok(()), |array| mos.destroy_or_leak(array))?;
        mos.destroy_or_leak(self.object.id())
    }

    /// Writes the list as empty.
    fn reset(mut self, mos: &MosTx<'_>) -> Result<(), LiveError> {
        if let Some(array) = self.header.subobjects.take() {
            mos.destroy_or_leak(array)?;
        }
        self.header.subobject_count = 0;
        (self.header.bytes, self.header.compressed, self.header.uncompressed) = (0, 0, 0);
        self.truncate(mos)?;
        mos.set_record(self.object.id(), &self.header)
    }
}

/// The sums over all of its blocks, including those of sublists.
pub(super) fn sums(header: &BpobjHeader) -> SpaceDelta {
    SpaceDelta {
        used: header.bytes.cast_signed(),
        compressed: header.compressed.cast_signed(),
        uncompressed: header.uncompressed.cast_signed(),
    }
}

fn add(header: &mut BpobjHeader, delta: SpaceDelta) {
    apply(&mut header.bytes, delta.used);
    if header.version >= BpobjVersion::V1 {
        apply(&mut header.compressed, delta.compressed);
        apply(&mut header.uncompressed, delta.uncompressed);
    }
}
