//! Answers about an open pool: the one place that turns a pool into the plain data of the
//! [`crate::protocol`].

mod datasets;
mod history;
mod importable;
mod pool;
mod properties;
mod vdevs;

pub use importable::importable;

use crate::protocol::{Answer, Identity, MountReport, Refusal, Request};
use rzfs_dsl::{Pool, PoolError};
use std::hash::{BuildHasher, RandomState};

/// Answers requests about one pool.
#[derive(Debug)]
pub struct PoolService {
    pool: Pool,
    /// What OpenZFS calls `load_guid`: another number every time a pool is opened.
    load_guid: u64,
}

impl PoolService {
    /// The service for a pool.
    #[must_use]
    pub fn new(pool: Pool) -> Self {
        let load_guid = RandomState::new().hash_one(pool.guid().get());
        Self { pool, load_guid }
    }

    /// The pool.
    #[must_use]
    pub const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Answers a request; `mounts` are the pool's mounts at this moment. Only whoever made the
    /// mounts can end them, so [`Request::Unmount`] is refused here.
    #[must_use]
    pub fn answer(&self, request: &Request, mounts: &[MountReport]) -> Answer {
        match request {
            Request::Identify => Answer::Identity(Identity {
                pool: self.pool.name().to_owned(),
                guid: self.pool.guid().get(),
                process: std::process::id(),
            }),
            Request::Pool => match pool::report(&self.pool, self.load_guid) {
                Ok(report) => Answer::Pool(Box::new(report)),
                Err(error) => self.failed(&error),
            },
            Request::History => match history::report(&self.pool) {
                Ok(history) => Answer::History(history),
                Err(error) => self.failed(&error),
            },
            Request::Datasets(query) => {
                Answer::Datasets(datasets::list(self.pool.datasets(), query, mounts))
            }
            Request::Mounts => Answer::Mounts(mounts.to_vec()),
            Request::Unmount { .. } => Answer::Failed(Refusal {
                message: format!("cannot unmount '{}': not currently mounted", self.pool.name()),
            }),
        }
    }

    fn failed(&self, error: &PoolError) -> Answer {
        let message = format!("cannot read pool '{}': {error}", self.pool.name());
        Answer::Failed(Refusal { message })
    }
}
