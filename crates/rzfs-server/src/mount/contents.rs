//! The served pool, open for reading or writing.

use super::plan::{Candidate, underneath};
use crate::error::ServeError;
use crate::service::{Access, Opening, PoolService};
use rzfs::setting::CacheFile;
use rzfs::{Pool, WritablePool};
use rzfs_dsl::PoolError;
use rzfs_dsl::dataset::property::DatasetProperty;
use rzfs_dsl::dataset::{DatasetError, DatasetKind, DatasetTree};
use rzfs_dsl::live::Event;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

/// How long a process serves its pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lifetime {
    /// While something is mounted.
    Mounts,
    /// Until the pool is exported.
    Import,
}

/// The served pool.
#[derive(Debug)]
pub(super) enum Contents {
    /// A pool open for reading.
    Reading(PoolService),
    /// A pool open for writing.
    Writing(Arc<WritablePool>, Opening),
}

impl Contents {
    pub(super) fn reading(pool: Pool) -> Self {
        Self::Reading(PoolService::new(pool))
    }

    pub(super) fn writing(pool: WritablePool) -> Result<Self, PoolError> {
        let view = pool.view()?;
        let opening = Opening {
            alternate_root: pool.alternate_root().map(ToOwned::to_owned),
            ..Opening::now(view.guid(), Access::ReadWrite)
        };
        Ok(Self::Writing(Arc::new(pool), opening))
    }

    /// The same pool, mounted below a directory.
    pub(super) fn below(self, root: Option<PathBuf>) -> Self {
        match self {
            Self::Writing(pool, opening) => {
                Self::Writing(pool, Opening { alternate_root: root, ..opening })
            }
            Self::Reading(service) => {
                let pool = service.pool().clone();
                let opening = Opening::now(pool.guid(), Access::ReadOnly);
                let opening = Opening { alternate_root: root, ..opening };
                Self::Reading(PoolService::of_view(pool, opening))
            }
        }
    }

    /// The same pool with this value of property `cachefile`.
    pub(super) fn with_cache_file(self, file: Option<CacheFile>) -> Self {
        match self {
            Self::Writing(pool, opening) => {
                Self::Writing(pool, Opening { cache_file: file, ..opening })
            }
            Self::Reading(service) => Self::Reading(service.with_cache_file(file)),
        }
    }

    /// Logs an event in the history of a writable pool.
    pub(super) fn log(&self, event: Event) {
        if let Self::Writing(pool, _) = self
            && pool.live().log(event).is_err()
        {
            tracing::error!("the pool is suspended");
        }
    }

    /// From now on the pool can be mended: it waits for its devices when they fail. If they have
    /// failed already, that is the error.
    pub(super) fn attend(&self) -> Result<(), ServeError> {
        let Self::Writing(pool, _) = self else { return Ok(()) };
        pool.live().attend();
        let stopped = |reason| ServeError::Stopped { pool: pool.name().to_owned(), reason };
        pool.live().failure().map_or(Ok(()), |reason| Err(stopped(reason)))
    }

    /// Stops all waits for the devices of the pool if it is suspended.
    pub(super) fn relief(&self) -> impl Fn() + Send + 'static {
        let pool = self.writable().map(Arc::downgrade);
        move || {
            let pool = pool.as_ref().and_then(Weak::upgrade);
            if let Some(pool) = pool.filter(|pool| pool.live().is_suspended()) {
                pool.live().give_up_waiting();
            }
        }
    }

    /// Exports an unused pool.
    pub(super) fn release(self) {
        if let Self::Writing(pool, _) = self
            && let Some(pool) = Arc::into_inner(pool)
            && let Err(error) = pool.export()
        {
            tracing::error!(%error, "export");
        }
    }

    /// The current state of the pool.
    pub(super) fn view(&self) -> Result<Pool, PoolError> {
        match self {
            Self::Reading(service) => Ok(service.pool().clone()),
            Self::Writing(pool, _) => pool.view(),
        }
    }

    /// Its current datasets.
    pub(super) fn datasets(&self) -> Result<DatasetTree, DatasetError> {
        match self {
            Self::Reading(service) => Ok(service.pool().datasets().clone()),
            Self::Writing(pool, _) => pool.live().dataset_tree(),
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Reading(service) => service.pool().name().to_owned(),
            Self::Writing(pool, _) => pool.name().to_owned(),
        }
    }

    pub(super) fn writable(&self) -> Option<&Arc<WritablePool>> {
        match self {
            Self::Reading(_) => None,
            Self::Writing(pool, _) => Some(pool),
        }
    }
}

/// The file systems of a pool with the properties that decide about their mounts; partially
/// received ones are left out.
pub(super) fn candidates(datasets: &DatasetTree) -> Result<Vec<Candidate>, DatasetError> {
    let mut candidates = Vec::new();
    for dataset in datasets.root()?.descendants()? {
        if !dataset.is_inconsistent() && dataset.kind()? == DatasetKind::FileSystem {
            candidates.push(Candidate {
                name: dataset.name().to_owned(),
                canmount: dataset.text(DatasetProperty::CanMount)?,
                mountpoint: dataset.text(DatasetProperty::MountPoint)?,
                underneath: underneath(&dataset.text(DatasetProperty::Overlay)?),
            });
        }
    }
    Ok(candidates)
}
