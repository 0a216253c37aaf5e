//! Tunes the allocator of the mounting process to return memory.
//!
//! jemalloc keeps freed memory for ten seconds, in four arenas per processor, and purges it when a
//! thread allocates or frees in the same arena. An idle file system does neither. So the mounting
//! process makes it purge soon, from a background thread. jemalloc reads its settings from the
//! environment when a program starts.

use crate::privileges;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The environment variable of jemalloc.
const VARIABLE: &str = "MALLOC_CONF";

/// Freed memory returns to the system after a second, even when idle, and threads share a few
/// arenas.
const TUNABLES: &str = "background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0,narenas:4";

/// Makes a new process use memory sparingly, unless the user has set the variable.
pub(crate) fn tune(command: &mut Command) -> &mut Command {
    match std::env::var_os(VARIABLE) {
        Some(_) => command,
        None => command.env(VARIABLE, TUNABLES),
    }
}

/// Re-executes this program with the allocator settings of a background process, unless the
/// environment already has settings.
pub fn restart_tuned(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) {
    if std::env::var_os(VARIABLE).is_some() {
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    privileges::limit_programs();
    let error = tune(Command::new(program).args(arguments)).exec();
    tracing::warn!(%error, "more memory than necessary will be used");
}
