//! Deduplication: blocks written once for many references, and the dedup tables of a pool (spec 02,
//! section 9).
//!
//! ```text
//! blocks are written ──> find_or_place: a reference more, or a new entry
//! blocks are freed ────> release: a reference less
//! end of a pass ───────> changed entries go to the ZAPs, or to the log of a flat table and from
//!                        there to the ZAPs; what has no reference then is freed
//! ```
//! Entries used by a txg are in memory until the end of the pass that changes them, those in logs
//! until they are in the ZAPs.

mod codec;
mod log;
mod prune;
mod store;
mod table;

pub(crate) use prune::{Single, for_singles};

use crate::PoolError;
use crate::live::LiveError;
use crate::live::environment::Environment;
use crate::live::error::UnlessDamaged;
use crate::live::space::bptree::Free;
use crate::mos::features::Features;
use crate::mos::live::{LiveMos, MosTx};
use crate::pool::Pool;
use parking_lot::Mutex;
use rzfs_dmu::write::{
    DedupCandidate, DedupIndex, DedupPlace, DedupPolicy, DedupWriter, DuplicateTest, WriteError,
};
use rzfs_format::block_pointer::Protection;
use rzfs_format::ddt::{self, DdtKey, DdtLayout};
use rzfs_format::features::Feature;
use rzfs_format::{BlockPointer, Dva, Txg};
use rzfs_metaslab::allocator::{Allocator, DedupRoom};
use rzfs_tunables::Tunables;
use rzfs_vdev::CurrentTree;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use table::Table;

/// The dedup tables of a pool.
pub(crate) struct DedupTables {
    mos: Arc<LiveMos>,
    vdevs: Arc<CurrentTree>,
    environment: Arc<dyn Environment>,
    /// By checksum function. Locked while a block is placed, so that one of two equal blocks finds
    /// the other.
    tables: Mutex<BTreeMap<u8, Table>>,
    /// Whether new tables are flat.
    has_flat: AtomicBool,
    /// Size in bytes at which the tables get no new entries; 0 for no limit, [`AUTOMATIC`] for the
    /// capacity of their vdevs.
    quota: AtomicU64,
    allocator: Arc<Allocator>,
    /// The limits of the tables' logs.
    limits: log::LogLimits,
}

/// A quota derived from the vdevs for dedup tables.
const AUTOMATIC: u64 = u64::MAX;

impl fmt::Debug for DedupTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DedupTables").field("tables", &self.tables).finish_non_exhaustive()
    }
}

impl DedupTables {
    /// The tables of a new pool: none.
    pub(crate) fn new(
        mos: &Arc<LiveMos>,
        vdevs: &Arc<CurrentTree>,
        environment: &Arc<dyn Environment>,
        allocator: &Arc<Allocator>,
        tunables: &Tunables,
    ) -> Self {
        Self {
            allocator: Arc::clone(allocator),
            mos: Arc::clone(mos),
            vdevs: Arc::clone(vdevs),
            environment: Arc::clone(environment),
            tables: Mutex::default(),
            has_flat: AtomicBool::new(false),
            quota: AtomicU64::new(AUTOMATIC),
            limits: log::LogLimits::from(tunables),
        }
    }

    /// Loads the state of a pool's tables, and their logs.
    pub(crate) fn load(&self, pool: &Pool) -> Result<(), PoolError> {
        let mut tables = self.tables.lock();
        for function in ddt::FUNCTIONS {
            if let Some(table) = store::load(pool, function, self.limits)? {
                tables.insert(function.number(), table);
            }
        }
        self.set_quota(pool.properties()?.dedup_table_quota.value);
        Ok(())
    }

    /// Applies the features of a pool.
    pub(crate) fn follow(&self, features: &Features) {
        self.has_flat.store(features.is_enabled(Feature::FastDedup), Ordering::Relaxed);
    }

    /// Sets the size in bytes at which the tables get no new entries, 0 for no limit; `None` is the
    /// capacity of their vdevs.
    pub(crate) fn set_quota(&self, bytes: Option<u64>) {
        self.quota.store(bytes.unwrap_or(AUTOMATIC), Ordering::Relaxed);
    }

    /// Whether a txg has to move log entries even if nothing else changes.
    pub(crate) fn has_work(&self, txg: Txg) -> bool {
        let tables = self.tables.lock();
        tables.values().filter_map(|table| table.log.as_ref()).any(|log| log.has_work(txg))
    }

    /// Deflated bytes saved by deduplication.
    pub(crate) fn saved(&self) -> u64 {
        let tables = self.tables.lock();
        let total = tables.values().map(Table::saved);
        total.fold(0, u64::saturating_add)
    }

    /// Looks up the entry of a block.
    ///
    /// # Errors
    /// The lookup failed, so it is unknown whether there is one.
    pub(crate) fn look_up(&self, pointer: &BlockPointer) -> Result<(), LiveError> {
        let Ok(function) = pointer.checksum_function() else { return Ok(()) };
        let mut tables = self.tables.lock();
        let Some(table) = tables.get_mut(&function.number()) else { return Ok(()) };
        table.entry(&self.mos, DdtKey::of_pointer(pointer)).map(drop)
    }

    /// Adds a reference to a block; `false` if no table has the block.
    pub(crate) fn add(&self, pointer: &BlockPointer) -> Result<bool, LiveError> {
        self.change_references(pointer, |references| references.saturating_add(1))
    }

    /// Restores the entry of a block that was pruned (`zpool ddtprune`) and now gains a second
    /// reference; `false` if its table has another block with the same contents.
    pub(crate) fn restore(&self, pointer: &BlockPointer) -> Result<bool, LiveError> {
        let function = pointer.checksum_function().ok();
        let Some(function) = function.filter(|function| ddt::FUNCTIONS.contains(function)) else {
            return Ok(false);
        };
        let mut tables = self.tables.lock();
        let layout = self.layout();
        let new = || Table::new(function, layout, self.limits);
        let table = tables.entry(function.number()).or_insert_with(new);
        let key = DdtKey::of_pointer(pointer);
        if table.entry(&self.mos, key)?.is_some() {
            return Ok(false);
        }
        let mut dvas = [Dva::default(); 3];
        dvas.iter_mut().zip(pointer.dvas()).for_each(|(place, dva)| *place = dva);
        let birth = pointer.physical_birth();
        let place = DedupPlace { dvas: with_salt(dvas, pointer), birth };
        table.insert(key, place, pointer.dvas().count(), self.environment.now());
        drop(tables);
        // The first reference is that of the original owner.
        self.add(pointer)
    }

    /// The layout of new tables.
    fn layout(&self) -> DdtLayout {
        match self.has_flat.load(Ordering::Relaxed) {
            true => DdtLayout::Flat,
            false => DdtLayout::Traditional,
        }
    }

    /// Removes a reference to a block; `false` if no table has the block. If it was the last one,
    /// the block is freed at the end of the pass.
    pub(crate) fn release(&self, pointer: &BlockPointer) -> Result<bool, LiveError> {
        self.change_references(pointer, |references| references.saturating_sub(1))
    }

    fn change_references(
        &self,
        pointer: &BlockPointer,
        change: impl FnOnce(u64) -> u64,
    ) -> Result<bool, LiveError> {
        let Ok(function) = pointer.checksum_function() else { return Ok(false) };
        let mut tables = self.tables.lock();
        let Some(table) = tables.get_mut(&function.number()) else { return Ok(false) };
        let Some(entry) = table.entry(&self.mos, DdtKey::of_pointer(pointer))? else {
            return Ok(false);
        };
        let Some(slot) = entry.slots_mut().iter_mut().find(|slot| slot.matches(pointer)) else {
            return Ok(false);
        };
        slot.references = change(slot.references);
        entry.touch(self.environment.now());
        Ok(true)
    }

    /// Whether the tables accept no new entries.
    fn is_full(&self, tables: &BTreeMap<u8, Table>) -> Result<bool, LiveError> {
        let quota = self.quota.load(Ordering::Relaxed);
        match quota {
            0 => return Ok(false),
            AUTOMATIC => return Ok(self.allocator.dedup_room() == DedupRoom::Full),
            _ => {}
        }
        let mut size = 0_u64;
        for table in tables.values() {
            size = size.saturating_add(table.size_on_disk(&self.mos)?);
        }
        Ok(size >= quota)
    }

    /// Writes what changed in this pass, and frees blocks without references.
    pub(crate) fn write(
        &self,
        mos: &MosTx<'_>,
        features: &mut Features,
        free: Free<'_>,
    ) -> Result<(), LiveError> {
        let mut tables = self.tables.lock();
        for table in tables.values_mut() {
            table.write(mos, features, &self.vdevs.get(), free)?;
        }
        tables.retain(|_, table| !table.is_gone());
        Ok(())
    }
}

impl DedupIndex for DedupTables {
    fn find_or_place(
        &self,
        candidate: &DedupCandidate<'_>,
        policy: DedupPolicy,
        writer: &mut dyn DedupWriter,
    ) -> Result<Option<DedupPlace>, WriteError> {
        let unreadable = |error: LiveError| WriteError::Dedup(Arc::new(error));
        let layout = self.layout();
        let mut tables = self.tables.lock();
        let warn = |error: &LiveError| tracing::warn!(%error, "dedup tables get no new entries");
        let is_full = self.is_full(&tables).unless_damaged(warn).map_err(unreadable)?;
        let is_full = is_full.unwrap_or(true);
        let function = policy.checksum;
        let new = || Table::new(function, layout, self.limits);
        let table = tables.entry(function.number()).or_insert_with(new);
        let key = DdtKey::of_pointer(candidate.pointer);
        let now = self.environment.now();
        let copies = usize::from(candidate.copies);
        let is_known = match table.entry(&self.mos, key) {
            // The block is written without deduplication.
            Err(error) if error.is_damage() => return Ok(None),
            entry => entry.map_err(unreadable)?.is_some(),
        };
        if !is_known {
            if is_full {
                return Ok(None);
            }
            let dvas = with_salt(writer.place(candidate.copies)?, candidate.pointer);
            let place = DedupPlace { dvas, birth: candidate.txg };
            table.insert(key, place, copies, now);
            return Ok(Some(place));
        }
        let Some(entry) = table.entry(&self.mos, key).map_err(unreadable)? else {
            return Ok(None);
        };
        let known = entry.used_slots().next().map(|slot| slot.pointer(function, &key));
        if policy.sameness == DuplicateTest::Contents
            && !known.is_some_and(|pointer| writer.is_same(&pointer))
        {
            return Ok(None);
        }
        let Some(slot) = entry.slot_of(copies) else { return Ok(None) };
        if slot.is_empty() {
            slot.dvas = with_salt(writer.place(candidate.copies)?, candidate.pointer);
            slot.birth = candidate.txg;
        } else if slot.pointer(function, &key).dvas().count() < copies
            && !slot.pointer(function, &key).is_gang()
        {
            // A flat entry with too few copies: the block is written without deduplication.
            return Ok(None);
        }
        slot.references = slot.references.saturating_add(1);
        let place = DedupPlace { dvas: slot.dvas, birth: slot.birth };
        entry.touch(now);
        Ok(Some(place))
    }
}

/// The addresses of a block; for an encrypted one the third holds the salt and the IV.
fn with_salt(dvas: [Dva; 3], pointer: &BlockPointer) -> [Dva; 3] {
    match (pointer.protection(), dvas) {
        (Protection::Encrypted, [first, second, _]) => {
            let [.., salt, iv] = *pointer.words().first_chunk::<6>().unwrap_or(&[0; 6]);
            [first, second, Dva([salt, iv])]
        }
        _ => dvas,
    }
}
