//! How the allocator of the process that mounts gives memory back.
//!
//! jemalloc keeps what is freed for ten seconds, in four arenas for each processor, and purges it
//! when somebody allocates or frees in the same arena. A file system that is idle does neither. So
//! the process that mounts has it purge from a thread of its own, and soon. jemalloc can be told
//! when a program starts, by its environment.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The variable that jemalloc looks at.
const VARIABLE: &str = "MALLOC_CONF";

/// What is free goes back to the system after a second, also when nothing happens, and threads
/// share a few arenas.
const TUNABLES: &str = "background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0,narenas:4";

/// Has a program that is to be started use memory sparingly, unless the user knows better.
pub(crate) fn tune(command: &mut Command) -> &mut Command {
    match std::env::var_os(VARIABLE) {
        Some(_) => command,
        None => command.env(VARIABLE, TUNABLES),
    }
}

/// Starts this program again in its own place, unless its allocator was told when it started how to
/// give memory back: as a process in the background is told.
pub fn restart_tuned(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) {
    if std::env::var_os(VARIABLE).is_some() {
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    let error = tune(Command::new(program).args(arguments)).exec();
    tracing::warn!(%error, "more memory than necessary will be used");
}
