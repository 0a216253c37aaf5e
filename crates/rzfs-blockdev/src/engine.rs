//! Performs the I/O of file devices: one engine for any number of them.
//!
//! A pool may have hundreds of leaves, and a batch of block reads touches many of them. One shared
//! engine submits such a batch to the kernel at once and has one place where completions arrive; an
//! engine for each leaf would cost a thread and a ring per leaf and a wake-up per leaf per batch.

mod portable;
mod ring;
pub(crate) mod transfer;

use crate::open_file::OpenFile;
use crate::pool::BufferPool;
use portable::ThreadPool;
use ring::Ring;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use transfer::Transfer;

/// The environment variable that decides for [`Backend::Automatic`]: `automatic`, `io_uring` or
/// `portable`.
pub const BACKEND_VARIABLE: &str = "RZFS_IO_BACKEND";

/// How requests reach the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Backend {
    /// As set by the environment variable [`BACKEND_VARIABLE`]; by default io_uring where the
    /// kernel allows it, else the portable backend.
    #[default]
    Automatic,
    /// One io_uring (Linux 5.6 or newer; best since 6.1).
    IoUring,
    /// Blocking calls on a small pool of threads.
    Portable,
}

/// The options of an [`IoEngine`].
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// How requests reach the kernel.
    pub backend: Backend,
    /// io_uring: maximum number of concurrent requests in the kernel.
    pub queue_depth: u32,
    /// Portable: the most threads, which is also the most requests that the kernel works on at
    /// the same time.
    pub max_threads: usize,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self { backend: Backend::Automatic, queue_depth: 1024, max_threads: 32 }
    }
}

/// Performs the I/O of any number of [`FileDevice`](crate::FileDevice)s; clones share the same
/// engine.
///
/// When the last device and the last clone are gone, everything submitted is completed first, then
/// the engine's threads end.
#[derive(Clone)]
pub struct IoEngine {
    inner: Arc<Inner>,
}

struct Inner {
    driver: Driver,
    pool: Arc<BufferPool>,
    next_file: AtomicU64,
}

#[derive(Debug)]
enum Driver {
    Ring(Ring),
    Threads(ThreadPool),
}

impl IoEngine {
    /// Starts an engine.
    ///
    /// # Errors
    /// The system's error when no thread can be started, or when [`Backend::IoUring`] is requested
    /// and refused; `InvalidInput` for an unknown value of the environment variable.
    pub fn new(options: &EngineOptions) -> io::Result<Self> {
        let backend = match options.backend {
            Backend::Automatic => backend_from(std::env::var_os(BACKEND_VARIABLE).as_deref())?,
            backend => backend,
        };
        let threads = || ThreadPool::new(options.max_threads).map(Driver::Threads);
        let pool = BufferPool::new();
        let ring = || Ring::new(options.queue_depth, Arc::clone(&pool));
        let driver = match backend {
            Backend::Portable => threads()?,
            Backend::IoUring => Driver::Ring(ring()?),
            Backend::Automatic => match ring() {
                Ok(ring) => Driver::Ring(ring),
                Err(error) => {
                    tracing::info!(%error, "no io_uring; using threads");
                    threads()?
                }
            },
        };
        Ok(Self { inner: Arc::new(Inner { driver, pool, next_file: AtomicU64::new(0) }) })
    }

    /// The backend in use, never [`Backend::Automatic`].
    #[must_use]
    pub fn backend(&self) -> Backend {
        match self.inner.driver {
            Driver::Ring(_) => Backend::IoUring,
            Driver::Threads(_) => Backend::Portable,
        }
    }

    /// A number unique among this engine's files.
    pub(crate) fn next_file_id(&self) -> u64 {
        self.inner.next_file.fetch_add(1, Ordering::Relaxed)
    }

    /// The buffers that the engine transfers into best.
    pub(crate) fn pool(&self) -> &Arc<BufferPool> {
        &self.inner.pool
    }

    pub(crate) fn submit(&self, transfers: Vec<Transfer>) {
        match &self.inner.driver {
            Driver::Ring(ring) => ring.submit(transfers),
            Driver::Threads(pool) => pool.submit(transfers),
        }
    }

    /// Releases a file that is about to be closed.
    pub(crate) fn forget(&self, file: &OpenFile) {
        match &self.inner.driver {
            Driver::Ring(ring) => ring.forget(file.id()),
            Driver::Threads(_) => {}
        }
    }
}

impl fmt::Debug for IoEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.driver.fmt(f)
    }
}

/// The backend requested by the environment.
fn backend_from(variable: Option<&OsStr>) -> io::Result<Backend> {
    match variable.map(OsStr::as_encoded_bytes) {
        None | Some(b"" | b"automatic") => Ok(Backend::Automatic),
        Some(b"io_uring") => Ok(Backend::IoUring),
        Some(b"portable") => Ok(Backend::Portable),
        Some(_) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{BACKEND_VARIABLE} must be automatic, io_uring or portable"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_chooses_the_backend() {
        let chosen = |word: &str| backend_from(Some(OsStr::new(word)));
        assert_eq!(backend_from(None).unwrap(), Backend::Automatic);
        assert_eq!(chosen("").unwrap(), Backend::Automatic);
        assert_eq!(chosen("automatic").unwrap(), Backend::Automatic);
        assert_eq!(chosen("io_uring").unwrap(), Backend::IoUring);
        assert_eq!(chosen("portable").unwrap(), Backend::Portable);
        assert_eq!(chosen("io-uring").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn an_engine_says_what_it_is() {
        let options = EngineOptions { backend: Backend::Portable, ..EngineOptions::default() };
        assert_eq!(IoEngine::new(&options).unwrap().backend(), Backend::Portable);
        let automatic = IoEngine::new(&EngineOptions::default()).unwrap();
        assert_ne!(automatic.backend(), Backend::Automatic);
    }
}
