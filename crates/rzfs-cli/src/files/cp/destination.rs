//! Directories of the host as destinations.

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Permissions of a directory while it is filled.
const WHILE_FILLED: u16 = 0o700;

/// A name that can only be an entry of the directory it is used in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct EntryName(CString);

impl EntryName {
    /// `None` for names that lead elsewhere: `.`, `..`, or with a slash; and for those that the
    /// system rejects or truncates: empty or with a zero byte.
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

/// Identifies a directory of the host.
pub(super) type Identity = (u64, u64);

/// An open directory. Everything is created relative to it, and no link is followed.
#[derive(Debug)]
pub(super) struct Directory(OwnedFd);

impl Directory {
    const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

    /// A directory that the user named; links are followed.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(rustix::fs::openat(CWD, path, Self::FLAGS, Mode::empty())?))
    }

    /// A duplicate of the handle.
    pub(super) fn duplicate(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    pub(super) fn identity(&self) -> io::Result<Identity> {
        let stat = rustix::fs::fstat(&self.0)?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// Creates a directory, unless it exists, and opens it. `permissions` are subject to the umask,
    /// and its owner has more.
    pub(super) fn make(&self, name: &EntryName, permissions: Option<u16>) -> io::Result<Self> {
        let mode = permissions.unwrap_or(0) & 0o777 | WHILE_FILLED;
        let is_new = match rustix::fs::mkdirat(&self.0, &*name.0, mode_of(mode)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        let flags = Self::FLAGS | OFlags::NOFOLLOW;
        let made = Self(rustix::fs::openat(&self.0, &*name.0, flags, Mode::empty())?);
        // Another user with write access may have replaced it.
        if is_new && !made.is_as_made(permissions)? {
            return Err(exchanged());
        }
        Ok(made)
    }

    /// Whether it can be the one just created: it is empty.
    fn is_as_made(&self, permissions: Option<u16>) -> io::Result<bool> {
        let stat = rustix::fs::fstat(&self.0)?;
        let is_closed = permissions.is_some() || stat.st_mode & 0o777 == u32::from(WHILE_FILLED);
        if !is_own(&stat) || !is_closed {
            return Ok(false);
        }
        for entry in rustix::fs::Dir::read_from(&self.0)? {
            if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The parent directory, which must be the expected one.
    pub(super) fn parent(&self, expected: Identity) -> io::Result<Self> {
        let parent = rustix::fs::openat(&self.0, c"..", Self::FLAGS, Mode::empty())?;
        let parent = Self(parent);
        if parent.identity()? == expected {
            return Ok(parent);
        }
        Err(io::Error::other("the destination was moved while it was written"))
    }

    /// Creates a file, replacing an existing entry, with `permissions` subject to the umask.
    pub(super) fn create(&self, name: &EntryName, permissions: u16) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = mode_of(permissions & 0o777);
        self.replacing(name, || rustix::fs::openat(&self.0, &*name.0, flags, mode)).map(File::from)
    }

    /// Creates a symbolic link, replacing an existing entry.
    pub(super) fn symlink(&self, name: &EntryName, target: &[u8]) -> io::Result<Held> {
        let target = CString::new(target)?;
        self.replacing(name, || rustix::fs::symlinkat(&*target, &self.0, &*name.0))?;
        self.hold(name, |held, stat| {
            let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
            Ok(is_link && rustix::fs::readlinkat(held, c"", Vec::new())? == target)
        })
    }

    /// Creates a special file, replacing an existing entry.
    pub(super) fn special(
        &self,
        name: &EntryName,
        kind: FileType,
        permissions: u16,
        (major, minor): (u32, u32),
    ) -> io::Result<Held> {
        let (mode, device) = (mode_of(permissions & 0o777), rustix::fs::makedev(major, minor));
        self.replacing(name, || rustix::fs::mknodat(&self.0, &*name.0, kind, mode, device))?;
        let is_device = matches!(kind, FileType::CharacterDevice | FileType::BlockDevice);
        self.hold(name, |_, stat| {
            let is_kind = FileType::from_raw_mode(stat.st_mode) == kind;
            Ok(is_kind && (!is_device || stat.st_rdev == device))
        })
    }

    /// Opens a handle to an entry that was just created. Another user may have replaced it: an
    /// entry that does not match the request is refused.
    fn hold(
        &self,
        name: &EntryName,
        is_made: impl Fn(&OwnedFd, &Stat) -> rustix::io::Result<bool>,
    ) -> io::Result<Held> {
        let held = rustix::fs::openat(&self.0, &*name.0, Held::FLAGS, Mode::empty())?;
        let stat = rustix::fs::fstat(&held)?;
        let has_one_name = stat.st_nlink == 1;
        match is_own(&stat) && has_one_name && is_made(&held, &stat)? {
            true => Ok(Held(held)),
            false => Err(exchanged()),
        }
    }

    /// Adds a name to the file that was made at `path` below `base`, if it is still there.
    pub(super) fn link(
        &self,
        name: &EntryName,
        base: &Self,
        (path, made): (&[u8], Identity),
    ) -> io::Result<()> {
        let held = base.find(path)?;
        let stat = rustix::fs::fstat(&held.0)?;
        if (stat.st_dev, stat.st_ino) != made {
            return Err(io::ErrorKind::NotFound.into());
        }
        let source = held.path();
        self.replacing(name, || {
            rustix::fs::linkat(CWD, &source, &self.0, &*name.0, AtFlags::SYMLINK_FOLLOW)
        })
    }

    /// Opens a handle to the entry at a path without following links.
    fn find(&self, path: &[u8]) -> io::Result<Held> {
        let mut here = self.duplicate()?;
        let (directories, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => path.split_at(slash),
            None => (&[][..], path),
        };
        for directory in directories.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            let flags = Held::FLAGS | OFlags::DIRECTORY;
            here = Self(rustix::fs::openat(&here.0, directory, flags, Mode::empty())?);
        }
        let name = name.strip_prefix(b"/").unwrap_or(name);
        Ok(Held(rustix::fs::openat(&here.0, name, Held::FLAGS, Mode::empty())?))
    }

    /// Runs `make`; if the name exists removes it, unless it is a directory, and retries.
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
}

/// A handle to a file, link or special file that does not open it, whatever happens to its name.
#[derive(Debug)]
pub(super) struct Held(OwnedFd);

impl Held {
    const FLAGS: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

    /// A path to it for functions that do not accept such descriptors. It leads to a link itself,
    /// not to its target.
    pub(super) fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether this process can have made a file.
fn is_own(stat: &Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw()
}

/// The error for an entry that was replaced after its creation.
fn exchanged() -> io::Error {
    io::Error::other("something else is there than was made")
}

/// Converts permissions for the system.
pub(super) fn mode_of(permissions: u16) -> Mode {
    Mode::from_raw_mode(u32::from(permissions))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

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
        drop(directory.symlink(&name("file"), b"elsewhere").unwrap());
        drop(directory.symlink(&name("file"), b"/etc").unwrap());
        assert_eq!(fs::read_link(inside.path().join("file")).unwrap(), Path::new("/etc"));
    }

    #[test]
    fn what_was_put_in_the_place_of_something_new_is_not_taken_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(dir.path()).unwrap();
        fs::write(dir.path().join("other"), "of somebody").unwrap();
        let is_kind = |kind| {
            move |_: &OwnedFd, stat: &Stat| Ok(FileType::from_raw_mode(stat.st_mode) == kind)
        };
        symlink("other", dir.path().join("link")).unwrap();
        assert!(directory.hold(&name("link"), is_kind(FileType::Fifo)).is_err());
        assert!(directory.hold(&name("link"), is_kind(FileType::Symlink)).is_ok());
        // A file with another name may belong to any user.
        fs::hard_link(dir.path().join("other"), dir.path().join("more")).unwrap();
        assert!(directory.hold(&name("more"), is_kind(FileType::RegularFile)).is_err());
        let fifo = directory.special(&name("fifo"), FileType::Fifo, 0, (0, 0)).unwrap();
        fs::rename(dir.path().join("fifo"), dir.path().join("moved")).unwrap();
        symlink("other", dir.path().join("fifo")).unwrap();
        rustix::fs::chmod(fifo.path(), mode_of(0o640)).unwrap();
        let mode = |name| fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode("moved") & 0o7777, 0o640);
        assert_ne!(mode("other") & 0o7777, 0o640);
    }

    #[test]
    fn a_directory_that_was_put_in_the_place_of_a_new_one_is_not_taken_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = Directory::open(dir.path()).unwrap();
        let made = root.make(&name("new"), None).unwrap();
        assert!(made.is_as_made(None).unwrap());
        fs::write(dir.path().join("new/secret"), "kept").unwrap();
        assert!(!made.is_as_made(None).unwrap() && !made.is_as_made(Some(0o755)).unwrap());
        fs::create_dir(dir.path().join("open")).unwrap();
        fs::set_permissions(dir.path().join("open"), fs::Permissions::from_mode(0o755)).unwrap();
        let open = Directory::open(&dir.path().join("open")).unwrap();
        assert!(!open.is_as_made(None).unwrap() && open.is_as_made(Some(0o755)).unwrap());
        // An existing one is filled.
        assert!(root.make(&name("new"), None).is_ok());
    }

    #[test]
    fn further_names_are_made_for_what_was_made_only() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(dir.path()).unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::create_dir_all(dir.path().join("elsewhere/b")).unwrap();
        for place in ["a/b/file", "elsewhere/b/file"] {
            fs::write(dir.path().join(place), place).unwrap();
        }
        let made = fs::metadata(dir.path().join("a/b/file")).unwrap();
        let made = (made.dev(), made.ino());
        directory.link(&name("one"), &directory, (b"a/b/file", made)).unwrap();
        assert_eq!(fs::read(dir.path().join("one")).unwrap(), b"a/b/file");
        fs::rename(dir.path().join("a"), dir.path().join("moved")).unwrap();
        symlink("elsewhere", dir.path().join("a")).unwrap();
        assert!(directory.link(&name("two"), &directory, (b"a/b/file", made)).is_err());
        fs::remove_file(dir.path().join("a")).unwrap();
        fs::rename(dir.path().join("elsewhere"), dir.path().join("a")).unwrap();
        assert!(directory.link(&name("two"), &directory, (b"a/b/file", made)).is_err());
        assert!(!dir.path().join("two").exists());
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
