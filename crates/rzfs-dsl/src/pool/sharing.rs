//! Blocks that several files share: dedup tables and block cloning (spec 02, sections 9 and 10).

use super::attributes::Attributes;
use super::error::PoolError;
use crate::mos::{MosSource, dedup_log};
use rzfs_dmu::Objset;
use rzfs_format::ByteOrder;
use rzfs_format::brt::{self, BrtHeader};
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::ddt::log::{LogHeader, LogRole};
use rzfs_format::ddt::{self, DdtClass, DdtHistogram, DdtKey, DdtLayout, DdtStats, DdtValue};
use rzfs_vdev::VdevTree;
use std::collections::HashMap;

/// Logs of a dedup table: one takes changes while the other is flushed to the ZAPs.
const LOGS: usize = 2;

/// A dedup table.
#[derive(Clone, Debug)]
pub struct DedupTable {
    /// The checksum that identifies its blocks.
    pub checksum: ChecksumFunction,
    /// How its entries are stored.
    pub layout: DdtLayout,
    /// Its blocks by number of references.
    pub histogram: DdtHistogram,
    /// Bytes used by its objects.
    pub size_on_disk: u64,
}

/// The savings of block cloning.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct CloneSavings {
    /// Bytes of shared blocks.
    pub used: u64,
    /// Bytes saved by sharing them.
    pub saved: u64,
}

/// Reads the savings of block cloning.
pub(super) fn clone_savings(
    mos: &Objset,
    directory: &Attributes,
    vdevs: &VdevTree,
) -> Result<CloneSavings, PoolError> {
    let mut savings = CloneSavings::default();
    for id in vdevs.top_levels().filter_map(|top| top.vdev_id()) {
        let Some(object) = directory.object(&brt::vdev_key(id))? else { continue };
        let header: BrtHeader = mos.record(object)?;
        savings.used = savings.used.saturating_add(header.used_space);
        savings.saved = savings.saved.saturating_add(header.saved_space);
    }
    Ok(savings)
}

/// Reads the statistics of all dedup tables, and their logs, if any.
pub(super) fn dedup_tables(
    mos: &Objset,
    directory: &Attributes,
    vdevs: &VdevTree,
) -> Result<Vec<DedupTable>, PoolError> {
    let statistics = directory.object(ddt::STATISTICS_KEY)?;
    let Some(statistics) = statistics else { return Ok(Vec::new()) };
    let reader = Reader { mos, vdevs, statistics: Attributes::open(mos, statistics)? };
    let mut tables = Vec::new();
    for checksum in ChecksumFunction::ALL {
        tables.extend(reader.table(directory, checksum)?);
    }
    Ok(tables)
}

struct Reader<'a> {
    mos: &'a Objset,
    vdevs: &'a VdevTree,
    statistics: Attributes,
}

impl Reader<'_> {
    fn table(
        &self,
        directory: &Attributes,
        checksum: ChecksumFunction,
    ) -> Result<Option<DedupTable>, PoolError> {
        let mut table = DedupTable {
            checksum,
            layout: DdtLayout::Traditional,
            histogram: DdtHistogram::default(),
            size_on_disk: 0,
        };
        let Some(own) = directory.object(&ddt::directory_name(checksum))? else {
            let found = self.stored(directory, &mut table)?;
            return Ok(found.then_some(table));
        };
        let own = Attributes::open(self.mos, own)?;
        let number = |name| Ok::<_, PoolError>(own.number(name)?.unwrap_or(0));
        table.layout =
            DdtLayout::from_version_and_flags(number(ddt::VERSION_KEY)?, number(ddt::FLAGS_KEY)?)
                .map_err(PoolError::corrupt(own.id()))?;
        self.stored(&own, &mut table)?;
        self.logged(&own, &mut table)?;
        Ok(Some(table))
    }

    /// Adds the contents of a table's ZAPs; returns whether there are any.
    fn stored(&self, names: &Attributes, table: &mut DedupTable) -> Result<bool, PoolError> {
        let mut found = false;
        for class in DdtClass::ALL {
            let name = ddt::object_name(table.checksum, class);
            let Some(object) = names.object(&name)? else { continue };
            found = true;
            let used = self.mos.object(object)?.dnode().used;
            table.size_on_disk = table.size_on_disk.saturating_add(used);
            if let Some(words) = self.statistics.words(&name)? {
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                let histogram = DdtHistogram::decode(&bytes, ByteOrder::Little);
                let corrupt = PoolError::corrupt(self.statistics.id());
                table.histogram.add(&histogram.map_err(corrupt)?);
            }
        }
        Ok(found)
    }

    /// Adds the entries in the logs of a table, which its statistics exclude.
    fn logged(&self, names: &Attributes, table: &mut DedupTable) -> Result<(), PoolError> {
        let mut logs = Vec::new();
        for index in 0..LOGS {
            let name = ddt::log_name(table.checksum, index);
            let Some(object) = names.object(&name)? else { continue };
            let used = self.mos.object(object)?.dnode().used;
            table.size_on_disk = table.size_on_disk.saturating_add(used);
            logs.push((self.mos.record::<LogHeader>(object)?, object));
        }
        // The flushing log is older than the active one.
        logs.sort_by_key(|(header, _)| header.role == LogRole::Active);
        let mut entries = HashMap::new();
        for (header, object) in logs {
            dedup_log::visit(self.mos, (object, &header), table.layout, |record| {
                let counted = entry_statistics(self.vdevs, &record.key, &record.value);
                entries.insert(record.key, counted);
                entries.len()
            })?;
        }
        for (references, statistics) in entries.into_values().filter(|(count, _)| *count > 0) {
            table.histogram.record(references, &statistics);
        }
        Ok(())
    }
}

/// The references and the statistics of an entry.
pub(crate) fn entry_statistics(
    vdevs: &VdevTree,
    key: &DdtKey,
    value: &DdtValue,
) -> (u64, DdtStats) {
    let mut sum = DdtStats::default();
    for slot in value.used_slots() {
        let dsize = slot.dvas.iter().filter(|dva| dva.is_valid()).fold(0, |sum: u64, dva| {
            sum.saturating_add(vdevs.deflated(dva.vdev(), dva.asize()).unwrap_or(0))
        });
        let (lsize, psize) = (key.logical_size(), key.physical_size());
        let times = |size: u64| size.saturating_mul(slot.references);
        sum.add(&DdtStats {
            blocks: 1,
            lsize,
            psize,
            dsize,
            ref_blocks: slot.references,
            ref_lsize: times(lsize),
            ref_psize: times(psize),
            ref_dsize: times(dsize),
        });
    }
    (value.references(), sum)
}

/// The sum of all tables.
pub(super) fn total(tables: &[DedupTable]) -> DdtStats {
    let mut total = DdtStats::default();
    for table in tables {
        total.add(&table.histogram.total());
    }
    total
}
