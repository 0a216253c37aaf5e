//! The project of a file on Linux (`FS_IOC_FSGETXATTR`, `FS_IOC_FSSETXATTR`).

use rustix::fd::AsFd;
use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};
use std::io;

/// Linux's attributes of a file, including its project (`struct fsxattr`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct FileProject {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    copied_extent_size: u32,
    _padding: [u32; 2],
}

const _: () = assert!(size_of::<FileProject>() == 28);

/// `FS_IOC_FSGETXATTR`.
const GET: Opcode = opcode::read::<FileProject>(b'X', 31);
/// `FS_IOC_FSSETXATTR`.
const SET: Opcode = opcode::write::<FileProject>(b'X', 32);
/// `FS_XFLAG_PROJINHERIT`.
const INHERITED: u32 = 0x200;

impl FileProject {
    /// Reads the attributes of an open file or directory.
    ///
    /// # Errors
    /// `ENOTTY`: its file system has no projects. As of ioctl(2).
    pub fn of(file: impl AsFd) -> io::Result<Self> {
        // SAFETY: the kernel writes a `struct fsxattr`, which has 28 bytes as this one has, any of
        // which are numbers.
        let call = unsafe { Getter::<GET, Self>::new() };
        // SAFETY: it writes nothing else.
        Ok(unsafe { ioctl(file, call) }?)
    }

    /// Sets the attributes of an open file or directory.
    ///
    /// # Errors
    /// As of ioctl(2).
    pub fn give_to(self, file: impl AsFd) -> io::Result<()> {
        // SAFETY: the kernel reads a `struct fsxattr`, and writes nothing.
        let call = unsafe { Setter::<SET, Self>::new(self) };
        // SAFETY: as above.
        Ok(unsafe { ioctl(file, call) }?)
    }

    /// The number of the project.
    #[must_use]
    pub const fn project(self) -> u32 {
        self.project
    }

    /// Whether new files of the directory inherit its project.
    #[must_use]
    pub const fn is_inherited(self) -> bool {
        self.flags & INHERITED != 0
    }

    /// The same with another project.
    #[must_use]
    pub const fn with_project(self, project: u32) -> Self {
        Self { project, ..self }
    }

    /// The same with a project inherited by new files.
    #[must_use]
    pub const fn inherited(self) -> Self {
        Self { flags: self.flags | INHERITED, ..self }
    }

    /// The same with a project not inherited by new files.
    #[must_use]
    pub const fn not_inherited(self) -> Self {
        Self { flags: self.flags & !INHERITED, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_linux() {
        assert_eq!((GET, SET), (0x801c_581f, 0x401c_5820));
    }

    #[test]
    fn files_without_projects_are_told_apart() {
        let error = FileProject::of(std::fs::File::open("/proc/version").unwrap()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::NOTTY.raw_os_error()));
    }
}
