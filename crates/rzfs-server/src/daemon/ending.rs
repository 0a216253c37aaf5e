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
            let ended = endings.start(mounted, Ending::FORCED).await?;
            return has_ended(mounted.as_ref(), ended).map(drop);
        }
        tokio::time::sleep(GLANCE).await;
    }
    Ok(())
}

/// The end that signals ask for, where nobody is there to try again: what is in use is detached.
/// Others are answered meanwhile.
#[derive(Debug, Default)]
pub(super) struct AskedBySignal(Option<JoinHandle<Result<(), Refusal>>>);

impl AskedBySignal {
    /// Begins it, unless it is under way.
    pub(super) fn begin(&mut self, mounted: &Arc<impl Mounted>, endings: &Endings) {
        self.0.get_or_insert_with(|| endings.start(mounted, Ending::FORCED));
    }

    /// Waits for what comes of it, for ever as long as it has not begun; tells whether the pool is
    /// unmounted. It may be dropped while it waits.
    ///
    /// # Errors
    /// The pool is let go of, but something is lost.
    pub(super) async fn outcome(&mut self, mounted: &impl Mounted) -> Result<bool, DaemonError> {
        let Some(under_way) = &mut self.0 else { return std::future::pending().await };
        let ended = under_way.await;
        self.0 = None;
        has_ended(mounted, ended?)
    }

    /// The same if it has begun.
    ///
    /// # Errors
    /// As [`Self::outcome`].
    pub(super) async fn finish(&mut self, mounted: &impl Mounted) -> Result<(), DaemonError> {
        match self.0 {
            Some(_) => self.outcome(mounted).await.map(drop),
            None => Ok(()),
        }
    }
}

/// Whether a pool is unmounted by an end that was forced.
///
/// # Errors
/// The pool is let go of, but something is lost.
fn has_ended(mounted: &impl Mounted, ended: Result<(), Refusal>) -> Result<bool, DaemonError> {
    match ended {
        Ok(()) => Ok(true),
        Err(refusal) if mounted.is_over() => Err(DaemonError::Ended(refusal)),
        Err(refusal) => {
            tracing::error!(%refusal, "unmount");
            Ok(false)
        }
    }
}
