//! What moves the bytes of file devices: one engine for any number of them.
//!
//! A pool may have hundreds of leaves, and a batch of block reads touches many of them. One shared
//! engine submits such a batch to the kernel at once and has one place where answers arrive; an
//! engine for each leaf would cost a thread and a ring per leaf and a wake-up per leaf per batch.

mod portable;
pub(crate) mod transfer;

use portable::ThreadPool;
use std::fmt;
use std::io;
use std::sync::Arc;
use transfer::Transfer;

/// The environment variable that overrules [`Backend::Automatic`]: `io_uring` or `portable`.
pub const BACKEND_VARIABLE: &str = "RZFS_IO_BACKEND";

/// How requests reach the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Backend {
    /// What the environment variable [`BACKEND_VARIABLE`] says, else the best that works.
    #[default]
    Automatic,
    /// Blocking calls on a small pool of threads.
    Portable,
}

/// What an [`IoEngine`] is made with.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// How requests reach the kernel.
    pub backend: Backend,
    /// The most threads of the portable backend, which is also the most requests that it has the
    /// kernel work on at the same time.
    pub max_threads: usize,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self { backend: Backend::Automatic, max_threads: 32 }
    }
}

/// Moves the bytes of any number of [`FileDevice`](crate::FileDevice)s; clones are the same
/// engine.
///
/// When the last device and the last clone have gone, everything that was submitted is answered
/// first, then the engine's threads end.
#[derive(Clone)]
pub struct IoEngine {
    driver: Arc<Driver>,
}

#[derive(Debug)]
enum Driver {
    Portable(ThreadPool),
}

impl IoEngine {
    /// Starts an engine.
    ///
    /// # Errors
    /// What the system says when no thread can be started.
    pub fn new(options: &EngineOptions) -> io::Result<Self> {
        let driver = match options.backend {
            Backend::Automatic | Backend::Portable => {
                Driver::Portable(ThreadPool::new(options.max_threads)?)
            }
        };
        Ok(Self { driver: Arc::new(driver) })
    }

    /// The backend in use, never [`Backend::Automatic`].
    #[must_use]
    pub fn backend(&self) -> Backend {
        match *self.driver {
            Driver::Portable(_) => Backend::Portable,
        }
    }

    pub(crate) fn submit(&self, transfers: Vec<Transfer>) {
        match &*self.driver {
            Driver::Portable(pool) => pool.submit(transfers),
        }
    }
}

impl fmt::Debug for IoEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.driver.fmt(f)
    }
}
