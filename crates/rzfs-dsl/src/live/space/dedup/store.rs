//! Dedup tables on disk: their objects, their names, and writing changes (spec 02, sections 9.2 and
//! 9.4).

use super::codec;
use super::log::{LogLimits, LogNames, Logged, TableLog};
use super::table::{Entry, Home, Table};
use crate::PoolError;
use crate::live::LiveError;
use crate::live::error::UnlessDamaged;
use crate::live::space::bptree::Free;
use crate::mos::features::Features;
use crate::mos::live::{MosTx, Spoilt};
use crate::mos::{MosSource, OBJECT_DIRECTORY as DIRECTORY};
use crate::pool::{Attributes, Pool, entry_statistics};
use rzfs_dmu::live::Transaction;
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::ddt::log::LogRecord;
use rzfs_format::ddt::{self, DdtClass, DdtHistogram, DdtKey, DdtLayout, DdtSlot, DdtValue};
use rzfs_format::features::Feature;
use rzfs_format::object_type::ObjectType;
use rzfs_format::{ByteOrder, ObjectId};
use rzfs_vdev::VdevTree;
use rzfs_zap::{IntegerSize, NewZap, ZapFlags, ZapValue};
use std::collections::BTreeSet;

/// Block size of a table's ZAPs in bytes.
const ZAP_BLOCK: usize = 32 << 10;

/// Loads the state of a table; `None` if there is none.
pub(super) fn load(
    pool: &Pool,
    checksum: ChecksumFunction,
    limits: LogLimits,
) -> Result<Option<Table>, PoolError> {
    let mos = pool.mos();
    let own = match pool.directory().object(&ddt::directory_name(checksum))? {
        Some(own) => Some(Attributes::open(mos, own)?),
        None => None,
    };
    let mut table = Table::new(checksum, DdtLayout::Traditional, limits);
    if let Some(own) = &own {
        let number = |name| Ok::<_, PoolError>(own.number(name)?.unwrap_or(0));
        let (version, flags) = (number(ddt::VERSION_KEY)?, number(ddt::FLAGS_KEY)?);
        table.layout = DdtLayout::from_version_and_flags(version, flags)
            .map_err(PoolError::corrupt(own.id()))?;
        let log = |index| own.object(&ddt::log_name(checksum, index));
        let logs = [log(0)?, log(1)?];
        table.home = Some(Home::Own { directory: own.id() });
        if let [Some(first), Some(second)] = logs {
            let names = LogNames { directory: own.id(), checksum };
            match TableLog::load(pool, (table.layout, limits), names, [first, second]) {
                Err(error) if error.is_damage() => {
                    tracing::warn!(%error, ?checksum, "a dedup table is not used");
                    table.is_unusable = true;
                }
                log => table.log = Some(log?),
            }
        }
    }
    let names = own.as_ref().unwrap_or_else(|| pool.directory());
    let statistics = match pool.directory().object(ddt::STATISTICS_KEY)? {
        Some(statistics) => Some(Attributes::open(mos, statistics)?),
        None => None,
    };
    for class in DdtClass::ALL {
        let name = ddt::object_name(checksum, class);
        let Some(zap) = names.object(&name)? else { continue };
        table.zaps.insert(class, zap);
        table.home.get_or_insert(Home::Pool);
        let words = statistics.as_ref().map(|statistics| statistics.words(&name));
        if let Some(words) = words.transpose()?.flatten() {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let histogram = DdtHistogram::decode(&bytes, ByteOrder::Little);
            table.histograms.insert(class, histogram.map_err(PoolError::corrupt(zap))?);
        }
    }
    Ok(table.home.is_some().then_some(table))
}

impl Table {
    /// Writes the changed entries, to the ZAPs or to the log, part of which is flushed with every
    /// txg; frees blocks without references, and removes the table if it is empty.
    pub(super) fn write(
        &mut self,
        mos: &MosTx<'_>,
        features: &mut Features,
        vdevs: &VdevTree,
        free: Free<'_>,
    ) -> Result<(), LiveError> {
        let entries = std::mem::take(&mut self.entries);
        let mut entries = entries.into_iter().filter(|(_, entry)| entry.is_changed).peekable();
        let moves = mos.tx().pass() == 1
            && self.log.as_ref().is_some_and(|log| log.has_work(mos.tx().txg()));
        if entries.peek().is_none() && !moves {
            return Ok(());
        }
        let home = self.home(mos, features)?;
        let mut classes = BTreeSet::new();
        match self.log.take() {
            None => {
                for (key, entry) in entries {
                    let written =
                        self.write_entry(mos, home, (key, entry), vdevs, free, &mut classes);
                    match written {
                        Err(error) if error.leaves_no_room() => {
                            self.lose(mos, &key, &entry, error)?
                        }
                        written => written?,
                    }
                }
            }
            Some(mut log) => {
                let is_stored = |written: Result<(), LiveError>| match written {
                    Err(error) if error.leaves_no_room() => {
                        tracing::warn!(%error, "an entry stays in a dedup log");
                        Ok(false)
                    }
                    written => written.map(|()| true),
                };
                let mut changes = Vec::new();
                for (key, entry) in entries {
                    if entry.value.references() > 0 {
                        changes.push(self.logged(key, &entry, vdevs, &mut classes));
                        continue;
                    }
                    // Its block is being freed, so nothing may refer to it any longer.
                    let written =
                        self.write_entry(mos, home, (key, entry), vdevs, free, &mut classes);
                    if !is_stored(written)? {
                        changes.push(self.logged(key, &entry, vdevs, &mut classes));
                    } else if log.get(&key).is_some() {
                        changes.push(LogRecord { stored: None, key, value: no_block(self.layout) });
                    }
                }
                log.append(mos, vdevs, &changes)?;
                if mos.tx().pass() == 1 {
                    let mut kept = Vec::new();
                    for (key, Logged { value, stored }) in log.take_part(vdevs) {
                        let entry = Entry { value, stored, counted: None, is_changed: true };
                        let written =
                            self.write_entry(mos, home, (key, entry), vdevs, free, &mut classes);
                        if !is_stored(written)? {
                            kept.push(LogRecord { stored, key, value });
                        }
                    }
                    log.append(mos, vdevs, &kept)?;
                    log.settle(mos)?;
                }
                self.log = Some(log);
            }
        }
        let not_counted = |error: &LiveError| tracing::warn!(%error, "dedup is not counted");
        self.write_statistics(mos, classes).unless_damaged(not_counted)?;
        self.remove_if_empty(mos, features, home)
    }

    /// Gives up writing a changed entry. That leaks its block at most: where whoever looks the entry
    /// up would find too few references nobody finds it any more.
    fn lose(
        &mut self,
        mos: &MosTx<'_>,
        key: &DdtKey,
        entry: &Entry,
        error: LiveError,
    ) -> Result<(), LiveError> {
        tracing::warn!(%error, "an entry of a dedup table is lost");
        let is_fair = match self.lookup(mos, key) {
            // The entry cannot be found, nor its block freed.
            Err(error) if error.is_damage() => true,
            stored => has_references(stored?.as_ref(), &entry.value),
        };
        if is_fair {
            return Ok(());
        }
        // In the first place where it is looked for.
        let hidden = match self.zaps.values().next() {
            Some(zap) => mos.spoil(*zap, key.0.as_slice())?,
            None => Spoilt::OnDisk,
        };
        self.is_unusable |= hidden == Spoilt::OnDisk;
        Ok(())
    }

    /// The value of a key in the ZAPs.
    fn lookup(&self, mos: &MosTx<'_>, key: &DdtKey) -> Result<Option<DdtValue>, LiveError> {
        for zap in self.zaps.values() {
            let Some(value) = mos.lookup(*zap, key.0.as_slice())? else { continue };
            let value = codec::decode(value.as_bytes().unwrap_or_default(), self.layout);
            return value.map(Some).map_err(LiveError::corrupt(*zap));
        }
        Ok(None)
    }

    /// The record of a changed entry. The statistics of the ZAP that has an older version exclude
    /// it from now on.
    fn logged(
        &mut self,
        key: DdtKey,
        entry: &Entry,
        vdevs: &VdevTree,
        classes: &mut BTreeSet<DdtClass>,
    ) -> LogRecord {
        if let (Some(class), Some(counted)) = (entry.stored, entry.counted) {
            let (references, sums) = entry_statistics(vdevs, &key, &counted);
            self.histograms.entry(class).or_default().forget(references, &sums);
            classes.insert(class);
        }
        LogRecord { stored: entry.stored, key, value: entry.value }
    }

    /// Writes the statistics of ZAPs.
    pub(super) fn write_statistics(
        &mut self,
        mos: &MosTx<'_>,
        classes: impl IntoIterator<Item = DdtClass>,
    ) -> Result<(), LiveError> {
        let statistics = statistics(mos)?;
        for class in classes {
            let histogram = self.histograms.entry(class).or_default().encode(ByteOrder::Little);
            let (words, _) = histogram.as_chunks::<8>();
            let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
            let name = ddt::object_name(self.checksum, class);
            mos.set(statistics, &name, ZapValue::new(IntegerSize::Eight, &words))?;
        }
        Ok(())
    }

    /// Writes an entry to its ZAP, and frees a block without references, unless the ZAP is damaged:
    /// its old version of the entry would then refer to free space.
    fn write_entry(
        &mut self,
        mos: &MosTx<'_>,
        home: Home,
        (key, mut entry): (DdtKey, Entry),
        vdevs: &VdevTree,
        free: Free<'_>,
        classes: &mut BTreeSet<DdtClass>,
    ) -> Result<(), LiveError> {
        let has_ditto = entry.slots_mut().len() > 1;
        let checksum = self.checksum;
        let mut dead = Vec::new();
        for (index, slot) in entry.slots_mut().iter_mut().enumerate() {
            if !slot.is_empty() && (slot.references == 0 || (has_ditto && index == 0)) {
                dead.push(slot.pointer(checksum, &key).without_dedup());
                *slot = DdtSlot::default();
            }
        }
        let stored = self.store_entry(mos, home, &key, &entry);
        let class = stored.inspect_err(|_| self.is_damaged = true)?;
        dead.iter().try_for_each(free)?;
        if let (Some(old), Some(counted)) = (entry.stored, entry.counted) {
            let (references, sums) = entry_statistics(vdevs, &key, &counted);
            self.histograms.entry(old).or_default().forget(references, &sums);
            classes.insert(old);
        }
        if let Some(class) = class {
            let (references, sums) = entry_statistics(vdevs, &key, &entry.value);
            self.histograms.entry(class).or_default().record(references, &sums);
            classes.insert(class);
        }
        Ok(())
    }

    /// Stores an entry in the ZAP of its class, and nowhere else; returns the class.
    fn store_entry(
        &mut self,
        mos: &MosTx<'_>,
        home: Home,
        key: &DdtKey,
        entry: &Entry,
    ) -> Result<Option<DdtClass>, LiveError> {
        let class = match entry.value.references() {
            0 => None,
            1 => Some(DdtClass::Unique),
            _ => Some(DdtClass::Duplicate),
        };
        let value: Vec<u64> = codec::encode(&entry.value).into_iter().map(u64::from).collect();
        let value = || ZapValue::new(IntegerSize::One, &value);
        let key = key.0.as_slice();
        let Some(class) = class else {
            // Damage may have left another version: since the import in any class, before that in
            // one that is looked up later.
            let later = |class: &DdtClass| entry.stored.is_some_and(|stored| stored <= *class);
            let known = |class: &DdtClass| later(class) || self.is_damaged;
            let zaps = self.zaps.iter().filter(|(class, _)| known(class));
            zaps.map(|(_, zap)| mos.remove(*zap, key)).collect::<Result<Vec<_>, _>>()?;
            return Ok(None);
        };
        let zap = self.zap(mos, home, class)?;
        let old = entry.stored.filter(|old| *old != class);
        let Some((old, former)) = old.and_then(|old| Some((old, *self.zaps.get(&old)?))) else {
            return mos.set(zap, key, value()).map(|()| Some(class));
        };
        match mos.set(zap, key, value()) {
            // Better in another class than in none, as if it had no other references.
            Err(error) if error.is_damage() => {
                // If it cannot be removed, it was not inserted.
                let not_there = |error: &LiveError| tracing::debug!(%error, "no entry to remove");
                mos.remove(zap, key).unless_damaged(not_there)?;
                mos.set(former, key, value())?;
                Ok(Some(old))
            }
            set => {
                set?;
                mos.remove(former, key)?;
                Ok(Some(class))
            }
        }
    }

    /// The object with the names of the table's objects; created if needed.
    fn home(&mut self, mos: &MosTx<'_>, features: &mut Features) -> Result<Home, LiveError> {
        if let Some(home) = self.home {
            return Ok(home);
        }
        let home = match self.layout {
            DdtLayout::Traditional => Home::Pool,
            DdtLayout::Flat => {
                let directory = mos.create_zap(ObjectType::ZAP_METADATA)?;
                mos.insert(DIRECTORY, &ddt::directory_name(self.checksum), directory.get())?;
                mos.insert(directory, ddt::VERSION_KEY, ddt::VERSION_FDT)?;
                mos.insert(directory, ddt::FLAGS_KEY, ddt::FLAG_FLAT | ddt::FLAG_LOG)?;
                let names = LogNames { directory, checksum: self.checksum };
                self.log = Some(TableLog::create(mos, (self.layout, self.limits), names)?);
                features.add(mos, Feature::FastDedup, 1)?;
                Home::Own { directory }
            }
        };
        self.home = Some(home);
        Ok(home)
    }

    /// The ZAP of a class; created if needed.
    fn zap(&mut self, mos: &MosTx<'_>, home: Home, class: DdtClass) -> Result<ObjectId, LiveError> {
        if let Some(zap) = self.zaps.get(&class) {
            return Ok(*zap);
        }
        let flags = match self.checksum {
            ChecksumFunction::EdonR => ZapFlags::WORDS,
            _ => ZapFlags::PRE_HASHED_WORDS,
        };
        let new = NewZap::new(mos.random()).fat(flags, ZAP_BLOCK);
        let zap = mos.create_zap_with(ObjectType::DDT_ZAP, ObjectType::NONE, &[], &new)?;
        mos.insert(names(home), &ddt::object_name(self.checksum, class), zap.get())?;
        self.zaps.insert(class, zap);
        Ok(zap)
    }

    pub(super) fn remove_if_empty(
        &mut self,
        mos: &MosTx<'_>,
        features: &mut Features,
        home: Home,
    ) -> Result<(), LiveError> {
        // Blocks may have references that damage kept from being written.
        if self.is_damaged || self.log.as_ref().is_some_and(|log| !log.is_empty()) {
            return Ok(());
        }
        let unknown = |error: &LiveError| tracing::warn!(%error, "a dedup table stays");
        for zap in self.zaps.values() {
            if mos.entry_count(*zap).unless_damaged(unknown)? != Some(0) {
                return Ok(());
            }
        }
        let statistics = statistics(mos)?;
        for (class, zap) in std::mem::take(&mut self.zaps) {
            let name = ddt::object_name(self.checksum, class);
            mos.destroy_or_leak(zap)?;
            mos.remove(names(home), &name)?;
            mos.remove(statistics, &name).unless_damaged(unknown)?;
        }
        if let Home::Own { directory } = home {
            for log in self.log.iter().flat_map(TableLog::objects) {
                mos.destroy_or_leak(log)?;
            }
            mos.destroy_or_leak(directory)?;
            mos.remove(DIRECTORY, &ddt::directory_name(self.checksum))?;
            features.add(mos, Feature::FastDedup, -1)?;
        }
        self.histograms.clear();
        self.log = None;
        self.home = None;
        Ok(())
    }
}

/// Whether no block of `changed` has fewer stored references. A block in no table has one.
fn has_references(stored: Option<&DdtValue>, changed: &DdtValue) -> bool {
    let stored = stored.map_or(&[][..], DdtValue::slots);
    changed.slots().iter().enumerate().all(|(index, slot)| {
        let same = |other: &&DdtSlot| other.dvas == slot.dvas && other.birth == slot.birth;
        let found = stored.get(index).filter(same);
        slot.is_empty() || slot.references <= found.map_or(1, |found| found.references)
    })
}

/// The value of a removed entry.
fn no_block(layout: DdtLayout) -> DdtValue {
    match layout {
        DdtLayout::Flat => DdtValue::Flat { slot: DdtSlot::default(), class_start: 0 },
        DdtLayout::Traditional => DdtValue::Traditional(Default::default()),
    }
}

const fn names(home: Home) -> ObjectId {
    match home {
        Home::Pool => DIRECTORY,
        Home::Own { directory } => directory,
    }
}

/// The ZAP with the histograms of all tables; created if needed.
fn statistics(mos: &MosTx<'_>) -> Result<ObjectId, LiveError> {
    if let Some(statistics) = mos.object_of(DIRECTORY, ddt::STATISTICS_KEY)? {
        return Ok(statistics);
    }
    let statistics = mos.create_zap(ObjectType::DDT_STATS)?;
    mos.insert(DIRECTORY, ddt::STATISTICS_KEY, statistics.get())?;
    Ok(statistics)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_format::{Dva, Txg, VdevId};

    fn slot(block: u64, references: u64) -> DdtSlot {
        let dva = Dva::new(VdevId(0), block << 12, 4096, false);
        DdtSlot { dvas: [dva, Dva::default(), Dva::default()], references, birth: Txg(block) }
    }

    fn slots(single: DdtSlot, double: DdtSlot) -> DdtValue {
        DdtValue::Traditional([DdtSlot::default(), single, double, DdtSlot::default()])
    }

    #[test]
    fn references_are_compared_block_by_block() {
        let stored = slots(slot(1, 9), slot(2, 1));
        let fair = [
            slots(slot(1, 9), slot(2, 1)),
            slots(slot(1, 0), slot(2, 0)),
            slots(slot(3, 1), DdtSlot::default()),
        ];
        let unfair = [
            slots(slot(1, 1), slot(2, 2)),
            slots(slot(1, 10), slot(2, 0)),
            slots(slot(3, 2), DdtSlot::default()),
        ];
        assert!(fair.iter().all(|changed| has_references(Some(&stored), changed)));
        assert!(!unfair.iter().any(|changed| has_references(Some(&stored), changed)));
        assert!(has_references(None, &slots(slot(1, 1), slot(2, 1))));
        assert!(!has_references(None, &slots(slot(1, 2), slot(2, 0))));
    }
}
