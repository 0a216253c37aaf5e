//! The runtimes of a daemon, and what the system has to give for them.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::io;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// Lets the process have as many descriptors as the system admits: each mount takes one for every
/// thread that answers.
pub(super) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    // With what there is fewer mounts are possible, which whoever mounts is told.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Checks that there are descriptors for runtimes and signals, which panic without.
pub(super) fn check_descriptors() -> io::Result<()> {
    const NEEDED: usize = 12;
    let null = File::open("/dev/null")?;
    let held: io::Result<Vec<_>> = (0..NEEDED).map(|_| null.try_clone()).collect();
    held.map(drop)
}

/// A runtime with a thread for what blocks, which it never gives back: the process can be asked
/// something also when the system has no more threads for it.
pub(super) fn runtime(builder: &mut Builder) -> io::Result<Runtime> {
    const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);
    let runtime = builder.thread_keep_alive(FOR_EVER).build()?;
    // The runtime would panic without a first thread.
    let tried = std::thread::Builder::new().spawn(|| ())?;
    let _ = tried.join();
    runtime.spawn_blocking(|| ());
    Ok(runtime)
}
