//! Lookup of file systems in requests.

use crate::protocol::{Refusal, RefusalKind};
use rzfs_dsl::dataset::{Dataset, DatasetError, DatasetKind, DatasetTree};

/// The file system with this name; other datasets and missing ones are refused.
pub(crate) fn file_system(tree: &DatasetTree, name: &str) -> Result<Dataset, Refusal> {
    let unopened = |reason: &dyn std::fmt::Display| {
        Refusal::of_kind(RefusalKind::Unopened, format!("cannot open '{name}': {reason}"))
    };
    let opened = tree.open(name).and_then(|dataset| Ok((dataset.kind()?, dataset)));
    match opened {
        Ok((DatasetKind::FileSystem, dataset)) => Ok(dataset),
        Ok(_) => Err(unopened(&"operation not applicable to datasets of this type")),
        Err(DatasetError::NotFound { .. }) => Err(unopened(&"dataset does not exist")),
        Err(error) => Err(unopened(&error)),
    }
}
