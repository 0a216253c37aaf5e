//! Enabling features, and upgrading the pool's version (spec 01, section 5).

use super::{TaskContext, TaskError};
use crate::live::change_error::ChangeError;
use crate::live::space::allocation;
use crate::mos::error_log;
use crate::mos::history::Event;
use crate::pool::is_supported;
use rzfs_format::features::Feature;
use rzfs_format::uberblock::FEATURES_VERSION;

/// The version from which an upgrade only changes the number: later versions need no new objects
/// for existing datasets.
const OLDEST_UPGRADED: u64 = 26;
/// The last version before features.
const LAST_NUMBERED: u64 = 28;

impl TaskContext<'_> {
    pub(crate) fn enable_features(&mut self, features: &[Feature]) -> Result<(), TaskError> {
        let version = self.state.config.version;
        if version < FEATURES_VERSION {
            return Err(ChangeError::InvalidVersion { version }.into());
        }
        if let Some(feature) = features.iter().find(|feature| !is_supported(**feature)) {
            let feature = feature.name().to_owned();
            return Err(ChangeError::UnknownFeature { feature }.into());
        }
        let txg = rzfs_dmu::live::Transaction::txg(self.mos.tx());
        for feature in features {
            if self.state.features.is_enabled(*feature) {
                continue;
            }
            self.state.features.enable(&self.mos, *feature, txg)?;
            if *feature == Feature::HeadErrorLog {
                error_log::convert(&self.mos, &self.state.features)?;
            }
            let (operation, text) = ("set", format!("feature@{}=enabled", feature.name()));
            self.log(&Event::Internal { operation, text, dataset: None })?;
        }
        let features = allocation::space_features(&self.state.features);
        self.pool.accounts.allocator().set_features(features);
        self.state.is_config_dirty = true;
        Ok(())
    }

    pub(crate) fn upgrade_version(&mut self, version: u64) -> Result<(), TaskError> {
        let old = self.state.config.version;
        let exists =
            (OLDEST_UPGRADED..=LAST_NUMBERED).contains(&version) || version == FEATURES_VERSION;
        if !exists || version <= old {
            return Err(ChangeError::InvalidVersion { version }.into());
        }
        if old < OLDEST_UPGRADED {
            return Err(ChangeError::InvalidVersion { version: old }.into());
        }
        self.state.features.set_version(version);
        self.state.features.create_tables(&self.mos)?;
        self.state.config.version = version;
        self.state.is_config_dirty = true;
        self.vdevs.mark_all_configs_dirty();
        let (operation, text) = ("upgrade", format!("from {old} to {version}"));
        Ok(self.log(&Event::Internal { operation, text, dataset: None })?)
    }
}
