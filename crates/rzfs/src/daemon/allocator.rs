//! How the allocator of the process that mounts gives memory back.
//!
//! glibc maps large buffers on their own, but each time that it frees one it raises the size from
//! which it does: then blocks of many MiB, and the buffers of FUSE sessions (16 MiB each, of which
//! but a page is ever touched), come from heaps that clear them and keep them, and the process
//! needs several times the memory that its caches are allowed. glibc leaves the size alone when it
//! is told one, and it can be told when a program starts, by its environment.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The variable that glibc looks at; other C libraries do not mind.
const VARIABLE: &str = "GLIBC_TUNABLES";

/// Buffers from 1 MiB on are mapped, the top of the heap shrinks when there is more than 4 MiB to
/// gain, and threads share a few heaps.
const TUNABLES: &str = "glibc.malloc.mmap_threshold=1048576:glibc.malloc.mmap_max=65536:\
                        glibc.malloc.trim_threshold=4194304:glibc.malloc.arena_max=4";

/// Has a program that is to be started use memory sparingly, unless the user knows better.
pub(crate) fn tune(command: &mut Command) -> &mut Command {
    match std::env::var_os(VARIABLE) {
        Some(_) => command,
        None => command.env(VARIABLE, TUNABLES),
    }
}

/// Starts this program again in its own place, if it was not started as [`tune`] would have.
pub(crate) fn restart_tuned(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) {
    if !cfg!(target_env = "gnu") || std::env::var_os(VARIABLE).is_some() {
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    let error = tune(Command::new(program).args(arguments)).exec();
    tracing::warn!(%error, "more memory than necessary will be used");
}
