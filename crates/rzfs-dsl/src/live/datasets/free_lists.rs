//! Freed space: blocks freed in a txg, deferred frees, and blocks of destroyed datasets (spec 06,
//! sections 7.3, 19.3 and 22).

use super::dir::{Directories, SpaceClass};
use super::livelist;
use crate::live::LiveError;
use crate::live::amounts::{Deflation, SpaceDelta};
use crate::live::error::UnlessDamaged;
use crate::live::space::bptree::DestroyedList;
use crate::live::space::freer::{BlockFreer, Leaks};
use crate::mos::bpobj::{self, Progress};
use crate::mos::features::Features;
use crate::mos::live::MosTx;
use crate::mos::{MosSource, OBJECT_DIRECTORY as DIRECTORY};
use rzfs_format::bpobj::ListMark;
use rzfs_format::features::Feature;
use rzfs_format::{BlockPointer, ObjectId};

/// The name of the list of blocks freed with the next txg.
const DEFERRED: &str = "sync_bplist";

/// Moves to the leak directory all space that was to be freed and cannot be found because of
/// damage: nothing remains to be freed.
fn leak_rest(mos: &MosTx<'_>, dirs: &mut Directories, free_dir: ObjectId) -> Result<(), LiveError> {
    let from = dirs.get(mos, free_dir)?;
    let signed = u64::cast_signed;
    let lost = SpaceDelta {
        used: signed(from.used),
        compressed: signed(from.compressed),
        uncompressed: signed(from.uncompressed),
    };
    if lost.is_zero() {
        return Ok(());
    }
    tracing::warn!(bytes = lost.used, "space of destroyed datasets is leaked");
    dirs.charge(mos, free_dir, SpaceClass::Head, -lost)?;
    charge_lost(mos, dirs, free_dir, lost)
}

/// Charges the leak directory, which is created beside the free directory if needed.
fn charge_lost(
    mos: &MosTx<'_>,
    dirs: &mut Directories,
    free_dir: ObjectId,
    lost: SpaceDelta,
) -> Result<(), LiveError> {
    const NAME: &str = "$LEAK";
    let beside = dirs.get(mos, free_dir)?;
    let (now, Some(root)) = (beside.creation_time, beside.parent) else { return Ok(()) };
    let Some(names) = dirs.get(mos, root)?.children else { return Ok(()) };
    let dir = match mos.object_of(names, NAME)? {
        Some(dir) => dir,
        None => dirs.create(mos, Some((root, NAME)), now)?,
    };
    dirs.charge(mos, dir, SpaceClass::Head, lost)
}

fn not_counted(error: &LiveError) {
    tracing::warn!(%error, "what is leaked is not counted");
}

/// Blocks to be freed, and the lists in the MOS that hold more of them.
#[derive(Debug)]
pub(crate) struct FreeLists {
    /// Freed in this txg.
    pub(crate) now: Vec<BlockPointer>,
    /// Deferred to the next txg that writes anything.
    deferred: ObjectId,
    /// Of destroyed snapshots.
    background: Option<ObjectId>,
    /// The directory charged for that space.
    free_dir: Option<ObjectId>,
    has_background: bool,
    has_livelists: bool,
    /// Datasets being destroyed.
    pub(crate) destroyed: Option<DestroyedList>,
}

impl FreeLists {
    pub(crate) fn new(
        deferred: ObjectId,
        background: Option<ObjectId>,
        free_dir: Option<ObjectId>,
    ) -> Self {
        let has_background = background.is_some();
        Self {
            now: Vec::new(),
            deferred,
            background,
            free_dir,
            has_background,
            has_livelists: false,
            destroyed: None,
        }
    }

    /// Frees the blocks that died in this pass, or defers them: without log space maps, frees from
    /// pass `put_off_from` on are deferred to the next txg.
    pub(crate) fn free_dead(
        &mut self,
        features: &Features,
        put_off_from: u32,
        freer: &BlockFreer<'_>,
    ) -> Result<(), LiveError> {
        let (mos, deflation) = (&freer.mos, freer.deflation);
        let dead = std::mem::take(&mut self.now);
        let at_once = mos.tx().pass() < put_off_from || features.is_active(Feature::LogSpaceMap);
        if at_once {
            dead.iter().try_for_each(|pointer| freer.free(pointer))?;
        } else if !dead.is_empty() {
            let queue_tree_blocks =
                bpobj::append(mos, self.deferred, (&dead, ListMark::Allocated), deflation);
            queue_tree_blocks.unless_damaged(|error| {
                tracing::warn!(%error, "blocks are leaked");
                dead.iter().for_each(|pointer| freer.leaks.add(deflation.of(pointer)));
            })?;
        }
        Ok(())
    }

    /// Frees what earlier txgs put off, up to `limit` blocks of it. What the list says that it had,
    /// and that was not found, is leaked.
    pub(crate) fn free_deferred(
        &mut self,
        features: &Features,
        limit: usize,
        freer: &BlockFreer<'_>,
    ) -> Result<(), LiveError> {
        let mos = &freer.mos;
        let take = |pointer: BlockPointer| freer.free(&pointer);
        let drained = bpobj::drain(mos, self.deferred, limit, freer.deflation, take);
        let warn = |error: &LiveError| tracing::warn!(%error, "blocks are not freed");
        let drained = drained.unless_damaged(warn)?;
        if let Some(Progress::Empty { left, .. }) = drained
            && left.used > 0
        {
            freer.leaks.add(left);
        }
        match drained {
            Some(Progress::Empty { has_lost: false, .. } | Progress::More) => Ok(()),
            _ => self.replace_deferred(mos, features),
        }
    }

    /// Replaces a damaged list, which may not be appended to.
    fn replace_deferred(&mut self, mos: &MosTx<'_>, features: &Features) -> Result<(), LiveError> {
        let new = bpobj::create(mos, features.list_version(), bpobj::LIST_BLOCK)?;
        mos.set(DIRECTORY, DEFERRED, new.get())?;
        bpobj::destroy(mos, self.deferred)?;
        self.deferred = new;
        Ok(())
    }

    /// Charges for what this txg could not free because of damage; old pools do not track it.
    pub(crate) fn settle_leaks(
        &self,
        mos: &MosTx<'_>,
        dirs: &mut Directories,
        leaks: &Leaks,
    ) -> Result<(), LiveError> {
        let lost = leaks.take();
        let Some(dir) = self.free_dir.filter(|_| !lost.is_zero()) else { return Ok(()) };
        charge_lost(mos, dirs, dir, lost).unless_damaged(not_counted).map(drop)
    }

    /// The list of blocks of destroyed snapshots, to append to; old pools have none.
    pub(crate) const fn background(&mut self) -> Option<ObjectId> {
        self.has_background = self.background.is_some();
        self.background
    }

    /// The directory charged for space that is still to be freed.
    pub(crate) const fn free_dir(&self) -> Option<ObjectId> {
        self.free_dir
    }

    /// Whether blocks remain to be freed in later txgs.
    pub(crate) const fn has_background(&self) -> bool {
        self.has_background || self.has_livelists || self.destroyed.is_some()
    }

    /// Frees some blocks of destroyed snapshots and datasets. What cannot be found because of
    /// damage is leaked when nothing else remains.
    pub(crate) fn free_background(
        &mut self,
        mos: &MosTx<'_>,
        dirs: &mut Directories,
        features: &mut Features,
        (deflation, limit): (Deflation<'_>, usize),
        free: &dyn Fn(&BlockPointer) -> Result<(), LiveError>,
    ) -> Result<(), LiveError> {
        if !self.has_background() {
            return Ok(());
        }
        let lost =
            |error: &LiveError| tracing::warn!(%error, "space of destroyed datasets is lost");
        let mut sums = SpaceDelta::default();
        let mut left = limit;
        if let Some(list) = self.background.filter(|_| self.has_background) {
            let drained = bpobj::drain(mos, list, left, deflation, |pointer| {
                left = left.saturating_sub(1);
                sums += deflation.of(&pointer);
                free(&pointer)
            });
            self.has_background = drained.unless_damaged(lost)? == Some(Progress::More);
        }
        if self.has_livelists {
            let deleted = livelist::delete_some(mos, features, (deflation, free));
            let deleted = deleted.unless_damaged(lost)?.flatten();
            self.has_livelists = deleted.is_some();
            sums += deleted.unwrap_or_default();
        }
        let list = &mut self.destroyed;
        sums += DestroyedList::drain_some(list, mos, features, left, (deflation, free))?;
        let Some(dir) = self.free_dir else { return Ok(()) };
        let mut charged = dirs.charge(mos, dir, SpaceClass::Head, -sums);
        if !self.has_background() {
            charged = charged.and_then(|()| leak_rest(mos, dirs, dir));
        }
        charged.unless_damaged(not_counted).map(drop)
    }

    /// The lists of a pool on disk.
    pub(crate) fn open<M: MosSource>(
        mos: &M,
        free_dir: Option<ObjectId>,
    ) -> Result<Self, M::Error> {
        let deferred = mos.required_object(DEFERRED)?;
        let destroyed = mos.object_of(DIRECTORY, "bptree_obj")?.map(DestroyedList::open);
        let background = mos.object_of(DIRECTORY, "free_bpobj")?;
        let has_livelists = mos.object_of(DIRECTORY, "com.delphix:deleted_clones")?.is_some();
        Ok(Self { destroyed, has_livelists, ..Self::new(deferred, background, free_dir) })
    }
}
