//! Opens files named by untrusted or mistaken sources: a property of a pool, a command line.
//!
//! Opening a FIFO waits for a writer, opening a device may have side effects, and reading either
//! may never end. So the file at a path is examined before it is opened, without opening it.

use rustix::fs::{FileType, Mode, OFlags, fstat};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::Path;

/// The accepted kinds of files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accepted {
    /// Regular files.
    Files,
    /// Regular files and block devices.
    FilesAndBlockDevices,
}

impl Accepted {
    fn covers(self, kind: FileType) -> bool {
        match kind {
            FileType::RegularFile => true,
            FileType::BlockDevice => self == Self::FilesAndBlockDevices,
            _ => false,
        }
    }

    const fn refusal(self) -> &'static str {
        match self {
            Self::Files => "not a regular file",
            Self::FilesAndBlockDevices => "neither a regular file nor a block device",
        }
    }
}

/// Opens a file for reading. Links are followed.
///
/// # Errors
/// Of kind [`io::ErrorKind::InvalidInput`] if its kind is not accepted; nothing was opened then.
pub fn open(path: &Path, accepted: Accepted) -> io::Result<File> {
    let looked_at = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    if !accepted.covers(FileType::from_raw_mode(fstat(&looked_at)?.st_mode)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, accepted.refusal()));
    }
    // Opens the examined file, whatever has its name by now.
    File::open(format!("/proc/self/fd/{}", looked_at.as_raw_fd()))
}

/// Reads a regular file of at most `limit` bytes.
///
/// # Errors
/// As [`open`]; of kind [`io::ErrorKind::FileTooLarge`] if it is larger.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path, Accepted::Files)?.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > limit {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, mknodat};

    #[test]
    fn nothing_but_files_is_opened_and_nothing_large_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let [file, fifo] = ["file", "fifo"].map(|name| directory.path().join(name));
        std::fs::write(&file, "12345").unwrap();
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert_eq!(read(&file, 5).unwrap(), b"12345");
        assert_eq!(read(&file, 4).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        for special in [&fifo, Path::new("/dev/zero"), directory.path()] {
            for accepted in [Accepted::Files, Accepted::FilesAndBlockDevices] {
                let refused = open(special, accepted).unwrap_err();
                assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{special:?}");
            }
        }
        let missing = open(&directory.path().join("none"), Accepted::Files).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
