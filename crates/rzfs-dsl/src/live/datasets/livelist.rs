//! Livelists: the blocks unique to a clone, so that destroying it does not need a walk (spec 04,
//! section 10).
//!
//! ```text
//! directory of a clone: com.delphix:livelist ──> ZAP: txg -> list of blocks born and dead since
//! object directory: com.delphix:deleted_clones ──> livelists whose blocks are to be freed
//! ```
//! Births and deaths cancel out, wherever they are; the rest is what the clone has.

use crate::live::LiveError;
use crate::live::amounts::{Deflation, SpaceDelta};
use crate::live::error::UnlessDamaged;
use crate::live::space::bptree::Free;
use crate::mos::bpobj::{self, Progress};
use crate::mos::deadlist;
use crate::mos::extensible::{is_extended, zapify};
use crate::mos::features::Features;
use crate::mos::live::MosTx;
use crate::mos::{MosSource, OBJECT_DIRECTORY as DIRECTORY, number_key};
use rzfs_dmu::live::Transaction;
use rzfs_format::bpobj::{BpobjHeader, ListMark, list_mark};
use rzfs_format::features::Feature;
use rzfs_format::{BlockPointer, ObjectId, Txg, VdevId};
use std::collections::HashMap;

const FIELD: &str = "com.delphix:livelist";
/// Maximum entries of one part of a livelist. A new part is started after
/// `zfs_livelist_max_entries` and the additions of one txg; all are in memory at once.
const MOST_ENTRIES: usize = 1 << 22;
const DELETED: &str = "com.delphix:deleted_clones";

/// Changes of a clone's livelist by one sync.
#[derive(Debug)]
pub(crate) struct LivelistChanges {
    list: ObjectId,
    /// Blocks up to this txg belong to the origin.
    origin: Txg,
    max_entries: u64,
    born: Vec<BlockPointer>,
    died: Vec<BlockPointer>,
}

/// The livelist of a directory.
pub(crate) fn of_dir(
    mos: &MosTx<'_>,
    features: &Features,
    dir: ObjectId,
) -> Result<Option<ObjectId>, LiveError> {
    if !features.is_active(Feature::LiveList) || !is_extended(mos, dir)? {
        return Ok(None);
    }
    mos.object_of(dir, FIELD)
}

/// Creates an empty livelist for the directory of a new clone, if the pool supports them.
pub(crate) fn create(
    mos: &MosTx<'_>,
    features: &mut Features,
    dir: ObjectId,
) -> Result<(), LiveError> {
    if !features.is_enabled(Feature::LiveList) {
        return Ok(());
    }
    let list = deadlist::create(mos, features)?;
    zapify(mos, features, dir)?;
    mos.insert(dir, FIELD, list.get())?;
    features.add(mos, Feature::LiveList, 1)
}

/// Removes a directory's livelist: its blocks are then found by a walk. Damaged parts of the list
/// stay allocated.
pub(crate) fn remove(
    mos: &MosTx<'_>,
    features: &mut Features,
    dir: ObjectId,
) -> Result<(), LiveError> {
    let Some(list) = of_dir(mos, features, dir)? else { return Ok(()) };
    mos.remove(dir, FIELD)?;
    deadlist::destroy(mos, features, list)?;
    features.add(mos, Feature::LiveList, -1)
}

impl LivelistChanges {
    /// After `max_entries` blocks in an entry of the list a new one is started.
    pub(crate) const fn new(list: ObjectId, origin: Txg, max_entries: u64) -> Self {
        Self { list, origin, max_entries, born: Vec::new(), died: Vec::new() }
    }

    fn is_recorded(&self, pointer: &BlockPointer) -> bool {
        !pointer.is_embedded() && pointer.logical_birth() > self.origin
    }

    pub(crate) fn born(&mut self, pointer: &BlockPointer) {
        if self.is_recorded(pointer) {
            self.born.push(*pointer);
        }
    }

    pub(crate) fn died(&mut self, pointer: &BlockPointer) {
        if self.is_recorded(pointer) {
            self.died.push(*pointer);
        }
    }

    /// Appends births, and then deaths, to the livelist of directory `dir`. A damaged list is
    /// dropped: the blocks of the clone are then found by a walk.
    pub(crate) fn write(
        self,
        mos: &MosTx<'_>,
        features: &mut Features,
        dir: ObjectId,
        deflation: Deflation<'_>,
    ) -> Result<(), LiveError> {
        let warn =
            |error: &LiveError| tracing::warn!(%error, %dir, "the livelist of a clone is given up");
        match self.append(mos, features, deflation).unless_damaged(warn)? {
            Some(()) => Ok(()),
            None => remove(mos, features, dir),
        }
    }

    fn append(
        self,
        mos: &MosTx<'_>,
        features: &mut Features,
        deflation: Deflation<'_>,
    ) -> Result<(), LiveError> {
        let keys = deadlist::keys(mos, self.list)?;
        let is_full = match keys.last_key_value() {
            None => true,
            Some((_, newest)) if mos.tx().pass() == 1 => {
                let header: BpobjHeader = mos.record(*newest)?;
                header.entries.saturating_sub(header.freed) > self.max_entries
            }
            Some(_) => false,
        };
        if is_full {
            let key = Txg(mos.tx().txg().get().saturating_sub(1));
            deadlist::add_key(mos, features, self.list, key)?;
        }
        for (pointers, mark) in [(self.born, ListMark::Allocated), (self.died, ListMark::Freed)] {
            if !pointers.is_empty() {
                deadlist::insert(mos, features, self.list, (&pointers, mark), deflation)?;
            }
        }
        Ok(())
    }
}

/// Frees the blocks of one entry of one livelist of a destroyed clone; returns their sums, or
/// `None` if there is nothing to do.
pub(crate) fn delete_some(
    mos: &MosTx<'_>,
    features: &mut Features,
    (deflation, free): (Deflation<'_>, Free<'_>),
) -> Result<Option<SpaceDelta>, LiveError> {
    let lost = |error: &LiveError| tracing::warn!(%error, "blocks of a destroyed clone are lost");
    let Some(deleted) = mos.object_of(DIRECTORY, DELETED)? else { return Ok(None) };
    let lists = mos.entries(deleted)?;
    let list = lists.iter().find_map(|entry| entry.value.first_u64()).map(ObjectId);
    let Some(list) = list.and_then(ObjectId::non_zero) else {
        mos.remove(DIRECTORY, DELETED)?;
        mos.destroy_or_leak(deleted)?;
        return Ok(None);
    };
    let keys = deadlist::keys(mos, list).unless_damaged(lost)?.unwrap_or_default();
    if let Some((key, blocks)) = keys.into_iter().next() {
        // Its name first: if damage interrupts this, it is not taken for a list again.
        mos.remove(list, number_key(key.get()).as_str())?;
        let mut sums = SpaceDelta::default();
        if features.is_empty_list(blocks) {
            features.release_empty_list(mos)?;
        } else {
            let survivors = survivors(mos, blocks, deflation).unless_damaged(lost)?;
            for pointer in survivors.unwrap_or_default() {
                sums += deflation.of(&pointer);
                free(&pointer)?;
            }
            bpobj::destroy(mos, blocks)?;
        }
        return Ok(Some(sums));
    }
    mos.remove(deleted, number_key(list.get()).as_str())?;
    mos.destroy_or_leak(list)?;
    features.add(mos, Feature::LiveList, -1)?;
    if lists.len() == 1 {
        mos.remove(DIRECTORY, DELETED)?;
        mos.destroy_or_leak(deleted)?;
    }
    Ok(Some(SpaceDelta::default()))
}

/// The blocks of a list that were born and have not died since: none when a part of the list is
/// damaged, as deaths may be lost with it, or when it is too long to be valid. The rest of the list
/// is then useless.
fn survivors(
    mos: &MosTx<'_>,
    list: ObjectId,
    deflation: Deflation<'_>,
) -> Result<Vec<BlockPointer>, LiveError> {
    let mut died: HashMap<(VdevId, u64), u64> = HashMap::new();
    let mut alive = Vec::new();
    // From the last record to the first, so deaths come before their births.
    let progress = bpobj::drain(mos, list, MOST_ENTRIES, deflation, |pointer| {
        let Some(dva) = pointer.dvas().find(|dva| dva.is_valid()) else { return Ok(()) };
        let place = (dva.vdev(), dva.offset());
        match (list_mark(&pointer), died.get_mut(&place)) {
            (ListMark::Freed, _) => *died.entry(place).or_default() += 1,
            (ListMark::Allocated, Some(deaths)) if *deaths > 0 => *deaths -= 1,
            (ListMark::Allocated, _) => alive.push(pointer),
        }
        Ok(())
    })?;
    if !matches!(progress, Progress::Empty { has_lost: false, .. }) {
        tracing::warn!(%list, "the blocks of a destroyed clone are lost");
        alive.clear();
    }
    Ok(alive)
}
