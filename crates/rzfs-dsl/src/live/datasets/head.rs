//! A head dataset open for changes: its object set, and the space charged to it (spec 04, sections
//! 3 and 8).

use crate::accounting::UsageChanges;
use crate::dataset::property::{DatasetProperty, Inheritance};
use crate::dataset::{Dataset, DatasetError, ObjsetCounters};
use crate::live::LiveError;
use crate::live::amounts::{Deflation, SpaceDelta, apply};
use crate::live::datasets::bookmark_sums::BookmarkSums;
use crate::live::datasets::dir::{Directories, SpaceClass};
use crate::live::datasets::generation::{Generation, Generations, Superseded};
use crate::live::datasets::livelist::{self, LivelistChanges};
use crate::live::datasets::policy;
use crate::live::datasets::progress::Progress;
use crate::live::datasets::settings::{DatasetSettings, SettingsObserver};
use crate::live::datasets::values::in_force;
use crate::live::error::UnlessDamaged;
use crate::live::log::space::LogSpaceChange;
use crate::live::space::freer::Leaks;
use crate::mos::MosSource;
use crate::mos::deadlist;
use crate::mos::extensible::activate;
use crate::mos::features::Features;
use crate::mos::live::MosTx;
use crate::mos::resume::{self, ResumePoint};
use parking_lot::{Mutex, RwLock};
use rzfs_dmu::live::{LiveObjset, SpaceOwner, SyncTx, Transaction};
use rzfs_dmu::sync::BlockAccounting;
use rzfs_dmu::write::ObjsetPolicy;
use rzfs_dmu::{DmuError, Objset};
use rzfs_format::bpobj::ListMark;
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::compression::CompressionFunction;
use rzfs_format::dnode::{Dnode, DnodeFlags};
use rzfs_format::dsl::DslDataset;
use rzfs_format::features::Feature;
use rzfs_format::{BlockPointer, ObjectId, Txg};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Larger blocks need a feature.
const OLD_MAX_BLOCK: u64 = 128 << 10;

/// A head dataset, as seen by all writers of its files.
pub struct LiveDataset {
    id: ObjectId,
    name: Mutex<String>,
    generations: RwLock<Generations>,
    policy: Mutex<ObjsetPolicy>,
    settings: Mutex<Arc<DatasetSettings>>,
    observers: Mutex<Vec<Weak<dyn SettingsObserver>>>,
    counters: Arc<ObjsetCounters>,
    /// Whether blocks are missing from its livelist, as it could not be found.
    livelist_misses: AtomicBool,
    progress: Progress,
}

impl fmt::Debug for LiveDataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveDataset").field("id", &self.id).field("name", &self.name).finish()
    }
}

impl LiveDataset {
    pub(crate) fn new(
        (name, id): (&str, ObjectId),
        contents: Generation,
        policy: ObjsetPolicy,
    ) -> Self {
        Self {
            id,
            name: Mutex::new(name.to_owned()),
            generations: RwLock::new(Generations::new(contents)),
            policy: Mutex::new(policy),
            settings: Mutex::default(),
            observers: Mutex::default(),
            counters: Arc::default(),
            livelist_misses: AtomicBool::new(false),
            progress: Progress::default(),
        }
    }

    /// Opens a head on disk.
    pub(crate) fn open(
        dataset: &Dataset,
        objset: Objset,
        has_lz4: bool,
    ) -> Result<Self, DatasetError> {
        let policy = policy::of_dataset(dataset, has_lz4)?;
        let place = (dataset.name(), dataset.object());
        let open = Self::new(place, Generation::open(objset), policy);
        open.follow(dataset, has_lz4)?;
        Ok(open)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        self.name.lock().clone()
    }

    /// Its property values.
    #[must_use]
    pub fn settings(&self) -> Arc<DatasetSettings> {
        Arc::clone(&self.settings.lock())
    }

    /// Subscribes an observer to changes of its properties.
    pub fn observe(&self, observer: Weak<dyn SettingsObserver>) {
        self.observers.lock().push(observer);
    }

    /// Updates name and properties from the dataset on disk.
    pub(super) fn follow(&self, dataset: &Dataset, has_lz4: bool) -> Result<(), DatasetError> {
        let settings = Arc::new(DatasetSettings::of_dataset(dataset)?);
        self.set_policy(policy::of_dataset(dataset, has_lz4)?);
        dataset.name().clone_into(&mut self.name.lock());
        *self.settings.lock() = Arc::clone(&settings);
        let observers = {
            let mut observers = self.observers.lock();
            observers.retain(|observer| observer.strong_count() > 0);
            observers.clone()
        };
        for observer in observers.iter().filter_map(Weak::upgrade) {
            observer.settings_changed(&settings);
        }
        Ok(())
    }

    /// Its object in the MOS.
    #[must_use]
    pub const fn id(&self) -> ObjectId {
        self.id
    }

    /// Its current generation. Hold on to it across several operations.
    #[must_use]
    pub fn generation(&self) -> Arc<Generation> {
        Arc::clone(&self.generations.read().current)
    }

    /// Its counters.
    #[must_use]
    pub const fn counters(&self) -> &Arc<ObjsetCounters> {
        &self.counters
    }

    /// Its current object set.
    #[must_use]
    pub fn objset(&self) -> LiveObjset {
        self.generations.read().current.objset().clone()
    }

    /// Replaces its contents in the syncing txg, which has written the changes of the old ones;
    /// nothing of younger txgs reaches either. Only the new ones are in use from now on.
    pub(crate) fn replace(&self, tx: &SyncTx<'_>, contents: Objset) -> Superseded {
        self.generations.write().replace(tx, contents)
    }

    /// Blocks of its former contents that a txg frees when it is synced.
    pub(crate) fn take_orphans(&self, txg: Txg) -> Vec<BlockPointer> {
        self.generations.write().take_orphans(txg)
    }

    /// Records the progress of a resumable receive into it: everything before that point is in this
    /// txg or in older ones.
    pub(crate) fn note_progress(&self, txg: Txg, point: ResumePoint) {
        self.progress.note(txg, point);
    }

    /// Its progress with a txg, if that is not on disk yet.
    pub(crate) fn take_progress(&self, txg: Txg) -> Option<ResumePoint> {
        self.progress.take(txg)
    }

    /// Whether it has dirty data in a txg.
    pub(crate) fn is_dirty(&self, txg: Txg) -> bool {
        self.generations.read().current.objset().is_dirty(txg)
    }

    /// Whether its key was not loaded when it was opened.
    pub(crate) fn is_locked(&self) -> bool {
        self.generations.read().current.objset().is_locked()
    }

    /// Whether a txg on disk has left nothing to write or free.
    pub(super) fn is_idle(&self, synced: Txg) -> bool {
        self.generations.read().is_idle(synced)
    }

    /// Whether its intent logs have blocks that the txg being synced cannot free, or records.
    pub(super) fn has_busy_log(&self, txg: Txg) -> bool {
        let generations = self.generations.read();
        generations.has_orphans() || !generations.current.log().is_idle(txg)
    }

    /// Whether it is in use outside the pool.
    pub(super) fn is_used(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1 || self.generations.read().is_used()
    }

    /// Sets how its blocks are written from the next txg on.
    pub fn set_policy(&self, policy: ObjsetPolicy) {
        *self.policy.lock() = policy;
    }

    /// How its blocks are written.
    #[must_use]
    pub fn policy(&self) -> ObjsetPolicy {
        *self.policy.lock()
    }
}

/// What syncing a dataset changes besides the dataset itself.
pub(crate) struct SyncTargets<'a> {
    pub(crate) mos: MosTx<'a>,
    pub(crate) dirs: &'a mut Directories,
    pub(crate) features: &'a mut Features,
    pub(crate) frees: &'a mut Vec<BlockPointer>,
    /// Blocks that gained an owner.
    pub(crate) shared: &'a mut Vec<BlockPointer>,
    pub(crate) written: &'a mut BTreeMap<ObjectId, DslDataset>,
    /// `None` where the pool cannot account for leaks.
    pub(crate) leaks: Option<&'a Leaks>,
    pub(crate) deflation: Deflation<'a>,
    /// Number of blocks after which a livelist starts a new entry.
    pub(crate) livelist_max_entries: u64,
}

/// The txg of the empty origin snapshot.
const FIRST_SNAPSHOT: Txg = Txg(1);

/// The effect of one sync's blocks on a dataset's space.
struct HeadAccounting<'a> {
    deflation: Deflation<'a>,
    previous_txg: Txg,
    born: SpaceDelta,
    freed: SpaceDelta,
    /// Bytes of freed objects whose location is lost by damage.
    lost: u64,
    frees: Vec<BlockPointer>,
    shared: Vec<BlockPointer>,
    /// Blocks that the previous snapshot still has.
    dead: Vec<BlockPointer>,
    bookmarks: BookmarkSums,
    livelist: Option<LivelistChanges>,
    features: BTreeSet<Feature>,
    usage: UsageChanges,
}

impl BlockAccounting for HeadAccounting<'_> {
    fn born(&mut self, pointer: &BlockPointer) {
        if pointer.is_hole() {
            return;
        }
        self.born += self.deflation.of(pointer);
        if let Some(livelist) = &mut self.livelist {
            livelist.born(pointer);
        }
        self.features.extend(features_of(pointer));
    }

    fn shared(&mut self, pointer: &BlockPointer) {
        self.born(pointer);
        if !pointer.is_embedded() {
            self.shared.push(*pointer);
        }
    }

    fn killed(&mut self, pointer: &BlockPointer) {
        if pointer.is_hole() {
            return;
        }
        let delta = self.deflation.of(pointer);
        self.bookmarks.died(pointer, delta);
        if let Some(livelist) = &mut self.livelist {
            livelist.died(pointer);
        }
        if pointer.logical_birth() > self.previous_txg {
            self.freed += delta;
            if !pointer.is_embedded() {
                self.frees.push(*pointer);
            }
        } else {
            self.dead.push(*pointer);
        }
    }

    fn lost(&mut self, bytes: u64) {
        self.lost = self.lost.saturating_add(bytes);
    }
}

impl SpaceOwner for HeadAccounting<'_> {
    fn dnode_flags(&self) -> DnodeFlags {
        self.usage.dnode_flags()
    }

    fn dnode_changed(&mut self, _: ObjectId, old: Option<&Dnode>, new: Option<&Dnode>) {
        if new.is_some_and(|new| new.slots > 1) {
            self.features.insert(Feature::LargeDnode);
        }
        self.usage.note(old, new);
    }

    fn write_accounting(&mut self, objset: &LiveObjset, tx: &SyncTx<'_>) -> Result<(), DmuError> {
        self.usage.write(objset, tx)
    }
}

/// The features used by a dataset that has such a block.
fn features_of(pointer: &BlockPointer) -> impl Iterator<Item = Feature> {
    let large = (pointer.logical_size() > OLD_MAX_BLOCK).then_some(Feature::LargeBlocks);
    let checksum = match pointer.checksum_function() {
        _ if pointer.is_embedded() => None,
        Ok(ChecksumFunction::Sha512) => Some(Feature::Sha512),
        Ok(ChecksumFunction::Skein) => Some(Feature::Skein),
        Ok(ChecksumFunction::EdonR) => Some(Feature::EdonR),
        Ok(ChecksumFunction::Blake3) => Some(Feature::Blake3),
        _ => None,
    };
    let zstd = pointer.compression() == Ok(CompressionFunction::Zstd);
    [large, checksum, zstd.then_some(Feature::ZstdCompress)].into_iter().flatten()
}

impl LiveDataset {
    /// Writes the dirty data of the txg, and charges for it.
    pub(crate) fn sync(&self, around: &mut SyncTargets<'_>) -> Result<(), LiveError> {
        let (mos, contents) = (around.mos, self.generation());
        let mut phys: DslDataset = mos.record(self.id)?;
        let since = phys.previous_snapshot_txg;
        let bookmarks = BookmarkSums::open(&mos, around.features, self.id, since);
        let bookmarks = bookmarks.unless_damaged(
            |error| tracing::warn!(%error, dataset = %self.id, "bookmarks miss what is freed"),
        )?;
        let bookmarks = bookmarks.unwrap_or_default();
        let livelist = livelist::of_dir(&mos, around.features, phys.dir).unless_damaged(
            |error| tracing::warn!(%error, dataset = %self.id, "a livelist misses blocks"),
        )?;
        // What it has missed is never added.
        let has_missed = match livelist {
            None => {
                self.livelist_misses.store(true, Ordering::Relaxed);
                false
            }
            Some(_) => self.livelist_misses.swap(false, Ordering::Relaxed),
        };
        let origin = match livelist.flatten() {
            Some(list) if !has_missed => {
                let warn = |error: &LiveError| tracing::warn!(%error, "a livelist is given up");
                origin_txg(around, phys.dir).unless_damaged(warn)?.map(|origin| (list, origin))
            }
            _ => None,
        };
        if livelist.flatten().is_some() && origin.is_none() {
            livelist::remove(&mos, around.features, phys.dir)?;
        }
        let max_entries = around.livelist_max_entries;
        let livelist = origin.map(|(list, origin)| LivelistChanges::new(list, origin, max_entries));
        let mut space = HeadAccounting {
            deflation: around.deflation,
            previous_txg: phys.previous_snapshot_txg,
            born: SpaceDelta::default(),
            freed: SpaceDelta::default(),
            lost: 0,
            frees: Vec::new(),
            shared: Vec::new(),
            dead: Vec::new(),
            bookmarks,
            livelist,
            features: BTreeSet::new(),
            usage: UsageChanges::new(contents.scope()),
        };
        let Some(synced) = contents.objset().sync(mos.tx(), self.policy(), &mut space)? else {
            return Ok(());
        };
        let HeadAccounting { born, mut freed, lost, mut frees, mut shared, dead, .. } = space;
        let HeadAccounting { bookmarks, livelist, features, .. } = space;
        bookmarks.write(&mos)?;
        if let Some(livelist) = livelist {
            livelist.write(&mos, around.features, phys.dir, around.deflation)?;
        }
        phys.root = synced.root;
        // Space that snapshots may have is still charged to the dataset.
        if let Some(leaks) = around.leaks.filter(|_| phys.previous_snapshot_txg <= FIRST_SNAPSHOT) {
            let mut left = phys.unique;
            apply(&mut left, born.used.wrapping_sub(freed.used));
            let used = lost.min(left).cast_signed();
            let lost = SpaceDelta { used, ..SpaceDelta::default() };
            freed += lost;
            leaks.add(lost);
        }
        self.charge(around, &mut phys, born, freed)?;
        self.add_to_deadlist(around, &mut phys, &dead)?;
        around.frees.append(&mut frees);
        around.shared.append(&mut shared);
        let LogSpaceChange { mut frees, mut shared } = contents.log_space().take(mos.tx().txg());
        around.frees.append(&mut frees);
        around.shared.append(&mut shared);
        mos.set_record(self.id, &phys)?;
        if let Some(point) = self.take_progress(mos.tx().txg()) {
            resume::set_point(&mos, self.id, point).unless_damaged(
                |error| tracing::warn!(%error, dataset = %self.id, "a receive cannot be resumed"),
            )?;
        }
        self.activate(around, &features)?;
        around.written.insert(self.id, phys);
        Ok(())
    }

    /// Accounts for blocks born and blocks freed.
    fn charge(
        &self,
        around: &mut SyncTargets<'_>,
        phys: &mut DslDataset,
        born: SpaceDelta,
        freed: SpaceDelta,
    ) -> Result<(), LiveError> {
        let mut delta = born;
        delta += -freed;
        add_sums(phys, delta);
        let reserved = self.refreservation(around, phys.dir)?;
        let before = phys.unique.max(reserved);
        apply(&mut phys.unique, delta.used);
        let charged = phys.unique.max(reserved).wrapping_sub(before).cast_signed();
        let (mos, dir) = (around.mos, phys.dir);
        around.dirs.charge(&mos, dir, SpaceClass::Head, SpaceDelta { used: charged, ..delta })?;
        // Space already reserved is not charged again.
        let from_reservation = delta.used.wrapping_sub(charged);
        let classes = (SpaceClass::RefReservation, SpaceClass::Head);
        around.dirs.transfer(&mos, dir, classes, from_reservation)
    }

    fn refreservation(
        &self,
        around: &mut SyncTargets<'_>,
        dir: ObjectId,
    ) -> Result<u64, LiveError> {
        let name = DatasetProperty::RefReservation.name();
        let value = in_force(&around.mos, around.dirs, dir, name, Inheritance::Own);
        let warn = |error: &LiveError| tracing::warn!(%error, %dir, "a reservation is not counted");
        let value = value.unless_damaged(warn)?.flatten();
        Ok(value.and_then(|value| value.first_u64()).unwrap_or(0))
    }

    /// Puts blocks of the previous snapshot on the dead list. What cannot be put on a damaged one
    /// is leaked when its last snapshot is destroyed.
    fn add_to_deadlist(
        &self,
        around: &mut SyncTargets<'_>,
        phys: &mut DslDataset,
        dead: &[BlockPointer],
    ) -> Result<(), LiveError> {
        if dead.is_empty() {
            return Ok(());
        }
        let mos = around.mos;
        if let Some(list) = phys.deadlist {
            let dead = (dead, ListMark::Allocated);
            let buried = deadlist::insert(&mos, around.features, list, dead, around.deflation);
            buried.unless_damaged(
                |error| tracing::warn!(%error, dataset = %self.id, "blocks will never be freed"),
            )?;
        }
        // If the snapshots' share is unknown, the head is still charged for it.
        let origin_txg = origin_txg(around, phys.dir).unless_damaged(
            |error| tracing::warn!(%error, "what snapshots have is not counted any more"),
        )?;
        let mut previous = match phys.previous_snapshot {
            Some(id) => {
                let record = mos.record::<DslDataset>(id).unless_damaged(
                    |error| tracing::warn!(%error, "what a snapshot has alone is not counted any more"),
                )?;
                record.map(|record| (id, record))
            }
            None => None,
        };
        let mut to_snapshots = 0_i64;
        for pointer in dead {
            let delta = around.deflation.of(pointer);
            add_sums(phys, -delta);
            let birth = pointer.logical_birth();
            if let Some((_, previous)) = &mut previous
                && previous.next_snapshot == Some(self.id)
                && birth > previous.previous_snapshot_txg
            {
                apply(&mut previous.unique, delta.used);
            }
            if origin_txg.is_some_and(|origin| birth > origin) {
                to_snapshots = to_snapshots.wrapping_add(delta.used);
            }
        }
        if let Some((id, previous)) = previous {
            mos.set_record(id, &previous)?;
        }
        let classes = (SpaceClass::Head, SpaceClass::Snapshots);
        around.dirs.transfer(&mos, phys.dir, classes, to_snapshots)
    }

    /// Marks features as used by the dataset.
    fn activate(
        &self,
        around: &mut SyncTargets<'_>,
        features: &BTreeSet<Feature>,
    ) -> Result<(), LiveError> {
        for feature in features {
            let activated = activate(&around.mos, around.features, self.id, *feature);
            activated.unless_damaged(
                |error| tracing::warn!(%error, %feature, "the use of a feature is not noted"),
            )?;
        }
        Ok(())
    }
}

/// The part of a head's reservation beyond its unique bytes.
pub(crate) const fn refreservation_excess(reserved: u64, unique: u64) -> u64 {
    reserved.saturating_sub(unique)
}

/// Blocks up to this txg belong to the origin of a directory.
fn origin_txg(around: &mut SyncTargets<'_>, dir: ObjectId) -> Result<Txg, LiveError> {
    match around.dirs.get(&around.mos, dir)?.origin {
        Some(origin) => Ok(around.mos.record::<DslDataset>(origin)?.creation_txg),
        None => Ok(Txg(0)),
    }
}

fn add_sums(phys: &mut DslDataset, delta: SpaceDelta) {
    apply(&mut phys.referenced, delta.used);
    apply(&mut phys.compressed, delta.compressed);
    apply(&mut phys.uncompressed, delta.uncompressed);
}
