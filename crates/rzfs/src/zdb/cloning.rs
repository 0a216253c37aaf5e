//! The block reference tables of a pool (block cloning), and `zdb -T`.

use super::error::ZdbError;
use rzfs_dmu::Object;
use rzfs_dsl::pool::Pool;
use rzfs_format::VdevId;
use rzfs_format::brt::{BrtHeader, classic_count, vdev_key};

/// The table of one top-level vdev.
pub(crate) struct CloneTable {
    vdev: VdevId,
    header: BrtHeader,
}

/// All tables of a pool.
pub(crate) struct CloneTables {
    tables: Vec<CloneTable>,
}

impl CloneTables {
    /// Reads the headers of all tables.
    pub(crate) fn open(pool: &Pool) -> Result<Self, ZdbError> {
        let mut tables = Vec::new();
        for vdev in pool.vdevs().top_levels() {
            let Some(id) = vdev.vdev_id() else { continue };
            let Some(object) = pool.directory().object(&vdev_key(id))? else { continue };
            let object = pool.mos().object(object)?;
            let header = BrtHeader::decode(object.bonus(), object.order())
                .map_err(ZdbError::corrupt(object.id()))?;
            tables.push(CloneTable { vdev: id, header });
        }
        Ok(Self { tables })
    }

    /// The tables by vdev.
    pub(crate) fn tables(&self) -> &[CloneTable] {
        &self.tables
    }
}

impl CloneTable {
    /// The vdev.
    pub(crate) const fn vdev(&self) -> VdevId {
        self.vdev
    }

    /// Calls `visit` for all entries with the byte offset of the block and its references beyond
    /// the first.
    pub(crate) fn visit(
        &self,
        pool: &Pool,
        visit: &mut dyn FnMut(u64, u64),
    ) -> Result<(), ZdbError> {
        let object: Object = pool.mos().object(self.header.entries)?;
        for entry in object.zap()?.entries() {
            let entry = entry.map_err(|source| object.zap_error(source))?;
            let Some(&[offset]) = entry.key.as_words() else { continue };
            let count = match (entry.value.first_u64(), entry.value.as_bytes()) {
                (Some(count), _) => count,
                (None, Some(bytes)) => classic_count(bytes, self.header.counter_order)
                    .map_err(ZdbError::corrupt(object.id()))?,
                (None, None) => continue,
            };
            visit(offset, count);
        }
        Ok(())
    }
}
