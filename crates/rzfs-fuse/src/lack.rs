//! What mounting needs of a system that has it not.

use crate::attachment::{helper, open_device};
use crate::place::without_number;
use rustix::io::Errno;
use std::io::{self, ErrorKind};

/// What is missing, in words that say what to do.
#[derive(Debug, thiserror::Error)]
pub enum Lack {
    /// There is no device for the requests of mounts.
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

impl From<Lack> for io::Error {
    fn from(lack: Lack) -> Self {
        let kind = match &lack {
            Lack::Device | Lack::Helper => ErrorKind::NotFound,
            // It says nothing of the mount.
            Lack::NoRun(_) => ErrorKind::Other,
        };
        Self::new(kind, lack)
    }
}

impl Lack {
    /// What is missing if the device cannot be opened.
    pub(crate) fn of_device(error: Errno) -> io::Error {
        match error {
            Errno::NOENT | Errno::NXIO | Errno::NODEV => Self::Device.into(),
            error => error.into(),
        }
    }

    /// Looks for the device.
    pub(crate) fn check_device() -> io::Result<()> {
        match open_device().map_err(Self::of_device) {
            Err(missing) if missing.kind() == ErrorKind::NotFound => Err(missing),
            // Whoever needs it is told.
            _ => Ok(()),
        }
    }

    /// What is missing if something that a mount through the helper needs was not found.
    pub(crate) fn of_helped(error: io::Error) -> io::Error {
        // A directory of the search path that this user may not enter counts more for who looks
        // for programs than that there are none in the others.
        let is_absent = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied);
        match helper() {
            None if is_absent => Self::Helper.into(),
            _ => error,
        }
    }
}
