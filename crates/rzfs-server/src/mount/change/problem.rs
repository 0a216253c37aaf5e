//! Why a dataset is not changed.

use rzfs::setting::SettingError;
use rzfs_dsl::PoolError;
use rzfs_dsl::dataset::DatasetError;
use rzfs_dsl::live::ChangeError;

/// Why a change is impossible.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error("{}", reason(.0))]
    Dataset(#[from] DatasetError),
    #[error(transparent)]
    Pool(#[from] PoolError),
    #[error(transparent)]
    Files(#[from] Box<rzfs_zpl::ZplError>),
}

/// OpenZFS's message, which does not repeat the name of the dataset.
pub(super) fn reason(error: &DatasetError) -> String {
    match error {
        DatasetError::NotFound { .. } => "dataset does not exist".to_owned(),
        error => error.to_string(),
    }
}
