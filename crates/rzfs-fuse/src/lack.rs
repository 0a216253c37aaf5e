//! Prerequisites for mounting that the system may lack.

use crate::place::without_number;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

/// A missing prerequisite, in words that say what to do.
#[derive(Debug, thiserror::Error)]
pub enum MissingPrerequisite {
    /// There is no device for FUSE requests.
    #[error(
        "/dev/fuse is not there: load the kernel's module ('modprobe fuse'), or hand the device to \
         the container ('--device /dev/fuse')"
    )]
    Device,
    /// There is no helper for users without root rights.
    #[error("fusermount3 is not there: install the package 'fuse3'")]
    Helper,
    /// There is one, but this user may not run it.
    #[error("fusermount3 cannot be run: {}", without_number(.0))]
    NoRun(io::Error),
}

impl From<MissingPrerequisite> for io::Error {
    fn from(lack: MissingPrerequisite) -> Self {
        let kind = match &lack {
            MissingPrerequisite::Device | MissingPrerequisite::Helper => ErrorKind::NotFound,
            // This says nothing about the mount.
            MissingPrerequisite::NoRun(_) => ErrorKind::Other,
        };
        Self::new(kind, lack)
    }
}

impl MissingPrerequisite {
    /// The prerequisite that is missing if the device cannot be opened.
    pub(crate) fn of_device(error: Errno) -> io::Error {
        match error {
            Errno::NOENT | Errno::NXIO | Errno::NODEV => Self::Device.into(),
            error => error.into(),
        }
    }

    /// Checks that the device exists.
    pub(crate) fn check_device() -> io::Result<()> {
        match open_device().map_err(Self::of_device) {
            Err(missing) if missing.kind() == ErrorKind::NotFound => Err(missing),
            // Later opens report other errors.
            _ => Ok(()),
        }
    }

    /// The prerequisite that is missing if a mount through the helper failed to find something.
    pub(crate) fn of_helped(error: io::Error) -> io::Error {
        // Program lookup prefers reporting an inaccessible directory of the search path over the
        // program's absence in the others.
        let is_absent = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied);
        match helper() {
            None if is_absent => Self::Helper.into(),
            _ => error,
        }
    }
}

/// Opens the device for the requests of a new mount.
pub(crate) fn open_device() -> Result<OwnedFd, Errno> {
    rustix::fs::open(c"/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

/// The helper that may mount and unmount, searched for as `fuser` does, so that the program that
/// mounted also unmounts; `None` if there is none.
pub(crate) fn helper() -> Option<PathBuf> {
    const USUAL: [&str; 6] = [
        "fusermount3",
        "fusermount",
        "/sbin/fusermount3",
        "/sbin/fusermount",
        "/bin/fusermount3",
        "/bin/fusermount",
    ];
    match std::env::var_os("FUSERMOUNT_PATH") {
        Some(named) => program(&named),
        None => USUAL.iter().find_map(|name| program(OsStr::new(name))),
    }
}

/// The program with a name, found along the search path unless the name is absolute.
fn program(name: &OsStr) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|at| at.join(name)).find(|at| at.is_file())
}
