//! Handles signals before a pool is served.
//!
//! ```text
//! opening   the process exits, as in a crash: no client has been told of the pool
//! mounting  waits for the devices of a suspended pool end
//! serving   the daemon handles them, including earlier ones
//! ```
//! Opening and mounting finish soon unless devices block them, so a short delay lets them finish by
//! themselves.

use super::signals::{GLANCE, LAST_PATIENCE, signals};
use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::oneshot;

/// The progress of a process towards serving a pool.
enum Stage {
    Opening,
    /// With the action that stops waits for devices of a suspended pool.
    Mounting(Box<dyn Fn() + Send>),
    Serving,
}

/// The next step of a process that is to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Exit,
    LookAgain,
    Nothing,
}

/// The thread that handles signals until the daemon does. It ends with this value.
pub(super) struct Beginning {
    stage: Arc<Mutex<Stage>>,
    _ends: oneshot::Sender<Infallible>,
}

impl std::fmt::Debug for Beginning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Beginning").finish_non_exhaustive()
    }
}

fn locked(stage: &Mutex<Stage>) -> MutexGuard<'_, Stage> {
    stage.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Beginning {
    /// Waits for signals; `socket` is removed on exit.
    pub(super) fn watch(socket: &Path) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let [mut terminate, mut interrupt, mut hangup, mut quit] = {
            let _registered = runtime.enter();
            signals()?
        };
        let (ends, over) = oneshot::channel();
        let stage = Arc::new(Mutex::new(Stage::Opening));
        let (shared, socket) = (Arc::clone(&stage), socket.to_owned());
        let work = move || {
            let came = runtime.block_on(async {
                tokio::select! {
                    _ = terminate.recv() => true,
                    _ = interrupt.recv() => true,
                    _ = hangup.recv() => true,
                    _ = quit.recv() => true,
                    _ = over => false,
                }
            });
            if came {
                end_on_signal(&shared, socket);
            }
        };
        std::thread::Builder::new().name("rzfs-signals".to_owned()).spawn(work)?;
        Ok(Self { stage, _ends: ends })
    }

    /// Notes that the pool is open: from now on a signal calls `relieve`.
    pub(super) fn mounting(&self, relieve: impl Fn() + Send + 'static) {
        *locked(&self.stage) = Stage::Mounting(Box::new(relieve));
    }
}

impl Drop for Beginning {
    fn drop(&mut self) {
        *locked(&self.stage) = Stage::Serving;
    }
}

impl Stage {
    fn step(&self, came: Instant) -> Step {
        match self {
            Self::Opening if came.elapsed() < LAST_PATIENCE => Step::LookAgain,
            Self::Opening => Step::Exit,
            Self::Mounting(relieve) => {
                relieve();
                Step::LookAgain
            }
            Self::Serving => Step::Nothing,
        }
    }
}

/// Brings a process that received a signal to its end.
fn end_on_signal(stage: &Mutex<Stage>, socket: PathBuf) {
    const ENDED_BY_SIGNAL: i32 = 1;
    let came = Instant::now();
    loop {
        let locked = locked(stage);
        match locked.step(came) {
            Step::Exit => {
                // Still locked, so nothing gets mounted meanwhile.
                let _ = std::fs::remove_file(socket);
                std::process::exit(ENDED_BY_SIGNAL);
            }
            Step::LookAgain => {}
            Step::Nothing => return,
        }
        drop(locked);
        std::thread::sleep(GLANCE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    #[test]
    fn a_process_that_opens_its_pool_ends_and_one_that_mounts_is_relieved() {
        let now = Instant::now();
        let long_ago = now.checked_sub(LAST_PATIENCE + Duration::from_secs(1)).unwrap();
        assert_eq!(Stage::Opening.step(now), Step::LookAgain);
        assert_eq!(Stage::Opening.step(long_ago), Step::Exit);
        let relieved = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&relieved);
        let mounting = Stage::Mounting(Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        assert_eq!(mounting.step(long_ago), Step::LookAgain);
        assert_eq!(relieved.load(Ordering::Relaxed), 1);
        assert_eq!(Stage::Serving.step(long_ago), Step::Nothing);
    }
}
