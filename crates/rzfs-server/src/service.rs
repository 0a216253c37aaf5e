//! Answers about an open pool: the single place that converts a pool to the plain data of the
//! [`crate::protocol`].

mod accounts;
mod damage;
mod datasets;
mod diff;
mod file_system;
mod history;
mod importable;
mod layout;
mod opening;
mod pool;
mod properties;
mod sending;
mod stats;
mod vdevs;

pub(crate) use file_system::file_system;
pub use importable::importable;
pub use opening::{Access, Opening};
pub use sending::Sending;
pub use stats::{of_pool, of_writable};

use crate::protocol::{
    Answer, Identity, MountReport, PoolReport, Refusal, Request, SendRequest, StreamSizes,
    VdevReport,
};
use rzfs::setting::CacheFile;
use rzfs_dsl::pool::FailMode;
use rzfs_dsl::{Pool, PoolError};
use rzfs_vdev::{VdevConfig, VdevTree};

/// The missing log vdevs that block an import.
#[must_use]
pub fn missing_logs(logs: &[VdevConfig]) -> Vec<VdevReport> {
    logs.iter().map(vdevs::missing_log).collect()
}

/// The report of a pool whose devices cannot be read: the last one, with the condition of a
/// suspended pool and the current vdevs.
#[must_use]
pub fn renewed(last: PoolReport, vdevs: &VdevTree, suspended: Option<FailMode>) -> PoolReport {
    pool::renewed(last, vdevs, suspended)
}

/// Answers requests about one pool.
#[derive(Debug)]
pub struct PoolService {
    pool: Pool,
    opening: Opening,
}

impl PoolService {
    /// The service for a pool that is open for reading.
    #[must_use]
    pub fn new(pool: Pool) -> Self {
        let opening = Opening::now(pool.guid(), Access::ReadOnly);
        Self { pool, opening }
    }

    /// The service for one view of a live pool.
    #[must_use]
    pub const fn of_view(pool: Pool, opening: Opening) -> Self {
        Self { pool, opening }
    }

    /// The same with this value of property `cachefile`.
    #[must_use]
    pub fn with_cache_file(mut self, file: Option<CacheFile>) -> Self {
        self.opening.cache_file = file;
        self
    }

    /// The pool.
    #[must_use]
    pub const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Answers a request; `mounts` are the pool's current mounts. Changes are refused: they need
    /// the pool open for writing.
    #[must_use]
    pub fn answer(&self, request: &Request, mounts: &[MountReport]) -> Answer {
        match request {
            Request::Identify => Answer::Identity(Identity {
                pool: self.pool.name().to_owned(),
                guid: self.pool.guid().get(),
                process: std::process::id(),
                is_writable: self.opening.access == Access::ReadWrite,
            }),
            Request::Pool => match pool::report(&self.pool, &self.opening, mounts) {
                Ok(report) => Answer::Pool(Box::new(report)),
                Err(error) => self.failed(&error),
            },
            Request::History => match history::report(&self.pool) {
                Ok(history) => Answer::History(history),
                Err(error) => self.failed(&error),
            },
            Request::Datasets(query) => {
                let mut listing = datasets::list(self.pool.datasets(), query, mounts);
                if let Some(root) = &self.opening.alternate_root {
                    datasets::move_mount_points(&mut listing, root);
                }
                datasets::show_temporary(&mut listing, mounts, self.opening.access);
                Answer::Datasets(listing)
            }
            Request::Holds { names } => match datasets::holds(self.pool.datasets(), names) {
                Ok(holds) => Answer::Holds(holds),
                Err(refusal) => Answer::Failed(refusal),
            },
            Request::Accounts(query) => match accounts::report(self.pool.datasets(), query) {
                Ok(accounts) => Answer::Accounts(accounts),
                Err(refusal) => Answer::Failed(refusal),
            },
            // There are no files to be freed.
            Request::UnfreedFiles { file_system: name } => {
                match file_system(self.pool.datasets(), name) {
                    Ok(_) => Answer::UnfreedFiles(0),
                    Err(refusal) => Answer::Failed(refusal),
                }
            }
            Request::Reclaimed { runs } => match datasets::reclaimed(self.pool.datasets(), runs) {
                Ok(bytes) => Answer::Reclaimed(bytes),
                Err(refusal) => Answer::Failed(refusal),
            },
            Request::Differences(query) => match diff::part(&self.pool, query, mounts) {
                Ok(part) => Answer::Differences(part),
                Err(refusal) => Answer::Failed(refusal),
            },
            Request::Mounts => Answer::Mounts(mounts.to_vec()),
            Request::Events => Answer::Events(Vec::new()),
            Request::ClearEvents => Answer::Cleared(0),
            Request::Stats => Answer::Stats(Box::new(stats::of_pool(&self.pool, []))),
            Request::Unmount { .. } => Answer::Failed(Refusal::new(format!(
                "cannot unmount '{}': not currently mounted",
                self.pool.name()
            ))),
            Request::StreamSizes(request) => {
                let sizes = self.sending(request).and_then(|sending| {
                    Ok(StreamSizes { sizes: sending.sizes()?, skipped: sending.skipped() })
                });
                match sizes {
                    Ok(sizes) => Answer::StreamSizes(sizes),
                    Err(refusal) => Answer::Failed(refusal),
                }
            }
            // A stream is not an answer.
            Request::Send(_) => Answer::Failed(Refusal::new("cannot send: not as an answer")),
            Request::Change { .. }
            | Request::PlanAdd(_)
            | Request::Receive(_)
            | Request::Destroy { .. } => Answer::Failed(Refusal::new(format!(
                "cannot change '{}': pool is read-only",
                self.pool.name()
            ))),
        }
    }

    /// A snapshot that can be sent.
    ///
    /// # Errors
    /// There is none, or it cannot be sent as asked.
    pub fn sending(&self, request: &SendRequest) -> Result<Sending, Refusal> {
        Sending::open(&self.pool, request)
    }

    fn failed(&self, error: &PoolError) -> Answer {
        let message = format!("cannot read pool '{}': {error}", self.pool.name());
        Answer::Failed(Refusal::new(message))
    }
}
