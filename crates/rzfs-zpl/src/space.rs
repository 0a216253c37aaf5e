//! Space and object counts, as `statfs` shows them (spec 05, section 9.6).

use crate::error::ZplError;
use crate::file_system::FileSystem;
use crate::node::Node;
use rzfs_format::ObjectId;
use rzfs_format::fuid::Fuid;
use rzfs_format::znode::FileFlags;

/// Bytes that a new object needs at least.
const BYTES_PER_OBJECT: u64 = 512;

/// What `statfs` shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Statistics {
    /// Unit of the numbers of blocks, in bytes.
    pub block_size: u32,
    /// Blocks that are used or available.
    pub blocks: u64,
    /// Blocks that are available.
    pub available: u64,
    /// Objects that exist or could be made.
    pub objects: u64,
    /// Objects that could be made.
    pub available_objects: u64,
    /// Longest name in bytes.
    pub max_name: u32,
}

impl FileSystem {
    /// Space and object counts as seen from a file: in a directory whose project has a quota the
    /// quota counts.
    ///
    /// # Errors
    /// The file or its project's quota cannot be read.
    pub fn statistics(&self, object: ObjectId) -> Result<Statistics, ZplError> {
        let node = self.node(object)?;
        let block_size = self.options.record_size.max(1);
        let unit = u64::from(block_size);
        let space = self.options.space;
        let used_objects = self.objset.root().fill();
        let free_objects = ObjectId::END.0.saturating_sub(used_objects);
        let available_objects = free_objects.min(space.available / BYTES_PER_OBJECT);
        let referenced = space.referenced.div_ceil(unit).saturating_mul(unit);
        let mut statistics = Statistics {
            block_size,
            blocks: referenced.saturating_add(space.available) / unit,
            available: space.available / unit,
            objects: available_objects.saturating_add(used_objects),
            available_objects,
            max_name: self.names.max() as u32,
        };
        self.apply_project_quota(&node, &mut statistics)?;
        Ok(statistics)
    }

    fn apply_project_quota(
        &self,
        node: &Node,
        statistics: &mut Statistics,
    ) -> Result<(), ZplError> {
        let znode = node.znode();
        if znode.project == 0
            || !znode.is_directory()
            || !znode.flags.contains(FileFlags::PROJINHERIT)
        {
            return Ok(());
        }
        let key = Fuid(znode.project).accounting_key();
        if let Some(quota) = self.entry(self.master.project_quota, &key)? {
            let used = self.entry(Some(ObjectId::PROJECT_USED), &key)?.unwrap_or(0);
            let unit = u64::from(statistics.block_size);
            statistics.blocks = quota / unit;
            statistics.available = quota.saturating_sub(used) / unit;
        }
        if let Some(quota) = self.entry(self.master.project_object_quota, &key)? {
            let used = self.entry(Some(ObjectId::PROJECT_USED), &format!("obj-{key}"))?;
            statistics.objects = quota;
            statistics.available_objects = quota.saturating_sub(used.unwrap_or(0));
        }
        Ok(())
    }

    /// The number of an entry in a ZAP of accounting; `None` without the ZAP or the entry. A value
    /// that is no number counts as none.
    fn entry(&self, zap: Option<ObjectId>, key: &str) -> Result<Option<u64>, ZplError> {
        let Some(id) = zap else { return Ok(None) };
        let object = match self.objset.object(id) {
            Err(rzfs_dmu::DmuError::NotAllocated { .. }) => return Ok(None),
            object => object?,
        };
        let value = object.zap()?.lookup(key).map_err(|source| object.zap_error(source))?;
        Ok(value.and_then(|value| value.first_u64()).filter(|number| *number != 0))
    }
}
