//! Datasets being destroyed in the background (spec 04, sections 4.5 and 9.5).

use crate::live::LiveError;
use crate::live::amounts::{Deflation, SpaceDelta, apply};
use crate::live::error::UnlessDamaged;
use crate::mos::features::Features;
use crate::mos::live::MosTx;
use crate::mos::record::record_of;
use crate::mos::{MosSource, OBJECT_DIRECTORY as DIRECTORY};
use rzfs_dmu::live::LiveObject;
use rzfs_dmu::{BlockPipeline, DmuError, SourceObject, Traversal, Visit, Visitor};
use rzfs_format::bpobj::{BptreeEntry, BptreeHeader};
use rzfs_format::features::Feature;
use rzfs_format::object_type::ObjectType;
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockPointer, ByteOrder, Level, ObjectId, ObjsetId, Txg};
use std::ops::ControlFlow;

const NAME: &str = "bptree_obj";
const BLOCK: u32 = 128 << 10;
const ENTRY: u64 = BptreeEntry::SIZE as u64;

/// The objset number in bookmarks of datasets being destroyed.
const DESTROYED: ObjsetId = ObjsetId(u64::MAX);

/// Frees a block.
pub(crate) type Free<'a> = &'a dyn Fn(&BlockPointer) -> Result<(), LiveError>;

/// The list of a pool, which exists while it is not empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DestroyedList(ObjectId);

impl DestroyedList {
    /// The list of a pool on disk.
    pub(crate) const fn open(object: ObjectId) -> Self {
        Self(object)
    }

    /// Adds the blocks below `root` that were born after `birth` to the list, which is created if
    /// needed.
    pub(crate) fn add(
        list: &mut Option<Self>,
        mos: &MosTx<'_>,
        features: &mut Features,
        (root, birth): (BlockPointer, Txg),
        sums: SpaceDelta,
    ) -> Result<(), LiveError> {
        let object = match list {
            Some(Self(object)) => *object,
            None => {
                let empty =
                    BptreeHeader { begin: 0, end: 0, bytes: 0, compressed: 0, uncompressed: 0 };
                let object = mos.create_record(ObjectType::UINT64_METADATA, BLOCK, &empty)?;
                mos.insert(DIRECTORY, NAME, object.get())?;
                features.add(mos, Feature::AsyncDestroy, 1)?;
                object
            }
        };
        *list = Some(Self(object));
        let place = mos.object(object)?;
        let mut header = header_of(&place)?;
        let entry = BptreeEntry { root, birth, resume: Bookmark::default() };
        write_entry(mos, &place, header.end, &entry)?;
        header.end = header.end.saturating_add(1);
        charge(&mut header, sums);
        mos.set_record(object, &header)
    }

    /// Frees `limit` blocks, and indirect blocks with nothing left below them; returns their sums.
    /// The list is removed when it is empty or unreadable.
    pub(crate) fn drain_some(
        list: &mut Option<Self>,
        mos: &MosTx<'_>,
        features: &mut Features,
        limit: usize,
        freeing: (Deflation<'_>, Free<'_>),
    ) -> Result<SpaceDelta, LiveError> {
        let Some(Self(id)) = *list else { return Ok(SpaceDelta::default()) };
        let lost = |error: &LiveError| tracing::warn!(%error, "destroyed datasets are lost");
        let worked_off = Self::work_off_some(id, mos, limit, freeing).unless_damaged(lost)?;
        let (freed, progress) = worked_off.unwrap_or((SpaceDelta::default(), Progress::Done));
        if progress == Progress::Done {
            mos.destroy_or_leak(id)?;
            mos.remove(DIRECTORY, NAME)?;
            features.add(mos, Feature::AsyncDestroy, -1)?;
            *list = None;
        }
        Ok(freed)
    }

    fn work_off_some(
        id: ObjectId,
        mos: &MosTx<'_>,
        limit: usize,
        (deflation, free): (Deflation<'_>, Free<'_>),
    ) -> Result<(SpaceDelta, Progress), LiveError> {
        let lost = |error: &LiveError| tracing::warn!(%error, "a destroyed dataset is lost");
        let object = mos.object(id)?;
        let mut header = header_of(&object)?;
        let mut freed = SpaceDelta::default();
        let mut left = limit;
        while header.begin < header.end && left > 0 {
            let entry = read_entry(&object, header.begin).unless_damaged(lost)?;
            let Some(mut entry) = entry.filter(|entry| !entry.root.is_hole()) else {
                let next = behind_hole(&object, &header).unless_damaged(lost)?;
                header.begin = next.unwrap_or(header.begin + 1);
                left -= 1;
                continue;
            };
            let mut part = Part { free, deflation, left, sums: SpaceDelta::default(), error: None };
            let next = part.run(mos.objset().pipeline(), &entry);
            if let Some(error) = part.error {
                return Err(error);
            }
            // Every entry counts as one block at least.
            left = part.left.min(left - 1);
            charge(&mut header, -part.sums);
            freed += part.sums;
            match next {
                Some(next) => {
                    entry.resume = next;
                    write_entry(mos, &object, header.begin, &entry)?;
                }
                None => header.begin += 1,
            }
        }
        mos.set_record(id, &header)?;
        let is_done = header.begin == header.end;
        Ok((freed, if is_done { Progress::Done } else { Progress::More }))
    }
}

/// Whether the list is empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    Done,
    More,
}

/// Passes all blocks below `root` that were born after `birth` to `free` at once; returns their
/// sums.
pub(crate) fn free_all(
    pipeline: &BlockPipeline,
    (root, birth): (BlockPointer, Txg),
    (deflation, free): (Deflation<'_>, Free<'_>),
) -> Result<SpaceDelta, LiveError> {
    let entry = BptreeEntry { root, birth, resume: Bookmark::default() };
    let left = usize::MAX;
    let mut part = Part { free, deflation, left, sums: SpaceDelta::default(), error: None };
    part.run(pipeline, &entry);
    part.error.map_or(Ok(part.sums), Err)
}

/// A portion of a dataset's blocks, freed in one txg.
struct Part<'a> {
    free: Free<'a>,
    deflation: Deflation<'a>,
    left: usize,
    sums: SpaceDelta,
    error: Option<LiveError>,
}

impl Part<'_> {
    /// Frees the remainder of an entry within the limit; returns where to continue.
    fn run(&mut self, pipeline: &BlockPipeline, entry: &BptreeEntry) -> Option<Bookmark> {
        Traversal::children_first(pipeline, DESTROYED)
            .born_after(entry.birth)
            .resumed_at(entry.next())
            .run(&entry.root, self)
    }
}

impl Visitor for Part<'_> {
    fn block(&mut self, &Visit { bookmark, pointer, .. }: &Visit<'_>) -> ControlFlow<()> {
        // OpenZFS does not resume at indirect blocks.
        if self.left == 0 && bookmark.level == Level::DATA {
            return ControlFlow::Break(());
        }
        self.left = self.left.saturating_sub(1);
        if !pointer.is_embedded()
            && let Err(error) = (self.free)(pointer)
        {
            self.error = Some(error);
            return ControlFlow::Break(());
        }
        self.sums += self.deflation.of(pointer);
        ControlFlow::Continue(())
    }

    fn damage(&mut self, error: DmuError) -> ControlFlow<()> {
        // Indirect blocks above something that cannot be read now must stay.
        if !error.is_damage() {
            self.error = Some(error.into());
            return ControlFlow::Break(());
        }
        tracing::warn!(%error, "space of a destroyed dataset is lost");
        ControlFlow::Continue(())
    }
}

fn header_of(list: &LiveObject) -> Result<BptreeHeader, LiveError> {
    let header: BptreeHeader = record_of(list)?;
    header.check_extent(list.extent()?).map_err(LiveError::corrupt(list.id()))?;
    Ok(header)
}

/// The first valid entry after the hole at the start of the list.
fn behind_hole(list: &LiveObject, header: &BptreeHeader) -> Result<u64, LiveError> {
    let next = header.begin.saturating_add(1);
    let data = list.next_data(next.saturating_mul(ENTRY))?.map(|data| data / ENTRY);
    Ok(data.unwrap_or(header.end).clamp(next, header.end))
}

fn charge(header: &mut BptreeHeader, sums: SpaceDelta) {
    apply(&mut header.bytes, sums.used);
    apply(&mut header.compressed, sums.compressed);
    apply(&mut header.uncompressed, sums.uncompressed);
}

fn read_entry(object: &LiveObject, index: u64) -> Result<BptreeEntry, LiveError> {
    let mut bytes = [0; BptreeEntry::SIZE];
    object.read_at(index.saturating_mul(ENTRY), &mut bytes)?;
    BptreeEntry::decode(&bytes, ByteOrder::NATIVE).map_err(LiveError::corrupt(object.id()))
}

fn write_entry(
    mos: &MosTx<'_>,
    object: &LiveObject,
    index: u64,
    entry: &BptreeEntry,
) -> Result<(), LiveError> {
    let bytes = entry.encode(ByteOrder::NATIVE);
    Ok(object.write(mos.tx(), index.saturating_mul(ENTRY), &bytes)?)
}
