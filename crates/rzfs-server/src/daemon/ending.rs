//! Letting go of the pool.

use super::error::DaemonError;
use super::mounted::{Ending, Mounted};
use super::runtime::runtime;
use super::signals::GLANCE;
use crate::protocol::Refusal;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

/// The threads that let go of the pool. Those of the runtime may be few, and all of them may wait
/// for devices; so may an end that nobody forces, and one that is forced has it wait no more.
#[derive(Debug)]
pub(super) struct EndingThreads {
    unforced: Runtime,
    forced: Runtime,
}

impl EndingThreads {
    pub(super) fn start() -> io::Result<Self> {
        let one = || runtime(Builder::new_current_thread().max_blocking_threads(1));
        Ok(Self { unforced: one()?, forced: one()? })
    }

    pub(super) fn handles(&self) -> Endings {
        let [unforced, forced] = [&self.unforced, &self.forced].map(|one| one.handle().clone());
        Endings { unforced, forced }
    }

    pub(super) fn shut_down(self, patience: Duration) {
        self.unforced.shutdown_timeout(patience);
        self.forced.shutdown_timeout(patience);
    }
}

/// How [`EndingThreads`] are put to work.
#[derive(Clone, Debug)]
pub(super) struct Endings {
    unforced: Handle,
    forced: Handle,
}

impl Endings {
    /// Ends the mounts of a pool without waiting for anybody's request.
    pub(super) fn start(
        &self,
        mounted: &Arc<impl Mounted>,
        ending: Ending,
    ) -> JoinHandle<Result<(), Refusal>> {
        let mounted = Arc::clone(mounted);
        let thread = if ending.force { &self.forced } else { &self.unforced };
        thread.spawn_blocking(move || mounted.end(ending))
    }
}

/// Lets go of a pool of which nothing is mounted any more; not while it waits for its devices, as
/// nobody has given up what it keeps.
pub(super) async fn leave(
    mounted: &Arc<impl Mounted>,
    endings: &Endings,
) -> Result<(), DaemonError> {
    while endings.start(mounted, Ending::UNFORCED).await?.is_err() {
        if !mounted.is_waiting() {
            return end(mounted, endings).await.map(drop);
        }
        tokio::time::sleep(GLANCE).await;
    }
    Ok(())
}

/// Unmounts where nobody is there to try again: what is in use is detached. Tells whether it is
/// unmounted.
///
/// # Errors
/// The pool is let go of, but something is lost.
pub(super) async fn end(
    mounted: &Arc<impl Mounted>,
    endings: &Endings,
) -> Result<bool, DaemonError> {
    match endings.start(mounted, Ending::FORCED).await? {
        Ok(()) => Ok(true),
        Err(refusal) if mounted.is_over() => Err(DaemonError::Ended(refusal)),
        Err(refusal) => {
            tracing::error!(%refusal, "unmount");
            Ok(false)
        }
    }
}
