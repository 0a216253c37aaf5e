//! Giving a pool a new guid (`zpool reguid`).

use super::{TaskContext, TaskError};
use crate::live::change_error::ChangeError;
use crate::mos::history::Event;
use rzfs_format::Guid;
use rzfs_format::features::Feature;

impl TaskContext<'_> {
    pub(crate) fn change_guid(&mut self) -> Result<Guid, TaskError> {
        if self.state.features.is_active(Feature::PoolCheckpoint) {
            return Err(ChangeError::CheckpointExists.into());
        }
        let vdevs = self.vdevs;
        let is_whole = vdevs.leaves().all(|leaf| leaf.health().is_usable());
        if !is_whole {
            return Err(ChangeError::DeviceMissing.into());
        }
        let old = self.state.config.guid;
        let new = self.pool.environment.guid();
        vdevs.set_root_guid(new);
        self.state.config.guid = new;
        self.state.is_config_dirty = true;
        vdevs.mark_all_configs_dirty();
        let (operation, text) = ("guid change", format!("old={old} new={new}"));
        self.log(&Event::Internal { operation, text, dataset: None })?;
        Ok(new)
    }
}
