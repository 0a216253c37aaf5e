//! Leaving a pool in good order (spec 01, section 12).

use crate::live::LiveError;
use crate::live::administration::ChangeError;
use crate::live::pool::LivePool;
use rzfs_dmu::txg::Stopped;
use rzfs_format::pool_state::PoolState;
use std::sync::Arc;

impl LivePool {
    /// Writes everything and marks the pool as exported: any host may import it then.
    ///
    /// # Errors
    /// [`NotExported`]: the pool is suspended; its last durable state can be imported with `-f`.
    pub fn export(self) -> Result<(), NotExported> {
        self.end(PoolState::Exported)
    }

    /// Writes everything and marks the pool as destroyed; its contents stay until something else
    /// is made of the devices.
    ///
    /// # Errors
    /// As [`LivePool::export`].
    pub fn destroy(self) -> Result<(), NotExported> {
        self.end(PoolState::Destroyed)
    }

    fn end(self, state: PoolState) -> Result<(), NotExported> {
        let end = || -> Result<(), ChangeError> {
            self.inner().sweeps.end();
            self.sync().map_err(|Stopped| ChangeError::Suspended { reason: self.failure() })?;
            // Importing is faster without logs to replay.
            if state == PoolState::Exported {
                self.inner().allocator.flush_for_export();
            }
            self.administer(move |context| {
                context.state.config.state = state;
                context.vdevs.mark_all_configs_dirty();
                Ok(())
            })?;
            // Nobody else is there to store what a leaf has missed at the very end. The pool is
            // exported already.
            if self.vdevs().has_changed_dirty_times() && self.sync().is_err() {
                tracing::warn!("what a leaf has missed at last is not recorded");
            }
            Ok(())
        };
        let result = end().map_err(|_| NotExported { reason: self.failure() });
        self.stop();
        result
    }
}

/// A pool could not be exported.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the pool is suspended: {}", reason.as_ref().map_or_else(String::new, ToString::to_string))]
pub struct NotExported {
    /// What went wrong with it.
    pub reason: Option<Arc<LiveError>>,
}
