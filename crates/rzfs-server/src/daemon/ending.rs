//! Closes the pool.

use super::error::DaemonError;
use super::mounted::{Activity, Ending, Mounted};
use super::runtime::runtime;
use super::signals::GLANCE;
use crate::protocol::Refusal;
use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::{JoinError, JoinHandle};

/// The threads that close the pool. Those of the runtime may be few, and all may wait for devices;
/// so may an unforced end, whose wait a forced one stops.
#[derive(Debug)]
pub(super) struct EndingThreads {
    unforced: Runtime,
    forced: Runtime,
    patience: Duration,
}

/// How long devices may be idle during a forced end: a device with a bad sector may take a minute
/// over it.
pub(super) const IDLE_LIMIT: Duration = Duration::from_secs(60);

impl EndingThreads {
    /// Threads for ends; a forced one abandons the pool once its devices are idle this long.
    pub(super) fn start(patience: Duration) -> io::Result<Self> {
        let one = || runtime(Builder::new_current_thread().max_blocking_threads(1));
        Ok(Self { unforced: one()?, forced: one()?, patience })
    }

    pub(super) fn handles(&self) -> Endings {
        let [unforced, forced] = [&self.unforced, &self.forced].map(|one| one.handle().clone());
        Endings { unforced, forced, patience: self.patience }
    }

    pub(super) fn shut_down(self, patience: Duration) {
        self.unforced.shutdown_timeout(patience);
        self.forced.shutdown_timeout(patience);
    }
}

/// A handle to [`EndingThreads`].
#[derive(Clone, Debug)]
pub(super) struct Endings {
    unforced: Handle,
    forced: Handle,
    patience: Duration,
}

impl Endings {
    /// Ends the mounts of a pool without waiting for pending requests. A forced end does not wait
    /// for unresponsive devices either: the threads that do end with the process.
    pub(super) fn start(
        &self,
        mounted: &Arc<impl Mounted>,
        ending: Ending,
    ) -> JoinHandle<Result<(), Refusal>> {
        let (force, manner) = (ending.force, ending.manner);
        let thread = if force { &self.forced } else { &self.unforced };
        let activity = mounted.activity().filter(|_| force);
        let ended = {
            let mounted = Arc::clone(mounted);
            thread.spawn_blocking(move || mounted.end(ending))
        };
        let Some(activity) = activity else { return ended };
        let (mounted, patience) = (Arc::clone(mounted), self.patience);
        tokio::spawn(async move {
            tokio::select! {
                ended = ended => match ended.map_err(JoinError::try_into_panic) {
                    Ok(ended) => ended,
                    Err(Ok(panic)) => resume_unwind(panic),
                    Err(Err(_)) => Ok(()),
                },
                () = silence(activity, patience) => Err(mounted.give_up(manner)),
            }
        })
    }
}

/// Waits until devices have been idle for this long; for ever if they are closed before.
async fn silence(activity: Activity, patience: Duration) {
    while let Some(before) = activity() {
        tokio::time::sleep(patience).await;
        if activity() == Some(before) {
            return;
        }
    }
    std::future::pending().await
}

/// Closes a pool whose mounts are all gone; but not while it waits for its devices, as its
/// unwritten data are not given up yet.
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

/// The end requested by signals, which cannot be retried: mounts in use are detached. Requests are
/// served meanwhile.
#[derive(Debug, Default)]
pub(super) struct AskedBySignal(Option<JoinHandle<Result<(), Refusal>>>);

impl AskedBySignal {
    /// Starts it, unless it is under way.
    pub(super) fn begin(&mut self, mounted: &Arc<impl Mounted>, endings: &Endings) {
        self.0.get_or_insert_with(|| endings.start(mounted, Ending::FORCED));
    }

    /// Waits for its outcome, for ever if it has not begun; returns whether the pool is unmounted.
    /// Cancel-safe.
    ///
    /// # Errors
    /// The pool is closed, but data are lost.
    pub(super) async fn outcome(&mut self, mounted: &impl Mounted) -> Result<bool, DaemonError> {
        let Some(under_way) = &mut self.0 else { return std::future::pending().await };
        let ended = under_way.await;
        self.0 = None;
        has_ended(mounted, ended?)
    }

    /// The same, if it has begun.
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

/// Whether a forced end has unmounted the pool.
///
/// # Errors
/// The pool is closed, but data are lost.
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
