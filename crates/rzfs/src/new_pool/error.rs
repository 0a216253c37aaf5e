//! Errors of creating a pool.

use super::PoolNameError;
use crate::setting::SettingError;
use crate::vdev_request::VdevRequestError;
use rzfs_dsl::live::{ChangeError, CreatePoolError};
use rzfs_format::features::Feature;
use rzfs_vdev::ConfigError;
use rzfs_vdev::create::PlanError;
use rzfs_vdev::label::LabelError;

/// Why a pool is not created; the messages are those of `zpool create`.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The devices cannot form vdevs.
    #[error(transparent)]
    Vdevs(#[from] VdevRequestError),
    /// The name is invalid.
    #[error("cannot create '{pool}': {source}")]
    Name {
        /// The name.
        pool: String,
        /// The reason.
        source: PoolNameError,
    },
    /// A property has an invalid value.
    #[error("cannot create '{pool}': {source}")]
    Setting {
        /// The pool.
        pool: String,
        /// The reason.
        source: SettingError,
    },
    /// The vdevs need a feature that the pool would lack.
    #[error("cannot create '{pool}': its vdevs need the feature '{feature}'")]
    MissingFeature {
        /// The pool.
        pool: String,
        /// The feature.
        feature: Feature,
    },
    /// The devices cannot form vdevs.
    #[error("cannot create '{pool}': {source}")]
    Plan {
        /// The pool.
        pool: String,
        /// The reason.
        source: PlanError,
    },
    /// The root file system cannot have a property on these devices.
    #[error("cannot create '{pool}': {source}")]
    Root {
        /// The pool.
        pool: String,
        /// The reason.
        source: ChangeError,
    },
    /// The vdevs cannot be opened.
    #[error(transparent)]
    Vdev(#[from] ConfigError),
    /// The labels cannot be written.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// The first txgs cannot be written.
    #[error("cannot create '{pool}': {source}")]
    Live {
        /// The pool.
        pool: String,
        /// The reason.
        source: CreatePoolError,
    },
}
