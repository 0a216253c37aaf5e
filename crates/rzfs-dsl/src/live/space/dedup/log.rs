//! The logs of a flat dedup table (spec 02, section 9.4).
//!
//! ```text
//! changed entries ──> active log ── some txgs old, or large ──> flushing log ── a part each txg ──> ZAPs
//!                         └──────── they change places when the flushing one is empty ──┘
//! looking up: what the txg has changed, active log, flushing log, ZAPs
//! ```
//! Changes are appended to one object, whatever their keys, and reach the ZAPs in key order: many
//! changes of neighbours become one change of a block. A block is freed as soon as it loses its
//! last reference; a log that had its entry gets one without a block.

use crate::PoolError;
use crate::live::LiveError;
use crate::live::error::UnlessDamaged;
use crate::memory;
use crate::mos::live::MosTx;
use crate::mos::{MosSource, dedup_log};
use crate::pool::{Pool, entry_statistics};
use rzfs_dmu::live::{Extent, Transaction};
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::ddt::log::{LogHeader, LogRecord, LogRole};
use rzfs_format::ddt::{self, DdtClass, DdtHistogram, DdtKey, DdtLayout, DdtStats, DdtValue};
use rzfs_format::object_type::ObjectType;
use rzfs_format::{ByteOrder, ObjectId, Txg};
use rzfs_tunables::Tunables;
use rzfs_vdev::VdevTree;
use std::collections::BTreeMap;

/// Memory accounted per entry, in bytes.
const ENTRY_MEMORY: u64 = 192;
/// Minimum memory for the logs of a table.
const MIN_MEMORY: u64 = 1 << 20;
/// Block size of logs in bytes.
const LOG_BLOCK: u32 = 128 << 10;

/// Size limits of a table's logs, and how fast they are flushed to its ZAPs.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogLimits {
    /// Txgs after which a log is flushed, and over how many.
    txg_max: u64,
    /// Minimum entries flushed in a txg.
    flush_entries_min: usize,
    /// Number of entries at which a log is flushed whatever its age.
    many: usize,
}

impl From<&Tunables> for LogLimits {
    fn from(tunables: &Tunables) -> Self {
        let memory = match tunables.zfs_dedup_log_mem_max {
            0 => (memory::available() / 100).saturating_mul(tunables.zfs_dedup_log_mem_max_percent),
            memory => memory,
        };
        let many = memory.max(MIN_MEMORY) / 2 / ENTRY_MEMORY;
        Self {
            txg_max: tunables.zfs_dedup_log_txg_max,
            flush_entries_min: tunables.zfs_dedup_log_flush_entries_min,
            many: usize::try_from(many).unwrap_or(usize::MAX),
        }
    }
}

impl LogLimits {
    /// How many of this many entries are flushed in a txg.
    fn moved_of(&self, entries: usize) -> usize {
        let txgs = usize::try_from(self.txg_max).unwrap_or(usize::MAX);
        entries.div_ceil(txgs).max(self.flush_entries_min)
    }
}

/// The parts of a table's log names, and where they are stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogNames {
    pub(super) directory: ObjectId,
    pub(super) checksum: ChecksumFunction,
}

/// An entry in a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Logged {
    pub(super) value: DdtValue,
    /// The ZAP that has an older version of it.
    pub(super) stored: Option<DdtClass>,
}

/// One of the two logs.
#[derive(Debug)]
struct Log {
    object: ObjectId,
    /// Its name index: one of two.
    index: usize,
    header: LogHeader,
    entries: BTreeMap<DdtKey, Logged>,
}

/// The logs of a table.
#[derive(Debug)]
pub(super) struct TableLog {
    layout: DdtLayout,
    names: LogNames,
    active: Log,
    flushing: Log,
    /// Entries of the flushing log moved in a txg.
    moved: usize,
    /// Blocks of the entries in both, by number of references.
    histogram: DdtHistogram,
    limits: LogLimits,
}

impl Log {
    /// An empty log.
    fn create(
        mos: &MosTx<'_>,
        names: LogNames,
        index: usize,
        header: LogHeader,
    ) -> Result<Self, LiveError> {
        let object = mos.create_record(ObjectType::UINT64_METADATA, LOG_BLOCK, &header)?;
        let name = ddt::log_name(names.checksum, index);
        mos.set(names.directory, &name, object.get())?;
        Ok(Self { object, index, header, entries: BTreeMap::new() })
    }

    /// The contents of the object; for a log being flushed, the remainder.
    fn load(
        pool: &Pool,
        (index, id): (usize, ObjectId),
        layout: DdtLayout,
    ) -> Result<Self, PoolError> {
        let header: LogHeader = pool.mos().record(id)?;
        let mut log = Self { object: id, index, header, entries: BTreeMap::new() };
        let entries = &mut log.entries;
        dedup_log::visit(pool.mos(), (id, &header), layout, |record| {
            let LogRecord { key, value, stored } = record;
            entries.insert(key, Logged { value, stored });
            entries.len()
        })?;
        Ok(log)
    }

    /// Empties it.
    fn truncate(&mut self, mos: &MosTx<'_>, names: LogNames) -> Result<(), LiveError> {
        self.entries.clear();
        (self.header.length, self.header.checkpoint) = (0, None);
        let freed = mos
            .object(self.object)
            .and_then(|object| Ok(object.free(mos.tx(), 0, Extent::ToEnd)?));
        let warn = |error: &LiveError| tracing::warn!(%error, "a dedup log begins anew");
        match freed.unless_damaged(warn)? {
            Some(()) => Ok(()),
            None => self.replace(mos, names),
        }
    }

    /// Replaces it by a new, empty object.
    fn replace(&mut self, mos: &MosTx<'_>, names: LogNames) -> Result<(), LiveError> {
        let header = LogHeader { length: 0, ..self.header };
        let new = Self::create(mos, names, self.index, header)?;
        mos.destroy_or_leak(self.object)?;
        (self.object, self.header) = (new.object, header);
        Ok(())
    }

    /// Appends changes, as whole blocks.
    fn write(
        &mut self,
        mos: &MosTx<'_>,
        layout: DdtLayout,
        changes: &[LogRecord],
    ) -> Result<(), LiveError> {
        let object = mos.object(self.object)?;
        let block = usize::try_from(object.data_block_size()?).unwrap_or(0);
        let size = LogRecord::size(layout);
        for part in changes.chunks((block / size).max(1)) {
            let mut bytes = vec![0; block.max(size)];
            for (place, change) in bytes.chunks_exact_mut(size).zip(part) {
                place.copy_from_slice(&change.encode(ByteOrder::NATIVE));
            }
            object.write(mos.tx(), self.header.length, &bytes)?;
            self.header.length = self.header.length.saturating_add(bytes.len() as u64);
        }
        Ok(())
    }

    /// The same; if damage prevents that, everything goes to a new object.
    fn append(
        &mut self,
        mos: &MosTx<'_>,
        (names, layout): (LogNames, DdtLayout),
        changes: &[LogRecord],
    ) -> Result<(), LiveError> {
        let warn = |error: &LiveError| tracing::warn!(%error, "a dedup log is written anew");
        if self.write(mos, layout, changes).unless_damaged(warn)?.is_none() {
            self.replace(mos, names)?;
            let record = |(key, Logged { value, stored }): (&DdtKey, &Logged)| LogRecord {
                stored: *stored,
                key: *key,
                value: *value,
            };
            let all: Vec<_> = self.entries.iter().map(record).collect();
            self.write(mos, layout, &all)?;
            self.write(mos, layout, changes)?;
        }
        self.store_header(mos)
    }

    fn store_header(&self, mos: &MosTx<'_>) -> Result<(), LiveError> {
        mos.set_record(self.object, &self.header)
    }
}

impl TableLog {
    /// Creates the logs of a new table.
    pub(super) fn create(
        mos: &MosTx<'_>,
        (layout, limits): (DdtLayout, LogLimits),
        names: LogNames,
    ) -> Result<Self, LiveError> {
        let first_txg = mos.tx().txg();
        let log = |index, role| {
            let header = LogHeader { role, length: 0, first_txg, checkpoint: None };
            Log::create(mos, names, index, header)
        };
        let (active, flushing) = (log(0, LogRole::Active)?, log(1, LogRole::Flushing)?);
        Ok(Self::of((layout, limits), names, active, flushing))
    }

    fn of(
        (layout, limits): (DdtLayout, LogLimits),
        names: LogNames,
        active: Log,
        flushing: Log,
    ) -> Self {
        let moved = limits.moved_of(flushing.entries.len());
        Self { layout, names, active, flushing, moved, histogram: DdtHistogram::default(), limits }
    }

    /// The logs of a table on disk.
    pub(super) fn load(
        pool: &Pool,
        (layout, limits): (DdtLayout, LogLimits),
        names: LogNames,
        [first, second]: [ObjectId; 2],
    ) -> Result<Self, PoolError> {
        let first = Log::load(pool, (0, first), layout)?;
        let second = Log::load(pool, (1, second), layout)?;
        // If both have the same role, which is never written, the second counts as the older one.
        let (mut active, mut flushing) = match second.header.role {
            LogRole::Active if first.header.role == LogRole::Flushing => (second, first),
            _ => (first, second),
        };
        active.header.role = LogRole::Active;
        flushing.header.role = LogRole::Flushing;
        flushing.entries.retain(|key, _| !active.entries.contains_key(key));
        let mut log = Self::of((layout, limits), names, active, flushing);
        let all: Vec<_> = log.flushing.entries.iter().chain(&log.active.entries).collect();
        let counted: Vec<_> = all
            .into_iter()
            .map(|(key, one)| entry_statistics(pool.vdevs(), key, &one.value))
            .collect();
        for (references, sums) in counted.into_iter().filter(|(references, _)| *references > 0) {
            log.histogram.record(references, &sums);
        }
        Ok(log)
    }

    /// The newest version of a logged entry: one that is gone has no block, one whose block is
    /// still to be freed has no reference.
    pub(super) fn get(&self, key: &DdtKey) -> Option<&Logged> {
        self.active.entries.get(key).or_else(|| self.flushing.entries.get(key))
    }

    /// Their objects.
    pub(super) const fn objects(&self) -> [ObjectId; 2] {
        [self.active.object, self.flushing.object]
    }

    /// Whether both are empty.
    pub(super) fn is_empty(&self) -> bool {
        self.active.entries.is_empty() && self.flushing.entries.is_empty()
    }

    /// The sums of the entries in the logs.
    pub(super) fn total(&self) -> DdtStats {
        self.histogram.total()
    }

    /// Whether entries have to be flushed in a txg even if nothing changes.
    pub(super) fn has_work(&self, txg: Txg) -> bool {
        self.flushing.header.length > 0 || self.is_due(txg)
    }

    /// Whether the active log is due for flushing.
    fn is_due(&self, txg: Txg) -> bool {
        let age = txg.get().saturating_sub(self.active.header.first_txg.get());
        self.active.header.length > 0
            && (age >= self.limits.txg_max || self.active.entries.len() >= self.limits.many)
    }

    /// Appends changes to the active log.
    pub(super) fn append(
        &mut self,
        mos: &MosTx<'_>,
        vdevs: &VdevTree,
        changes: &[LogRecord],
    ) -> Result<(), LiveError> {
        if changes.is_empty() {
            return Ok(());
        }
        if self.active.header.length == 0 {
            self.active.header.first_txg = mos.tx().txg();
        }
        self.active.append(mos, (self.names, self.layout), changes)?;
        for LogRecord { stored, key, value } in changes {
            let older = self.flushing.entries.remove(key);
            let logged = Logged { value: *value, stored: *stored };
            let older = self.active.entries.insert(*key, logged).or(older);
            if let Some(older) = older {
                self.forget(vdevs, key, &older.value);
            }
            let (references, sums) = entry_statistics(vdevs, key, value);
            if references > 0 {
                self.histogram.record(references, &sums);
            }
        }
        Ok(())
    }

    fn forget(&mut self, vdevs: &VdevTree, key: &DdtKey, value: &DdtValue) {
        let (references, sums) = entry_statistics(vdevs, key, value);
        if references > 0 {
            self.histogram.forget(references, &sums);
        }
    }

    /// Takes the entries to flush to the ZAPs in this txg.
    pub(super) fn take_part(&mut self, vdevs: &VdevTree) -> Vec<(DdtKey, Logged)> {
        let is_late = self.active.entries.len() >= self.limits.many;
        let count = if is_late { usize::MAX } else { self.moved };
        let mut part = Vec::new();
        while part.len() < count
            && let Some((key, logged)) = self.flushing.entries.pop_first()
        {
            self.forget(vdevs, &key, &logged.value);
            self.flushing.header.checkpoint = Some(key);
            part.push((key, logged));
        }
        part
    }

    /// Stores the progress of the flushing log; swaps the logs if it is empty and the active one is
    /// due.
    pub(super) fn settle(&mut self, mos: &MosTx<'_>) -> Result<(), LiveError> {
        let txg = mos.tx().txg();
        if self.flushing.header.length > 0 {
            if self.flushing.entries.is_empty() {
                self.flushing.truncate(mos, self.names)?;
            }
            self.flushing.store_header(mos)?;
        }
        if self.flushing.header.length == 0 && self.is_due(txg) {
            std::mem::swap(&mut self.active, &mut self.flushing);
            self.active.header.role = LogRole::Active;
            self.active.header.first_txg = txg;
            self.flushing.header.role = LogRole::Flushing;
            self.moved = self.limits.moved_of(self.flushing.entries.len());
            self.active.store_header(mos)?;
            self.flushing.store_header(mos)?;
        }
        Ok(())
    }
}
