//! Unreplayed intent logs.

use super::{Pool, PoolError};
use rzfs_dmu::{BlockError, Objset};
use rzfs_format::object_type::ObjectType;
use rzfs_format::{BlockPointer, ObjsetId};

impl<Mode> Pool<Mode> {
    /// The head datasets with unreplayed intent log records, whose changes are not visible.
    ///
    /// # Errors
    /// [`PoolError`] when the MOS cannot be searched. Unreadable datasets are left out.
    pub fn unreplayed_logs(&self) -> Result<Vec<ObjsetId>, PoolError> {
        let mut logs = Vec::new();
        for entry in self.inner.mos.objects() {
            let entry = entry?;
            if entry.dnode.bonus_type != ObjectType::DSL_DATASET {
                continue;
            }
            let id = ObjsetId(entry.id.0);
            let bonus = (&entry.dnode.bonus[..], entry.dnode.order);
            let dataset = rzfs_format::dsl::DslDataset::decode(bonus.0, bonus.1);
            let head = dataset.ok().filter(|dataset| !dataset.is_snapshot());
            if head.is_some_and(|head| self.has_log(id, &head.root)) {
                logs.push(id);
            }
        }
        Ok(logs)
    }

    /// Whether the objset of a head has log records. A log whose first block was reserved but never
    /// written has none; one whose first block is unreadable now may have some.
    fn has_log(&self, id: ObjsetId, root: &BlockPointer) -> bool {
        if root.is_hole() {
            return false;
        }
        let header = match Objset::open(&self.inner.pipeline, id, root, None) {
            Ok(objset) => objset.log_header(),
            Err(error) => {
                tracing::warn!(objset = %id, %error, "cannot look for an intent log");
                return false;
            }
        };
        header.is_ok_and(|header| {
            let first = || self.inner.pipeline.read_speculative(&[&header.first]).pop();
            let is_written = |read: Result<_, BlockError>| match read {
                Ok(_) => true,
                Err(error) => error.is_device_error(),
            };
            !header.first.is_hole() && first().is_some_and(is_written)
        })
    }
}
