//! The kernel's information about this process: `/proc/self`.
//!
//! Unmounting needs it: it has the mount table, and paths to open files. Something may be mounted
//! over `/proc` before all mounts have ended, so the directory is held open from before the first
//! mount. Without it nothing is mounted.

use nix::sched::{CloneFlags, unshare};
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, PROC_SUPER_MAGIC, StatxFlags, fstatfs, openat, statx,
};
use rustix::process::fchdir;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;

const PATH: &str = "/proc/self";

/// The directory: one per process, as it is about the process.
static HELD: OnceLock<OwnedFd> = OnceLock::new();

/// Holds the process directory open, which ending mounts needs: something may be mounted over it
/// later. Otherwise the first mount does so.
///
/// # Errors
/// There is no such file system at `/proc`.
pub fn hold_process_files() -> io::Result<()> {
    directory().map(drop)
}

fn directory() -> io::Result<BorrowedFd<'static>> {
    if let Some(held) = HELD.get() {
        return Ok(held.as_fd());
    }
    let found = look()?;
    Ok(HELD.get_or_init(|| found).as_fd())
}

/// Opens the directory currently at the path.
fn look() -> io::Result<OwnedFd> {
    let fail = |error: io::Error| io::Error::new(error.kind(), format!("{PATH}: {error}"));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let found = rustix::fs::open(PATH, flags, Mode::empty());
    let found = found.map_err(|error| fail(error.into()))?;
    match fstatfs(&found) {
        Ok(system) if system.f_type == PROC_SUPER_MAGIC => Ok(found),
        Ok(_) => Err(fail(io::Error::other("not in the file system of processes"))),
        Err(error) => Err(fail(error.into())),
    }
}

/// The table of all mounts that this process can see.
///
/// # Errors
/// It cannot be read, which says nothing about the mounts.
pub(crate) fn table_of_mounts() -> io::Result<Vec<u8>> {
    let read = || {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let mut table = Vec::new();
        // By path as long as that exists: the caller may have its own descriptor table.
        let found = look();
        let directory = found.as_ref().map_or_else(|_| directory(), |found| Ok(found.as_fd()));
        File::from(openat(directory?, c"mountinfo", flags, Mode::empty())?)
            .read_to_end(&mut table)?;
        Ok(table)
    };
    read().map_err(|error: io::Error| {
        io::Error::new(error.kind(), format!("the table of mounts cannot be read: {error}"))
    })
}

/// Calls `act` with a path that leads to an open file, or to an entry below an open directory,
/// wherever that is by now.
///
/// # Errors
/// There is no such path.
pub(crate) fn with_held_path<T: Send>(
    file: BorrowedFd<'_>,
    below: &Path,
    act: impl FnOnce(&Path) -> T + Send,
) -> io::Result<T> {
    let held = directory()?;
    let mut path = PathBuf::from(format!("fd/{}", file.as_raw_fd()));
    if !below.as_os_str().is_empty() {
        path.push(below);
    }
    if look().is_ok() {
        return Ok(act(&Path::new(PATH).join(path)));
    }
    // It is covered, and calls without a descriptor argument need a starting point: a working
    // directory that no other thread shares.
    let from_there = move || {
        unshare(CloneFlags::CLONE_FS)?;
        fchdir(held)?;
        Ok(act(&path))
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("rzfs-place".to_owned());
        let done = thread.spawn_scoped(scope, from_there)?.join();
        done.unwrap_or_else(|_| Err(ErrorKind::BrokenPipe.into()))
    })
}

/// Whether an open file is in the same file system. No server is asked.
pub(crate) fn is_in_procfs(file: BorrowedFd<'_>) -> bool {
    let device = |file: BorrowedFd<'_>, path: &str, flags| {
        let found = statx(file, path, flags | AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE);
        found.map(|found| (found.stx_dev_major, found.stx_dev_minor)).ok()
    };
    // By path: the caller may have its own descriptor table.
    let own = device(CWD, PATH, AtFlags::empty());
    own.is_some() && own == device(file, "", AtFlags::EMPTY_PATH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_paths_lead_to_what_is_open() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("file"), "here").unwrap();
        let open = File::open(directory.path()).unwrap();
        let read = with_held_path(open.as_fd(), Path::new("file"), |path| std::fs::read(path));
        assert_eq!(read.unwrap().unwrap(), b"here");
        let led = with_held_path(open.as_fd(), Path::new(""), |path| std::fs::read_link(path));
        assert_eq!(led.unwrap().unwrap(), directory.path().canonicalize().unwrap());
        assert!(is_in_procfs(super::directory().unwrap()) && !is_in_procfs(open.as_fd()));
    }
}
