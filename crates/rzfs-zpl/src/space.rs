//! Space and object counts, as `statfs` shows them (spec 05, section 9.6).

use crate::error::ZplError;
use crate::file_system::FileSystem;
use crate::options::SpaceUse;
use rzfs_format::ObjectId;
use rzfs_format::fuid::Fuid;
use rzfs_format::znode::{FileFlags, Znode};

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

/// A project's quotas and what it uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ProjectQuota {
    /// Bytes that it may have, and has.
    pub(crate) bytes: Option<(u64, u64)>,
    /// Objects that it may have, and has.
    pub(crate) objects: Option<(u64, u64)>,
}

impl Statistics {
    /// What a dataset with this space shows.
    pub(crate) fn new(
        space: SpaceUse,
        block_size: u32,
        used_objects: u64,
        max_name: usize,
    ) -> Self {
        let block_size = block_size.max(1);
        let unit = u64::from(block_size);
        let free_objects = ObjectId::END.0.saturating_sub(used_objects);
        let available_objects = free_objects.min(space.available / BYTES_PER_OBJECT);
        let referenced = space.referenced.div_ceil(unit).saturating_mul(unit);
        Self {
            block_size,
            blocks: referenced.saturating_add(space.available) / unit,
            available: space.available / unit,
            objects: available_objects.saturating_add(used_objects),
            available_objects,
            max_name: max_name as u32,
        }
    }

    /// The project whose quota counts in a file instead of the dataset's space.
    pub(crate) fn quota_project(znode: &Znode) -> Option<u64> {
        let inherits = znode.is_directory() && znode.flags.contains(FileFlags::PROJINHERIT);
        (znode.project != 0 && inherits).then_some(znode.project)
    }

    /// Shows a project's quota.
    pub(crate) fn apply_quota(&mut self, quota: &ProjectQuota) {
        if let Some((quota, used)) = quota.bytes {
            let unit = u64::from(self.block_size);
            self.blocks = quota / unit;
            self.available = quota.saturating_sub(used) / unit;
        }
        if let Some((quota, used)) = quota.objects {
            self.objects = quota;
            self.available_objects = quota.saturating_sub(used);
        }
    }
}

impl FileSystem {
    /// Space and object counts as seen from a file: in a directory whose project has a quota the
    /// quota counts.
    ///
    /// # Errors
    /// The file or its project's quota cannot be read.
    pub fn statistics(&self, object: ObjectId) -> Result<Statistics, ZplError> {
        let node = self.node(object)?;
        let used = self.objset.root().fill();
        let options = &self.options;
        let mut statistics =
            Statistics::new(options.space, options.record_size, used, options.max_name);
        if let Some(project) = Statistics::quota_project(node.znode()) {
            statistics.apply_quota(&self.project_quota(project)?);
        }
        Ok(statistics)
    }

    fn project_quota(&self, project: u64) -> Result<ProjectQuota, ZplError> {
        let key = Fuid(project).accounting_key();
        let mut found = ProjectQuota::default();
        if let Some(quota) = self.entry(self.master.project_quota, &key)? {
            let used = self.entry(Some(ObjectId::PROJECT_USED), &key)?;
            found.bytes = Some((quota, used.unwrap_or(0)));
        }
        if let Some(quota) = self.entry(self.master.project_object_quota, &key)? {
            let used = self.entry(Some(ObjectId::PROJECT_USED), &format!("obj-{key}"))?;
            found.objects = Some((quota, used.unwrap_or(0)));
        }
        Ok(found)
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
