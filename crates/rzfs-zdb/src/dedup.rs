//! The dedup tables of a pool.

pub(crate) mod report;
pub(crate) mod simulation;

use super::error::ZdbError;
use rzfs_codec::compress;
use rzfs_dsl::pool::{Attributes, Pool};
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::compression::CompressionFunction;
use rzfs_format::ddt::log::{LogHeader, LogRole, records};
use rzfs_format::ddt::{
    self, DdtClass, DdtEnvelope, DdtKey, DdtLayout, DdtValue, FLAG_LOG, FLAGS_KEY, VERSION_KEY,
};
use rzfs_format::{FormatError, ObjectId};
use std::collections::BTreeMap;

/// Blocks of a log that are read at once.
const LOG_BLOCKS: u64 = 8;

/// A log of a flat table.
pub(crate) struct DedupLog {
    /// Which of the two logs it is.
    pub(crate) index: usize,
    pub(crate) object: ObjectId,
    pub(crate) header: LogHeader,
}

/// The table of one checksum function.
pub(crate) struct DedupTable {
    pub(crate) checksum: ChecksumFunction,
    pub(crate) version: u64,
    pub(crate) flags: u64,
    /// The ZAP that names its objects.
    pub(crate) root: ObjectId,
    layout: DdtLayout,
    /// The existing ZAPs, by class.
    pub(crate) classes: Vec<(DdtClass, ObjectId)>,
    pub(crate) logs: Vec<DedupLog>,
}

/// All tables of a pool.
pub(crate) struct DedupTables {
    tables: Vec<DedupTable>,
}

/// The entries whose newest form is only in the logs.
pub(crate) type LoggedEntries = BTreeMap<DdtKey, DdtValue>;

impl DedupTables {
    /// Finds the tables of a pool.
    pub(crate) fn open(pool: &Pool) -> Result<Self, ZdbError> {
        let mut tables = Vec::new();
        for checksum in ddt::FUNCTIONS {
            tables.extend(DedupTable::open(pool, checksum)?);
        }
        Ok(Self { tables })
    }

    /// The tables.
    pub(crate) fn tables(&self) -> &[DedupTable] {
        &self.tables
    }
}

impl DedupTable {
    fn open(pool: &Pool, checksum: ChecksumFunction) -> Result<Option<Self>, ZdbError> {
        let directory = pool.directory().object(&ddt::directory_name(checksum))?;
        let opened = directory.map(|id| Attributes::open(pool.mos(), id)).transpose()?;
        let names = opened.as_ref().unwrap_or(pool.directory());
        let (version, flags) = match &opened {
            Some(own) => {
                (own.number(VERSION_KEY)?.unwrap_or(0), own.number(FLAGS_KEY)?.unwrap_or(0))
            }
            None => (0, 0),
        };
        let layout = DdtLayout::from_version_and_flags(version, flags)
            .map_err(ZdbError::corrupt(names.id()))?;
        let mut classes = Vec::new();
        for class in DdtClass::ALL {
            let object = names.object(&ddt::object_name(checksum, class))?;
            classes.extend(object.map(|object| (class, object)));
        }
        if classes.is_empty() && directory.is_none() {
            return Ok(None);
        }
        let mut logs = Vec::new();
        if flags & FLAG_LOG != 0 {
            for index in 0..2 {
                let Some(object) = names.object(&ddt::log_name(checksum, index))? else { continue };
                let stored = pool.mos().object(object)?;
                let header = LogHeader::decode(stored.bonus(), stored.order())
                    .map_err(ZdbError::corrupt(object))?;
                logs.push(DedupLog { index, object, header });
            }
        }
        Ok(Some(Self { checksum, version, flags, root: names.id(), layout, classes, logs }))
    }

    /// Calls `visit` for every entry, with logged changes applied. Entries without references are
    /// left out.
    pub(crate) fn visit(
        &self,
        pool: &Pool,
        visit: &mut dyn FnMut(&DdtKey, &DdtValue),
    ) -> Result<(), ZdbError> {
        let logged = self.logged(pool)?;
        for (class, _) in &self.classes {
            self.visit_class(pool, *class, &mut |key, value| {
                if !logged.contains_key(key) {
                    visit(key, value);
                }
            })?;
        }
        for (key, value) in logged.iter().filter(|(_, value)| value.references() > 0) {
            visit(key, value);
        }
        Ok(())
    }

    /// Calls `visit` for the entries in the ZAP of a class.
    pub(crate) fn visit_class(
        &self,
        pool: &Pool,
        class: DdtClass,
        visit: &mut dyn FnMut(&DdtKey, &DdtValue),
    ) -> Result<(), ZdbError> {
        for (_, id) in self.classes.iter().filter(|(other, _)| *other == class) {
            let corrupt = ZdbError::corrupt(*id);
            let object = pool.mos().object(*id)?;
            for entry in object.zap()?.entries() {
                let entry = entry.map_err(|source| object.zap_error(source))?;
                let (Some(words), Some(bytes)) = (entry.key.as_words(), entry.value.as_bytes())
                else {
                    return Err(corrupt(FormatError::invalid("dedup table", "a strange entry")));
                };
                let key: [u64; 5] = words.try_into().map_err(|_| {
                    corrupt(FormatError::field("dedup table", "key words", words.len() as u64))
                })?;
                visit(&DdtKey(key), &decode(bytes, self.layout).map_err(&corrupt)?);
            }
        }
        Ok(())
    }

    /// The entries of the logs: all of the active one, and those of the flushing one that are
    /// neither flushed nor in the active one.
    pub(crate) fn logged(&self, pool: &Pool) -> Result<LoggedEntries, ZdbError> {
        let mut entries = LoggedEntries::new();
        let flushing_first = [LogRole::Flushing, LogRole::Active];
        for role in flushing_first {
            for log in self.logs.iter().filter(|log| log.header.role == role) {
                self.read_log(pool, log, &mut entries)?;
            }
        }
        Ok(entries)
    }

    /// Adds the entries of one log; later ones replace earlier ones.
    fn read_log(
        &self,
        pool: &Pool,
        log: &DedupLog,
        entries: &mut LoggedEntries,
    ) -> Result<(), ZdbError> {
        let corrupt = ZdbError::corrupt(log.object);
        let object = pool.mos().object(log.object)?;
        let block_size = u64::from(object.block_size());
        let end = log.header.length.min(object.dnode().extent()).div_ceil(block_size);
        let flushed = log.header.checkpoint.filter(|_| log.header.role == LogRole::Flushing);
        for first in (0..end).step_by(LOG_BLOCKS as usize) {
            for block in object.read_blocks(first..end.min(first + LOG_BLOCKS)) {
                let block = block?;
                for record in records(&block.data, block.order, self.layout) {
                    let record = record.map_err(&corrupt)?;
                    if flushed.is_none_or(|flushed| record.key > flushed) {
                        entries.insert(record.key, record.value);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Unpacks a value of a table's ZAP.
fn decode(value: &[u8], layout: DdtLayout) -> Result<DdtValue, FormatError> {
    let envelope = DdtEnvelope::decode(value)?;
    if envelope.compression == CompressionFunction::Off {
        return DdtValue::decode(envelope.payload, envelope.order, layout);
    }
    let mut plain = vec![0; layout.value_size()];
    compress::decompress(envelope.compression, envelope.payload, &mut plain)
        .map_err(|_| FormatError::invalid("dedup table", "a value that does not decompress"))?;
    DdtValue::decode(&plain, envelope.order, layout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_format::{Dva, Txg, VdevId};

    #[test]
    fn compressed_value_of_the_spec_decodes() {
        let value = [0x8e, 0x7f, 0, 2, 0x46, 0, 0x77, 0x66, 0, 3, 0x46, 0, 8, 0xc6];
        let value = decode(&value, DdtLayout::Traditional).unwrap();
        let slots: Vec<_> = value.used_slots().collect();
        assert_eq!(slots.len(), 1);
        assert_eq!((slots[0].references, slots[0].birth), (3, Txg(8)));
        assert_eq!(slots[0].dvas[0], Dva::new(VdevId(0), 0xee00, 0x400, false));
        assert!(decode(&[0x8e, 0x7f], DdtLayout::Traditional).is_err());
    }
}
