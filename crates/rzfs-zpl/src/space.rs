//! Space and object counts, as `statfs` shows them (spec 05, section 9.6).

use crate::error::ZplError;
use crate::file_system::FileSystem;
use crate::quota::{QuotaOwner, QuotaUnit};
use crate::source::Source;
use rzfs_dmu::ObjectSource;
use rzfs_dsl::live::SpaceUse;
use rzfs_format::ObjectId;
use rzfs_format::znode::{FileFlags, Znode};

/// Minimum bytes used by a new object.
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
    /// Objects that exist or could be created.
    pub objects: u64,
    /// Objects that could be created.
    pub available_objects: u64,
    /// Maximum length of a name in bytes.
    pub max_name: u32,
}

impl Statistics {
    /// The statistics of a dataset with this space.
    fn new(space: SpaceUse, block_size: u32, used_objects: u64, max_name: usize) -> Self {
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

    /// Applies quotas of a project, each with its usage.
    fn apply_quota(&mut self, bytes: Option<(u64, u64)>, objects: Option<(u64, u64)>) {
        if let Some((quota, used)) = bytes {
            let unit = u64::from(self.block_size);
            self.blocks = quota / unit;
            self.available = quota.saturating_sub(used) / unit;
        }
        if let Some((quota, used)) = objects {
            self.objects = quota;
            self.available_objects = quota.saturating_sub(used);
        }
    }
}

impl<S: Source> FileSystem<S> {
    /// Space and object counts as seen from a file: in a directory whose project has a quota, the
    /// quota applies.
    ///
    /// # Errors
    /// The file or its project's quota cannot be read.
    pub fn statistics(&self, object: ObjectId) -> Result<Statistics, ZplError> {
        let project = self.source.with_file(object, |file| Ok(quota_project(file.znode())))?;
        let used = self.objset().on_disk().root().fill();
        let (record_size, max_name) =
            self.source.option(|options| (options.record_size, options.max_name));
        let mut statistics = Statistics::new(self.source.space(), record_size, used, max_name);
        if let Some(project) = project {
            let owner = QuotaOwner::Project;
            let of = |unit| match self.source.quota(owner, unit, project)? {
                Some(quota) => Ok(Some((quota, self.source.usage(owner, unit, project)?))),
                None => Ok::<_, ZplError>(None),
            };
            statistics.apply_quota(of(QuotaUnit::Bytes)?, of(QuotaUnit::Objects)?);
        }
        Ok(statistics)
    }
}

/// The project whose quota applies to a file instead of the dataset's space.
fn quota_project(znode: &Znode) -> Option<u64> {
    let inherits = znode.is_directory() && znode.flags.contains(FileFlags::PROJINHERIT);
    (znode.project != 0 && inherits).then_some(znode.project)
}
