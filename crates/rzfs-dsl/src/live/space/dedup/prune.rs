//! Pruning blocks with a single reference (`zpool ddtprune`; spec 02, section 9.7).
//!
//! Removing an entry with one reference leaves its block and the pointer to it unchanged: the
//! pointer has the dedup bit, no table has it, and it is freed like any other. Entries in a log
//! changed recently and are kept.

use super::table::Table;
use super::{DedupTables, codec};
use crate::live::LiveError;
use crate::live::error::UnlessDamaged;
use crate::mos::features::Features;
use crate::mos::live::MosTx;
use crate::mos::{MosSource, OBJECT_DIRECTORY as DIRECTORY};
use crate::pool::{Attributes, Pool, PoolError, entry_statistics};
use rzfs_format::ObjectId;
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::ddt::{self, DdtClass, DdtKey, DdtLayout, DdtValue};
use rzfs_vdev::VdevTree;
use rzfs_zap::ZapKey;

/// An entry with one reference.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Single {
    checksum: ChecksumFunction,
    key: DdtKey,
    /// Since when it has had one reference, in seconds since 1970.
    pub(crate) since: u64,
}

/// Calls `visit` for every entry of a flat table that has one reference and is not in a log.
pub(crate) fn for_singles<E: From<PoolError>>(
    pool: &Pool,
    mut visit: impl FnMut(Single) -> Result<(), E>,
) -> Result<(), E> {
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

impl DedupTables {
    /// Removes entries that have not changed since they were examined; returns their number.
    pub(crate) fn prune(
        &self,
        mos: &MosTx<'_>,
        features: &mut Features,
        vdevs: &VdevTree,
        batch: &[Single],
    ) -> Result<u64, LiveError> {
        let mut tables = self.tables.lock();
        let mut removed = 0;
        for table in tables.values_mut() {
            let checksum = table.checksum;
            let own = batch.iter().filter(|single| single.checksum == checksum);
            let count = table.prune(mos, vdevs, own)?;
            if count > 0 {
                let written = table.write_statistics(mos, [DdtClass::Unique]);
                let warn = |error: &LiveError| tracing::warn!(%error, "dedup is not counted");
                written.unless_damaged(warn)?;
                if let Some(home) = table.home {
                    table.remove_if_empty(mos, features, home)?;
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
        mos: &MosTx<'_>,
        vdevs: &VdevTree,
        singles: impl Iterator<Item = &'a Single>,
    ) -> Result<u64, LiveError> {
        let unique = self.zaps.get(&DdtClass::Unique).copied();
        let Some(zap) = unique.filter(|_| !self.is_unusable) else { return Ok(0) };
        let stays = |error: &LiveError| tracing::warn!(%error, "an entry of a dedup table stays");
        let mut removed = 0;
        for Single { key, since, .. } in singles {
            let is_busy = self.entries.contains_key(key)
                || self.log.as_ref().is_some_and(|log| log.get(key).is_some());
            if is_busy {
                continue;
            }
            let value = self.single(mos, zap, key).unless_damaged(stays)?.flatten();
            let Some(value) = value else { continue };
            let is_same =
                matches!(value, DdtValue::Flat { class_start, .. } if class_start == *since);
            if !is_same || value.references() != 1 {
                continue;
            }
            let removed_one = mos.remove(zap, key.0.as_slice()).unless_damaged(stays)?;
            if removed_one != Some(true) {
                continue;
            }
            let (references, sums) = entry_statistics(vdevs, key, &value);
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
