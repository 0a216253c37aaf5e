//! Lists of block pointers that grow and are worked off (spec 04, section 4).

use super::LiveError;
use super::mos::{BonusRecord, MosTx};
use super::space::{Deflation, SpaceDelta, apply};
use rzfs_dmu::live::{Extent, LiveObject};
use rzfs_format::bpobj::{self, BpobjHeader, BpobjVersion, ListMark, stored_form};
use rzfs_format::object_type::ObjectType;
use rzfs_format::{BlockId, BlockPointer, ByteOrder, FormatError, ObjectId};

/// Bytes of a list's blocks.
pub(crate) const LIST_BLOCK: u32 = 128 << 10;
/// Lists within lists; real ones are two or three deep.
const MAX_DEPTH: usize = 4096;
const ENTRY: u64 = BlockPointer::SIZE as u64;

impl BonusRecord for BpobjHeader {
    const BONUS_TYPE: ObjectType = ObjectType::BPOBJ_HDR;

    fn decode(bonus: &[u8], order: ByteOrder) -> Result<Self, FormatError> {
        Self::decode(bonus, order)
    }

    fn encode(&self) -> Vec<u8> {
        Self::encode(self, ByteOrder::NATIVE)
    }
}

/// Makes an empty list.
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

/// Appends pointers, in the form in which lists store them.
pub(crate) fn append(
    mos: &MosTx<'_>,
    id: ObjectId,
    (pointers, mark): (&[BlockPointer], ListMark),
    deflation: Deflation<'_>,
) -> Result<(), LiveError> {
    let mut header: BpobjHeader = mos.record(id)?;
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
    mos.object(id)?.write(mos.tx(), offset, &bytes)?;
    header.entries += pointers.len() as u64;
    mos.set_record(id, &header)
}

/// Takes up to `limit` entries off a list and the lists in it, last ones first; tells whether
/// nothing is left. Entries that are damaged are dropped.
pub(crate) fn drain(
    mos: &MosTx<'_>,
    id: ObjectId,
    limit: usize,
    deflation: Deflation<'_>,
    mut take: impl FnMut(BlockPointer) -> Result<(), LiveError>,
) -> Result<Progress, LiveError> {
    let mut left = limit;
    let mut has_lost = false;
    // The list that is worked on, below those that it is in.
    let mut path = vec![Open::new(mos, id)?];
    loop {
        let Some(open) = path.last_mut() else { return Ok(Progress::EMPTY) };
        if open.header.entries > 0 {
            if left == 0 {
                break;
            }
            let (count, sums) = open.take_entries(left, deflation, &mut take)?;
            left = left.saturating_sub(count);
            has_lost |= count == 0;
            path.iter_mut().for_each(|open| add(&mut open.header, -sums));
        } else if let Some(next) = open.last_subobject()? {
            if path.len() == MAX_DEPTH || path.iter().any(|open| open.object.id() == next) {
                let loops = FormatError::invalid("bpobj", "its sub-objects are a loop");
                return Err(LiveError::corrupt(next)(loops));
            }
            match Open::new(mos, next) {
                Err(error) if error.is_damage() => {
                    tracing::warn!(%error, "a list of blocks is lost");
                    has_lost = true;
                    if let Some(BpobjHeader { subobject_count: count, .. }) =
                        path.last_mut().map(|open| &mut open.header)
                    {
                        *count = count.saturating_sub(1);
                    }
                }
                list => path.push(list?),
            }
        } else {
            let Some(empty) = path.pop() else { return Ok(Progress::EMPTY) };
            let Some(parent) = path.last_mut() else {
                let rest = empty.reset(mos)?;
                return Ok(Progress::Empty { rest, has_lost });
            };
            if let Some(array) = empty.header.subobjects {
                mos.destroy(array)?;
            }
            mos.destroy(empty.object.id())?;
            parent.header.subobject_count = parent.header.subobject_count.saturating_sub(1);
        }
    }
    for open in path {
        let end = open.header.entries.saturating_mul(ENTRY);
        open.object.free(mos.tx(), end, Extent::ToEnd)?;
        mos.set_record(open.object.id(), &open.header)?;
    }
    Ok(Progress::More)
}

/// Frees a list and the lists in it; the blocks on them belong to others.
pub(crate) fn destroy(mos: &MosTx<'_>, id: ObjectId) -> Result<(), LiveError> {
    let mut path = vec![Open::new(mos, id)?];
    while let Some(open) = path.last_mut() {
        if let Some(next) = open.last_subobject()? {
            open.header.subobject_count -= 1;
            if path.len() == MAX_DEPTH || path.iter().any(|open| open.object.id() == next) {
                let loops = FormatError::invalid("bpobj", "its sub-objects are a loop");
                return Err(LiveError::corrupt(next)(loops));
            }
            path.push(Open::new(mos, next)?);
        } else if let Some(done) = path.pop() {
            if let Some(array) = done.header.subobjects {
                mos.destroy(array)?;
            }
            mos.destroy(done.object.id())?;
        }
    }
    Ok(())
}

/// Whether a list has been worked off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// It is empty.
    Empty {
        /// What it had by its sums and could not be found because of damage.
        rest: SpaceDelta,
        /// Whether this call has dropped entries because of damage.
        has_lost: bool,
    },
    /// There are entries left.
    More,
}

impl Progress {
    const EMPTY: Self = Self::Empty {
        rest: SpaceDelta { used: 0, compressed: 0, uncompressed: 0 },
        has_lost: false,
    };
}

/// A list that is being worked off.
struct Open {
    object: LiveObject,
    header: BpobjHeader,
}

impl Open {
    fn new(mos: &MosTx<'_>, id: ObjectId) -> Result<Self, LiveError> {
        let object = mos.object(id)?;
        let header: BpobjHeader = mos.record(id)?;
        header.check_extent(extent(&object)?).map_err(LiveError::corrupt(id))?;
        Ok(Self { object, header })
    }

    /// Takes the last entries, those of one block at most.
    fn take_entries(
        &mut self,
        limit: usize,
        deflation: Deflation<'_>,
        take: &mut impl FnMut(BlockPointer) -> Result<(), LiveError>,
    ) -> Result<(usize, SpaceDelta), LiveError> {
        let id = self.object.id();
        let per_block = (u64::from(self.object.data_block_size()?) / ENTRY).max(1);
        let number = (self.header.entries - 1) / per_block;
        let in_block = self.header.entries - number * per_block;
        let block = match self.object.read_block(BlockId(number)) {
            Err(error) if error.is_damage() => {
                tracing::warn!(%error, entries = in_block, "a part of a list of blocks is lost");
                self.header.entries = number * per_block;
                return Ok((0, SpaceDelta::default()));
            }
            block => block?,
        };
        let in_block = usize::try_from(in_block).unwrap_or(usize::MAX);
        let mut sums = SpaceDelta::default();
        let mut count = 0;
        let pointers = bpobj::entries(&block.data, block.order).take(in_block);
        let pointers: Vec<_> = pointers.collect();
        for pointer in pointers.into_iter().rev().take(limit) {
            let pointer = pointer.map_err(LiveError::corrupt(id))?;
            sums += deflation.of(&pointer);
            take(pointer)?;
            count += 1;
        }
        self.header.entries = self.header.entries.saturating_sub(count as u64);
        Ok((count, sums))
    }

    fn last_subobject(&self) -> Result<Option<ObjectId>, LiveError> {
        let Some(array) = self.header.subobjects.filter(|_| self.header.subobject_count > 0) else {
            return Ok(None);
        };
        let array = self.object.objset().object(array)?;
        let corrupt = LiveError::corrupt(self.object.id());
        self.header.check_subobject_extent(extent(&array)?).map_err(corrupt)?;
        let per_block = (u64::from(array.data_block_size()?) / 8).max(1);
        let index = self.header.subobject_count - 1;
        let block = array.read_block(BlockId(index / per_block))?;
        let (words, _) = block.data.as_chunks::<8>();
        let word = words.get((index % per_block) as usize).copied().unwrap_or_default();
        Ok(ObjectId(block.order.u64(word)).non_zero())
    }

    /// Writes that the list is empty; answers with what is left of its sums.
    fn reset(mut self, mos: &MosTx<'_>) -> Result<SpaceDelta, LiveError> {
        if let Some(array) = self.header.subobjects.take() {
            mos.destroy(array)?;
        }
        self.header.subobject_count = 0;
        if let Err(error) = self.object.free(mos.tx(), 0, Extent::ToEnd) {
            let error = LiveError::from(error);
            if !error.is_damage() {
                return Err(error);
            }
            tracing::warn!(%error, "blocks of a list stay where they are");
        }
        let rest = SpaceDelta {
            used: self.header.bytes.cast_signed(),
            compressed: self.header.compressed.cast_signed(),
            uncompressed: self.header.uncompressed.cast_signed(),
        };
        add(&mut self.header, -rest);
        mos.set_record(self.object.id(), &self.header)?;
        Ok(rest)
    }
}

fn extent(object: &LiveObject) -> Result<u64, LiveError> {
    let blocks = object.max_block_id()?.0.saturating_add(1);
    Ok(blocks.saturating_mul(u64::from(object.data_block_size()?)))
}

fn add(header: &mut BpobjHeader, delta: SpaceDelta) {
    apply(&mut header.bytes, delta.used);
    if header.version >= BpobjVersion::V1 {
        apply(&mut header.compressed, delta.compressed);
        apply(&mut header.uncompressed, delta.uncompressed);
    }
}
