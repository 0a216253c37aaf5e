//! Space of destroyed datasets that is not free yet.

use super::{Parts, Pool, PoolError};
use crate::mos::MosSource;
use rzfs_format::ObjectId;
use rzfs_format::bpobj::{BpobjHeader, BptreeHeader};
use rzfs_format::dsl::DslDir;

/// Space that is still to be freed in the background (spec 01, section 8.1).
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct PendingFrees {
    /// Blocks of destroyed snapshots.
    pub free_list: Option<BpobjHeader>,
    /// File systems being destroyed.
    pub destroying: Option<BptreeHeader>,
}

impl<Mode> Pool<Mode> {
    /// Pending background frees.
    ///
    /// # Errors
    /// [`PoolError`] when it cannot be read.
    pub fn pending_frees(&self) -> Result<PendingFrees, PoolError> {
        let Parts { mos, directory, .. } = &*self.inner;
        let mut frees = PendingFrees::default();
        if let Some(id) = directory.object("free_bpobj")? {
            frees.free_list = Some(mos.record(id)?);
        }
        if let Some(id) = directory.object("bptree_obj")? {
            frees.destroying = Some(mos.record(id)?);
        }
        Ok(frees)
    }

    /// Bytes still used by destroyed datasets (`freeing`).
    ///
    /// # Errors
    /// [`PoolError`] when the directory charged for them cannot be read.
    pub fn freeing(&self) -> Result<u64, PoolError> {
        self.used_by("$FREE")
    }

    /// Bytes that can never be freed because of damage (`leaked`).
    ///
    /// # Errors
    /// [`PoolError`] when the directory charged for them cannot be read.
    pub fn leaked(&self) -> Result<u64, PoolError> {
        self.used_by("$LEAK")
    }

    /// A special directory below the root, such as `$MOS`; old pools lack some.
    pub(crate) fn special_directory(&self, name: &str) -> Result<Option<ObjectId>, PoolError> {
        let Parts { mos, root_dataset, .. } = &*self.inner;
        let root: DslDir = mos.record(*root_dataset)?;
        let Some(children) = root.children else { return Ok(None) };
        Ok(mos.object_of(children, name)?)
    }

    /// Bytes charged to a special directory below the root.
    fn used_by(&self, name: &str) -> Result<u64, PoolError> {
        let Some(dir) = self.special_directory(name)? else { return Ok(0) };
        Ok(self.inner.mos.record::<DslDir>(dir)?.used)
    }
}
