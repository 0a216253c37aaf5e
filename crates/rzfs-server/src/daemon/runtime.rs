//! The runtimes of a daemon, and the resources they need.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::io;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// Raises the descriptor limit to the system's maximum: each mount needs one descriptor per request
/// thread.
pub(super) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    // Fewer descriptors allow fewer mounts, which then fail with an error.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Checks that there are enough descriptors for runtimes and signals, which would panic.
pub(super) fn check_descriptors() -> io::Result<()> {
    const NEEDED: usize = 12;
    let null = File::open("/dev/null")?;
    let held: io::Result<Vec<_>> = (0..NEEDED).map(|_| null.try_clone()).collect();
    held.map(drop)
}

/// A runtime with a permanent thread for blocking work: the process can be queried even when the
/// system has no threads left.
pub(super) fn runtime(builder: &mut Builder) -> io::Result<Runtime> {
    const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);
    let runtime = builder.thread_keep_alive(FOR_EVER).build()?;
    // The runtime would panic without a first thread.
    let tried = std::thread::Builder::new().spawn(|| ())?;
    let _ = tried.join();
    runtime.spawn_blocking(|| ());
    Ok(runtime)
}
