//! Directories of the host that are written into.

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Permissions that a directory has while it is filled.
const WHILE_FILLED: u16 = 0o700;

/// A name that can only be an entry of the directory that it is used in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct EntryName(CString);

impl EntryName {
    /// `None` for names that lead elsewhere: `.`, `..`, or with a slash; and for those that the
    /// system cuts: empty or with a zero byte.
    pub(super) fn new(name: &[u8]) -> Option<Self> {
        if matches!(name, b"" | b"." | b"..") || name.contains(&b'/') {
            return None;
        }
        CString::new(name).ok().map(Self)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Tells a directory of the host from all others.
pub(super) type Identity = (u64, u64);

/// A directory that is open. Everything is made relative to it, and no link is followed.
#[derive(Debug)]
pub(super) struct Directory(OwnedFd);

impl Directory {
    const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

    /// A directory that the user named; links are followed.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(rustix::fs::openat(CWD, path, Self::FLAGS, Mode::empty())?))
    }

    /// The same directory once more.
    pub(super) fn duplicate(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    pub(super) fn identity(&self) -> io::Result<Identity> {
        let stat = rustix::fs::fstat(&self.0)?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// Makes a directory, unless it is there, and opens it. With `permissions` it has those that
    /// the umask leaves, and more for its owner.
    pub(super) fn make(&self, name: &EntryName, permissions: Option<u16>) -> io::Result<Self> {
        let mode = permissions.unwrap_or(0) & 0o777 | WHILE_FILLED;
        match rustix::fs::mkdirat(&self.0, &*name.0, mode_of(mode)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = Self::FLAGS | OFlags::NOFOLLOW;
        Ok(Self(rustix::fs::openat(&self.0, &*name.0, flags, Mode::empty())?))
    }

    /// The directory above, which must be the one that is expected.
    pub(super) fn parent(&self, expected: Identity) -> io::Result<Self> {
        let parent = rustix::fs::openat(&self.0, c"..", Self::FLAGS, Mode::empty())?;
        let parent = Self(parent);
        if parent.identity()? == expected {
            return Ok(parent);
        }
        Err(io::Error::other("the destination was moved while it was written"))
    }

    /// Makes a file, in the place of what was there, with what the umask leaves of `permissions`.
    pub(super) fn create(&self, name: &EntryName, permissions: u16) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = mode_of(permissions & 0o777);
        self.replacing(name, || rustix::fs::openat(&self.0, &*name.0, flags, mode)).map(File::from)
    }

    /// Makes a symbolic link, in the place of what was there.
    pub(super) fn symlink(&self, name: &EntryName, target: &[u8]) -> io::Result<()> {
        let target = CString::new(target)?;
        self.replacing(name, || rustix::fs::symlinkat(&*target, &self.0, &*name.0))
    }

    /// Makes a special file, in the place of what was there.
    pub(super) fn special(
        &self,
        name: &EntryName,
        kind: FileType,
        permissions: u16,
        (major, minor): (u32, u32),
    ) -> io::Result<()> {
        let (mode, device) = (mode_of(permissions & 0o777), rustix::fs::makedev(major, minor));
        self.replacing(name, || rustix::fs::mknodat(&self.0, &*name.0, kind, mode, device))
    }

    /// Makes another name for the file that is at `path` below `base`.
    pub(super) fn link(&self, name: &EntryName, base: &Self, path: &[u8]) -> io::Result<()> {
        self.replacing(name, || {
            rustix::fs::linkat(&base.0, path, &self.0, &*name.0, AtFlags::empty())
        })
    }

    /// Does what fails when the name exists. Directories stay where they are.
    fn replacing<T>(
        &self,
        name: &EntryName,
        make: impl Fn() -> rustix::io::Result<T>,
    ) -> io::Result<T> {
        match make() {
            Err(Errno::EXIST) => {
                rustix::fs::unlinkat(&self.0, &*name.0, AtFlags::empty())?;
                Ok(make()?)
            }
            made => Ok(made?),
        }
    }

    /// The path by which functions that know no descriptors find an entry.
    pub(super) fn path_of(&self, name: &EntryName) -> Vec<u8> {
        use std::os::fd::AsRawFd;
        let directory = format!("/proc/self/fd/{}/", self.0.as_raw_fd());
        [directory.as_bytes(), name.as_bytes()].concat()
    }

    /// The name for the system.
    pub(super) fn raw(name: &EntryName) -> &std::ffi::CStr {
        &name.0
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Permissions for the system.
pub(super) fn mode_of(permissions: u16) -> Mode {
    Mode::from_raw_mode(u32::from(permissions))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn name(name: &str) -> EntryName {
        EntryName::new(name.as_bytes()).unwrap()
    }

    #[test]
    fn names_that_lead_elsewhere_are_none() {
        for wrong in [&b""[..], b".", b"..", b"a/b", b"/", b"../x", b"a\0"] {
            assert_eq!(EntryName::new(wrong), None, "{wrong:?}");
        }
        for right in [&b"..."[..], b".a", b"\xff", b" "] {
            assert_eq!(EntryName::new(right).unwrap().as_bytes(), right);
        }
    }

    #[test]
    fn links_in_the_way_are_replaced_or_refused_but_not_followed() {
        let outside = tempfile::tempdir().unwrap();
        let inside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("victim"), "safe").unwrap();
        symlink(outside.path(), inside.path().join("dir")).unwrap();
        symlink(outside.path().join("victim"), inside.path().join("file")).unwrap();
        let directory = Directory::open(inside.path()).unwrap();

        assert!(directory.make(&name("dir"), None).is_err());
        drop(directory.create(&name("file"), 0o644).unwrap());
        assert_eq!(fs::read(outside.path().join("victim")).unwrap(), b"safe");
        assert!(fs::symlink_metadata(inside.path().join("file")).unwrap().is_file());
        directory.symlink(&name("file"), b"elsewhere").unwrap();
        directory.symlink(&name("file"), b"/etc").unwrap();
        assert_eq!(fs::read_link(inside.path().join("file")).unwrap(), Path::new("/etc"));
    }

    #[test]
    fn a_directory_that_was_moved_away_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let root = Directory::open(dir.path()).unwrap();
        let above = root.identity().unwrap();
        let child = root.make(&name("a"), None).unwrap();
        assert_eq!(child.parent(above).unwrap().identity().unwrap(), above);
        fs::create_dir(dir.path().join("b")).unwrap();
        fs::rename(dir.path().join("a"), dir.path().join("b/a")).unwrap();
        assert!(child.parent(above).is_err());
    }
}
