//! Forgetting blocks that nobody has a second time (`zpool ddtprune`; spec 02, section 9.7).
//!
//! An entry with one reference that goes leaves its block and the pointer to it as they are: the
//! pointer says "dedup", no table has it, and it is freed like any other. What is in a log changed
//! lately and stays.

use super::table::Table;
use super::{DedupTables, codec};
use crate::live::administration::{ChangeError, TaskContext};
use crate::live::error::UnlessDamaged;
use crate::live::mos::MosTx;
use crate::live::{LiveError, LivePool};
use crate::pool::{Attributes, OBJECT_DIRECTORY as DIRECTORY, Pool, PoolError, entry_statistics};
use rzfs_format::ObjectId;
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::ddt::{self, DdtClass, DdtKey, DdtLayout, DdtValue};
use rzfs_zap::ZapKey;
use std::collections::BTreeMap;

/// Entries that are removed in one txg.
const BATCH: usize = 10_000;
/// Seconds that are counted together when the oldest entries are looked for.
const HOUR: u64 = 3600;

/// Which entries go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PruneLimit {
    /// Those that have had no second reference for so many seconds.
    Age(u64),
    /// So much of them, in percent: the oldest.
    Percent(u64),
}

/// An entry with one reference.
#[derive(Clone, Copy, Debug)]
struct Single {
    checksum: ChecksumFunction,
    key: DdtKey,
    since: u64,
}

/// What is left to remove: everything before an hour, and some of that hour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cutoff {
    hour: u64,
    of_hour: u64,
}

impl LivePool {
    /// Forgets blocks of flat dedup tables that there are once only. Returns how many.
    ///
    /// # Errors
    /// [`ChangeError`]: a table cannot be read, or the pool is suspended.
    pub fn prune_dedup(&self, limit: PruneLimit) -> Result<u64, ChangeError> {
        let view = self.view()?;
        let mut removed = 0;
        let Some(mut cutoff) = self.cutoff(&view, limit)? else { return Ok(0) };
        let mut batch = Vec::new();
        for_singles(&view, |single| {
            let hour = single.since / HOUR;
            let goes = match limit {
                PruneLimit::Age(_) => single.since < cutoff.hour,
                PruneLimit::Percent(_) if hour == cutoff.hour && cutoff.of_hour > 0 => {
                    cutoff.of_hour -= 1;
                    true
                }
                PruneLimit::Percent(_) => hour < cutoff.hour,
            };
            if goes {
                batch.push(single);
            }
            if batch.len() == BATCH {
                removed += self.prune(std::mem::take(&mut batch))?;
            }
            Ok(())
        })?;
        Ok(removed + self.prune(batch)?)
    }

    /// Where old entries end: for an age a second, for a share an hour and a part of it.
    fn cutoff(&self, view: &Pool, limit: PruneLimit) -> Result<Option<Cutoff>, ChangeError> {
        let percent = match limit {
            PruneLimit::Age(age) => {
                let hour = self.inner().environment.now().saturating_sub(age);
                return Ok(Some(Cutoff { hour, of_hour: 0 }));
            }
            PruneLimit::Percent(percent) => percent.min(100),
        };
        let mut hours: BTreeMap<u64, u64> = BTreeMap::new();
        for_singles(view, |single| {
            *hours.entry(single.since / HOUR).or_default() += 1;
            Ok(())
        })?;
        let all = hours.values().map(|count| u128::from(*count)).sum::<u128>();
        let mut wanted = u64::try_from(all * u128::from(percent) / 100).unwrap_or(u64::MAX);
        for (hour, count) in hours {
            if wanted <= count {
                return Ok((wanted > 0).then_some(Cutoff { hour, of_hour: wanted }));
            }
            wanted -= count;
        }
        Ok(None)
    }

    fn prune(&self, batch: Vec<Single>) -> Result<u64, ChangeError> {
        if batch.is_empty() {
            return Ok(0);
        }
        self.administer(move |context| Ok(context.prune(&batch)?))
    }
}

/// Calls `visit` for every entry of a flat table that has one reference and is not in a log.
fn for_singles(
    pool: &Pool,
    mut visit: impl FnMut(Single) -> Result<(), ChangeError>,
) -> Result<(), ChangeError> {
    for checksum in ddt::FUNCTIONS {
        let own = Attributes::open(pool.mos(), DIRECTORY)?;
        let Some(own) = own.object(&ddt::directory_name(checksum))? else { continue };
        let own = Attributes::open(pool.mos(), own)?;
        let Some(id) = own.object(&ddt::object_name(checksum, DdtClass::Unique))? else { continue };
        let object = pool.mos().object(id).map_err(PoolError::from)?;
        let zap = object.zap().map_err(PoolError::from)?;
        for entry in zap.entries() {
            let entry = entry.map_err(|source| PoolError::from(object.zap_error(source)))?;
            let ZapKey::Words(words) = &entry.key else { continue };
            let Ok(words) = <[u64; 5]>::try_from(&**words) else { continue };
            let value = codec::decode(entry.value.as_bytes().unwrap_or_default(), DdtLayout::Flat);
            if let DdtValue::Flat { class_start, .. } = value.map_err(PoolError::corrupt(id))? {
                visit(Single { checksum, key: DdtKey(words), since: class_start })?;
            }
        }
    }
    Ok(())
}

impl TaskContext<'_> {
    /// Removes entries that have not changed since they were looked at; returns how many.
    fn prune(&mut self, batch: &[Single]) -> Result<u64, LiveError> {
        let dedup = std::sync::Arc::clone(&self.state.dedup);
        dedup.prune(self, batch)
    }
}

impl DedupTables {
    fn prune(&self, context: &mut TaskContext<'_>, batch: &[Single]) -> Result<u64, LiveError> {
        let mut tables = self.tables.lock();
        let mut removed = 0;
        for table in tables.values_mut() {
            let checksum = table.checksum;
            let own = batch.iter().filter(|single| single.checksum == checksum);
            let count = table.prune(context, own)?;
            if count > 0 {
                let written = table.write_statistics(&context.mos, [DdtClass::Unique]);
                let warn = |error: &LiveError| tracing::warn!(%error, "dedup is not counted");
                written.unless_damaged(warn)?;
                if let Some(home) = table.home {
                    table.remove_if_empty(&context.mos, &mut context.state.features, home)?;
                }
            }
            removed += count;
        }
        tables.retain(|_, table| !table.is_gone());
        Ok(removed)
    }
}

impl Table {
    fn prune<'a>(
        &mut self,
        context: &TaskContext<'_>,
        singles: impl Iterator<Item = &'a Single>,
    ) -> Result<u64, LiveError> {
        let unique = self.zaps.get(&DdtClass::Unique).copied();
        let Some(zap) = unique.filter(|_| !self.is_blind) else { return Ok(0) };
        let stays = |error: &LiveError| tracing::warn!(%error, "an entry of a dedup table stays");
        let mut removed = 0;
        for Single { key, since, .. } in singles {
            let is_busy = self.entries.contains_key(key)
                || self.log.as_ref().is_some_and(|log| log.get(key).is_some());
            if is_busy {
                continue;
            }
            let value = self.single(&context.mos, zap, key).unless_damaged(stays)?.flatten();
            let Some(value) = value else { continue };
            let is_same =
                matches!(value, DdtValue::Flat { class_start, .. } if class_start == *since);
            if !is_same || value.references() != 1 {
                continue;
            }
            let removed_one = context.mos.remove(zap, key.0.as_slice()).unless_damaged(stays)?;
            if removed_one != Some(true) {
                continue;
            }
            let (references, sums) = entry_statistics(context.vdevs, key, &value);
            self.histograms.entry(DdtClass::Unique).or_default().forget(references, &sums);
            removed += 1;
        }
        Ok(removed)
    }

    /// An entry of the ZAP of blocks with one reference.
    fn single(
        &self,
        mos: &MosTx<'_>,
        zap: ObjectId,
        key: &DdtKey,
    ) -> Result<Option<DdtValue>, LiveError> {
        let Some(value) = mos.lookup(zap, key.0.as_slice())? else { return Ok(None) };
        let value = codec::decode(value.as_bytes().unwrap_or_default(), self.layout);
        value.map(Some).map_err(LiveError::corrupt(zap))
    }
}
