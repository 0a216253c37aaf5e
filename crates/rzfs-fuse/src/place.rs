//! Directories to mount on.
//!
//! Checking a path and then mounting looks it up twice, and in between its owner can put a link
//! there. So a mount point is looked up once, component by component, and held open: this directory
//! is mounted on, wherever its name leads by then.
//!
//! ```text
//! named     DIR of `rzfs mount IMAGE DIR`    given by the user: links are followed
//! on_host   a property `mountpoint`          links are followed that only root and this user
//!                                            can have made
//! within    below another place              no links: its contents may come from an image
//! ```

use crate::errands;
use crate::process_files::{is_in_procfs, with_held_path};
use crate::system_mounts::{KIND, MountId, SystemMount};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Statx, StatxFlags, fstat, mkdirat, openat, readlinkat,
    statx, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};

/// Maximum number of links on a path, the kernel's own limit.
const MAX_LINKS: usize = 40;

/// Opens an entry, even a link, only to identify it.
const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The same for a directory; triggers automounts.
const LOOK_DIRECTORY: OFlags = LOOK.union(OFlags::DIRECTORY);

/// The symbolic links that are followed on the path to a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Links {
    /// Links that only root and the user of this process can have made.
    OfHost,
    /// None.
    Never,
}

/// Why a directory cannot be mounted on.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The path goes through a link that is not followed there.
    #[error("{}: symbolic links are not followed here", .0.display())]
    Link(PathBuf),
    /// The path leads into the process file system, which unmounting needs.
    #[error("{}: not in the file system of processes", .0.display())]
    Processes(PathBuf),
    /// The path leaves its base directory.
    #[error("{}: not below the directory that it is meant to be in", .0.display())]
    Outside(PathBuf),
    /// The system refuses.
    #[error("{}: {}", path.display(), without_number(source))]
    System {
        /// The part of the path that could be followed.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl PlaceError {
    /// Whether this user lacks permission for a directory there.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        let Self::System { source, .. } = self else { return false };
        matches!(source.kind(), PermissionDenied | ReadOnlyFilesystem)
    }

    /// Whether a mount on the path has no server any more.
    pub(crate) fn is_behind_dead(&self) -> bool {
        matches!(self, Self::System { source, .. } if source.kind() == io::ErrorKind::NotConnected)
    }
}

/// The system's message without the number that Rust appends.
pub(crate) fn without_number(error: &io::Error) -> String {
    let text = error.to_string();
    let words = text.split_once(" (os error").map_or(text.as_str(), |(words, _)| words);
    // A helper terminates its message as a line.
    words.trim_end().to_owned()
}

fn system(path: &Path) -> impl Fn(Errno) -> PlaceError {
    move |error| PlaceError::System { path: path.to_owned(), source: error.into() }
}

/// A mount point, held open: the mount goes here, whatever happens to its path.
#[derive(Debug)]
pub struct MountPlace {
    directory: OwnedFd,
    path: PathBuf,
    is_made: bool,
    /// The directories that were made above it, the innermost first.
    above: Vec<(PathBuf, Identity)>,
}

impl MountPlace {
    /// The directory that a user has named, made if missing, with its parents; links are followed.
    ///
    /// # Errors
    /// [`PlaceError`]
    pub fn named(path: &Path) -> Result<Self, PlaceError> {
        let fail = |source: io::Error| PlaceError::System { path: path.to_owned(), source };
        let is_made = !path.try_exists().map_err(fail)?;
        let missing_above = if is_made { missing_above(path) } else { 0 };
        if is_made {
            let mut builder = std::fs::DirBuilder::new();
            builder.recursive(true).mode(0o755).create(path).map_err(fail)?;
        }
        let path = path.canonicalize().map_err(fail)?;
        let above = path.ancestors().skip(1).take(missing_above);
        let above = above.map_while(|above| Some((above.to_owned(), Identity::at(above)?)));
        let above = above.collect();
        let place = walk(Links::Never, path, Missing::Refuse)?;
        Self { is_made, above, ..place }.reject_procfs()
    }

    /// The directory that a pool names on this system, made if missing. Links are followed where
    /// only root and the user of this process can have put them: others could redirect the mount,
    /// even by renaming a link of root's. Links in mounts of rzfs are never followed.
    ///
    /// # Errors
    /// [`PlaceError`]
    pub fn on_host(path: &Path) -> Result<Self, PlaceError> {
        walk(Links::OfHost, path.to_owned(), Missing::Make)?.reject_procfs()
    }

    /// The directory at `relative` below `base`, a path without links; made if missing. No links
    /// are followed.
    ///
    /// # Errors
    /// [`PlaceError`]
    pub fn within(base: &Path, relative: &Path) -> Result<Self, PlaceError> {
        if relative.components().any(|component| !matches!(component, Component::Normal(_))) {
            return Err(PlaceError::Outside(base.join(relative)));
        }
        walk(Links::Never, base.join(relative), Missing::Make)?.reject_procfs()
    }

    /// Refuses directories that unmounting needs.
    fn reject_procfs(self) -> Result<Self, PlaceError> {
        match is_in_procfs(self.directory.as_fd()) {
            true => Err(PlaceError::Processes(self.path)),
            false => Ok(self),
        }
    }

    /// Its path when it was found, without links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory if it was made for the mount.
    #[must_use]
    pub fn made(&self) -> Option<MadeDirectory> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = statx(&self.directory, c"", flags, StatxFlags::INO);
        let identity = found.ok().filter(|_| self.is_made).and_then(|found| Identity::of(&found));
        let (path, above) = (self.path.clone(), self.above.clone());
        identity.map(|identity| MadeDirectory { path, identity, above })
    }

    /// Whether it is empty.
    ///
    /// # Errors
    /// [`PlaceError`]: among others, its path leads elsewhere by now.
    pub fn is_empty(&self) -> Result<bool, PlaceError> {
        if self.is_made {
            return Ok(true);
        }
        let path = self.path.clone();
        let looked = errands::act(move || {
            let here = look_at(&path)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let open = openat(&here, c".", flags, Mode::empty()).map_err(system(&path))?;
            for entry in Dir::new(open).map_err(system(&path))? {
                let entry = entry.map_err(system(&path))?;
                if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                    return Ok(false);
                }
            }
            Ok(true)
        });
        looked.map_err(|source| PlaceError::System { path: self.path.clone(), source })?
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// The number of missing directories right above a missing one. If the path contains `..`,
/// directories made on it are not tracked.
fn missing_above(path: &Path) -> usize {
    if path.components().any(|component| component == Component::ParentDir) {
        return 0;
    }
    let above = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
    above.take_while(|above| !above.exists()).count()
}

/// A directory that was made for a mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MadeDirectory {
    path: PathBuf,
    identity: Identity,
    /// The directories that were made above it, the innermost first.
    above: Vec<(PathBuf, Identity)>,
}

impl MadeDirectory {
    /// Its path when it was made, without links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file system that it is in.
    pub(crate) const fn file_system(&self) -> FileSystemNumber {
        self.identity.device
    }

    /// Removes it if it is empty and still there: a replacement is kept. The directories made above
    /// it follow on the same terms. For threads that may block, as [`errands`] provides.
    ///
    /// # Errors
    /// [`PlaceError`]: among others, it is not empty, another one is there, or there is a link on
    /// the path by now.
    pub(crate) fn remove_here(&self) -> Result<(), PlaceError> {
        remove(&self.path, self.identity)?;
        for (path, identity) in &self.above {
            if let Err(error) = remove(path, *identity) {
                // Another process may have put something there.
                tracing::debug!(%error, "a directory that was made above a mount stays");
                break;
            }
        }
        Ok(())
    }
}

/// Removes an empty directory if it is this one.
fn remove(path: &Path, identity: Identity) -> Result<(), PlaceError> {
    let (parent, name) = parent_and_name(path)?;
    let parent = look_at(parent)?;
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let found = statx(&parent, name, flags, StatxFlags::INO).map_err(system(path))?;
    match Identity::of(&found) == Some(identity) {
        true => unlinkat(&parent, name, AtFlags::REMOVEDIR).map_err(system(path)),
        false => Err(system(path)(Errno::STALE)),
    }
}

/// Major and minor number of a file system.
pub(crate) type FileSystemNumber = (u32, u32);

/// Identifies a directory, whatever its name is by now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Identity {
    device: FileSystemNumber,
    inode: u64,
}

impl Identity {
    /// The identity of the entry at a path, even a link.
    fn at(path: &Path) -> Option<Self> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        statx(rustix::fs::CWD, path, flags, StatxFlags::INO).ok().as_ref().and_then(Self::of)
    }

    fn of(found: &Statx) -> Option<Self> {
        let is_known = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::INO);
        let device = (found.stx_dev_major, found.stx_dev_minor);
        is_known.then_some(Self { device, inode: found.stx_ino })
    }
}

/// A name in a directory that is held open.
#[derive(Debug)]
pub(crate) struct Entry {
    parent: OwnedFd,
    name: OsString,
}

impl Entry {
    /// The last component of a path without links. The root directory is its own parent, and a
    /// mount on it is reached only through `..`.
    pub(crate) fn find(path: &Path) -> Result<Self, PlaceError> {
        let (parent, name) = match (path.parent(), path.file_name()) {
            (None, None) if path.has_root() => (path, OsStr::new("..")),
            _ => parent_and_name(path)?,
        };
        let parent = walk(Links::Never, parent.to_owned(), Missing::Refuse)?.directory;
        Ok(Self { parent, name: name.to_owned() })
    }

    /// Opens the entry.
    pub(crate) fn open(&self) -> io::Result<OwnedFd> {
        Ok(openat(&self.parent, &self.name, LOOK, Mode::empty())?)
    }

    /// The mount that is on the entry, or contains it. Its server is not asked.
    pub(crate) fn mount(&self) -> io::Result<MountId> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
        mount_id(statx(&self.parent, &self.name, flags, StatxFlags::MNT_ID)?)
    }

    /// Calls `act` with a path to the entry, whatever happens to the directories above it.
    pub(crate) fn with_path<T: Send>(&self, act: impl FnOnce(&Path) -> T + Send) -> io::Result<T> {
        with_held_path(self.parent.as_fd(), Path::new(&self.name), act)
    }
}

/// The entry at a path without links: the root of any mount there, held open. For threads that may
/// block, as [`errands`] provides: the path may lead through mounts of this process.
pub(crate) fn look_at(path: &Path) -> Result<OwnedFd, PlaceError> {
    Ok(Walk::begin(Links::Never)?.along(path, Missing::Refuse)?.directory)
}

fn parent_and_name(path: &Path) -> Result<(&Path, &OsStr), PlaceError> {
    path.parent().zip(path.file_name()).ok_or_else(|| PlaceError::Outside(path.to_owned()))
}

/// The mount that an open file is in. Its server is not asked.
pub(crate) fn mount_of(file: BorrowedFd<'_>) -> io::Result<MountId> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    mount_id(statx(file, c"", flags, StatxFlags::MNT_ID)?)
}

fn mount_id(found: Statx) -> io::Result<MountId> {
    match StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID) {
        true => Ok(MountId {
            number: found.stx_mnt_id,
            superblock: (found.stx_dev_major, found.stx_dev_minor),
        }),
        false => Err(Errno::NOSYS.into()),
    }
}

/// Treatment of missing directories.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Missing {
    Make,
    Refuse,
}

/// The directory that a path leads to. It may lead through mounts of this process.
fn walk(links: Links, path: PathBuf, missing: Missing) -> Result<MountPlace, PlaceError> {
    let named = path.clone();
    let found = errands::open(move || {
        let place = Walk::begin(links)?.along(&path, missing)?;
        let MountPlace { directory, path, is_made, .. } = place;
        Ok((directory, (path, is_made)))
    });
    let found = found.map_err(|source| PlaceError::System { path: named, source })?;
    found.map(|(directory, (path, is_made))| MountPlace {
        directory,
        path,
        is_made,
        above: Vec::new(),
    })
}

/// A walk from the root directory. Names are opened one by one in open directories, so that
/// concurrent renames cannot divert it.
struct Walk {
    links: Links,
    followed: usize,
    here: OwnedFd,
    path: PathBuf,
    is_made: bool,
    /// Whether another user can have put part of the path where it is.
    has_untrusted_parent: bool,
}

impl Walk {
    fn begin(links: Links) -> Result<Self, PlaceError> {
        let root = Path::new("/");
        let here = rustix::fs::open(root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let here = here.map_err(system(root))?;
        let path = root.to_owned();
        Ok(Self { links, followed: 0, here, path, is_made: false, has_untrusted_parent: false })
    }

    fn along(mut self, path: &Path, missing: Missing) -> Result<MountPlace, PlaceError> {
        let mut rest = names(path);
        while let Some(name) = rest.pop_front() {
            if name == ".." {
                self.up()?;
            } else if let Some(target) = self.enter(&name, missing)? {
                if target.has_root() {
                    let Self { links, followed, .. } = self;
                    self = Self { followed, ..Self::begin(links)? };
                }
                let mut whole = names(&target);
                whole.append(&mut rest);
                rest = whole;
            }
        }
        let Self { here: directory, path, is_made, .. } = self;
        Ok(MountPlace { directory, path, is_made, above: Vec::new() })
    }

    fn up(&mut self) -> Result<(), PlaceError> {
        if self.path.pop() {
            let above = openat(&self.here, c"..", LOOK_DIRECTORY, Mode::empty());
            self.here = above.map_err(system(&self.path))?;
        }
        Ok(())
    }

    /// Enters a name, unless it is a link to follow: returns the target of that.
    fn enter(&mut self, name: &OsStr, missing: Missing) -> Result<Option<PathBuf>, PlaceError> {
        let path = self.path.join(name);
        self.is_made = false;
        let mut found = openat(&self.here, name, LOOK_DIRECTORY, Mode::empty());
        if found.as_ref().err() == Some(&Errno::NOENT) && missing == Missing::Make {
            match mkdirat(&self.here, name, Mode::from_raw_mode(0o755)) {
                Ok(()) => self.is_made = true,
                // Another process was faster.
                Err(Errno::EXIST) => {}
                Err(error) => return Err(system(&path)(error)),
            }
            found = openat(&self.here, name, LOOK_DIRECTORY, Mode::empty());
        }
        match found {
            Ok(directory) => {
                if self.links == Links::OfHost {
                    self.has_untrusted_parent |=
                        !is_placement_trusted(self.here.as_fd(), directory.as_fd());
                }
                (self.here, self.path) = (directory, path);
                Ok(None)
            }
            Err(Errno::NOTDIR | Errno::LOOP) => self.target(name, path).map(Some),
            Err(error) => Err(system(&path)(error)),
        }
    }

    /// The target of a link that may be followed.
    fn target(&mut self, name: &OsStr, path: PathBuf) -> Result<PathBuf, PlaceError> {
        let found = openat(&self.here, name, LOOK, Mode::empty()).map_err(system(&path))?;
        let stat = fstat(&found).map_err(system(&path))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            return Err(system(&path)(Errno::NOTDIR));
        }
        self.followed += 1;
        let is_followed = self.links == Links::OfHost
            && self.followed <= MAX_LINKS
            && !self.has_untrusted_parent
            && is_ours(stat.st_uid)
            && only_we_can_write(self.here.as_fd())
            && !is_on_untrusted_mount(found.as_fd())
                .map_err(|source| PlaceError::System { path: path.clone(), source })?;
        if !is_followed {
            return Err(PlaceError::Link(path));
        }
        let target = readlinkat(&found, c"", Vec::new()).map_err(system(&path))?;
        Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }
}

fn is_ours(user: u32) -> bool {
    user == 0 || user == geteuid().as_raw()
}

/// The attributes of a file owned by root or the user of this process. No server is asked.
fn look_at_ours(file: BorrowedFd<'_>) -> Option<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = statx(file, c"", flags, StatxFlags::MODE | StatxFlags::UID).ok()?;
    is_ours(found.stx_uid).then_some(found)
}

/// Whether only root and the user of this process can put entries into a directory.
fn only_we_can_write(directory: BorrowedFd<'_>) -> bool {
    const WRITABLE: u16 = 0o022;
    look_at_ours(directory).is_some_and(|found| found.stx_mode & WRITABLE == 0)
}

/// Whether only root and this user can have put a directory into another: only they can write to
/// the parent, or it is theirs and protected, as in `/tmp`. (Others can hard-link non-directories.)
fn is_placement_trusted(above: BorrowedFd<'_>, directory: BorrowedFd<'_>) -> bool {
    const STICKY: u16 = 0o1000;
    // The owner of a sticky directory can rename its entries.
    let is_sticky = |found: Statx| found.stx_mode & STICKY != 0;
    only_we_can_write(above)
        || look_at_ours(above).is_some_and(is_sticky) && look_at_ours(directory).is_some()
}

/// Whether a file is in a mount of rzfs, whose contents may come from anywhere, or in a FUSE mount
/// of another user, whose server can report any owner.
fn is_on_untrusted_mount(file: BorrowedFd<'_>) -> io::Result<bool> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = statx(file, c"", flags, StatxFlags::TYPE)?;
    let superblock = (found.stx_dev_major, found.stx_dev_minor);
    let is_it = |mount: &SystemMount| {
        mount.id.superblock == superblock
            && (mount.kind == KIND || mount.user.is_some_and(|user| !is_ours(user)))
    };
    Ok(SystemMount::all()?.iter().any(is_it))
}

/// The names in a path; `.` is dropped, `..` stays.
fn names(path: &Path) -> VecDeque<OsString> {
    let name = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    };
    path.components().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    const NOBODY: u32 = 65534;

    struct World {
        directory: tempfile::TempDir,
    }

    impl World {
        fn new() -> Self {
            let this = Self { directory: tempfile::tempdir().unwrap() };
            for name in ["outside", "base", "base/real"] {
                fs::create_dir(this.path(name)).unwrap();
            }
            symlink("real", this.path("base/link")).unwrap();
            symlink(this.path("outside"), this.path("base/absolute")).unwrap();
            symlink("../base/link/../../outside", this.path("base/crooked")).unwrap();
            symlink("loop", this.path("base/loop")).unwrap();
            fs::write(this.path("base/file"), "").unwrap();
            this
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().canonicalize().unwrap().join(name)
        }

        fn within(&self, relative: &str) -> Result<MountPlace, PlaceError> {
            MountPlace::within(&self.path("base"), Path::new(relative))
        }

        fn on_host(&self, name: &str) -> Result<MountPlace, PlaceError> {
            MountPlace::on_host(&self.path(name))
        }
    }

    #[test]
    fn below_a_mount_no_links_are_followed() {
        let world = World::new();
        for name in ["link", "absolute", "absolute/new", "crooked", "loop", "link/deep/er"] {
            let found = world.within(name);
            assert!(matches!(found, Err(PlaceError::Link(_))), "{name}: {found:?}");
        }
        for name in ["..", "../outside", "real/../../outside", "/", "/etc"] {
            let found = world.within(name);
            assert!(matches!(found, Err(PlaceError::Outside(_))), "{name}: {found:?}");
        }
        assert!(matches!(world.within("file"), Err(PlaceError::System { .. })));
        assert!(matches!(world.within("file/x"), Err(PlaceError::System { .. })));
        let outside = fs::read_dir(world.path("outside")).unwrap();
        assert_eq!(outside.count(), 0, "nothing was made there");
    }

    #[test]
    fn what_is_missing_is_made_and_removed() {
        let world = World::new();
        let made = world.within("a/b").unwrap();
        assert!(made.made().is_some());
        assert_eq!(made.path(), world.path("base/a/b"));
        let found = world.within("a/b").unwrap();
        assert!(found.made().is_none() && found.is_empty().unwrap());
        assert!(!world.within("a").unwrap().is_empty().unwrap());
        made.made().unwrap().remove_here().unwrap();
        assert!(!world.path("base/a/b").exists());
        let kept = world.on_host("outside/kept").unwrap().made().unwrap();
        let led = MadeDirectory { path: world.path("base/absolute/kept"), ..kept };
        led.remove_here().unwrap_err();
        assert!(world.path("outside/kept").exists());
        let named = |name| MountPlace::named(&world.path(name)).unwrap().made();
        let innermost = named("named/x/y").unwrap();
        assert_eq!(named("named/x/y"), None);
        innermost.remove_here().unwrap();
        assert!(!world.path("named").exists(), "nor was what it was made in there");
        let (one, other) = (named("named/x/y").unwrap(), named("named/z").unwrap());
        one.remove_here().unwrap();
        assert!(!world.path("named/x").exists() && world.path("named/z").exists());
        other.remove_here().unwrap();
        assert!(world.path("named").exists(), "this one was not made for it");
        let crooked = named("base/new/../there/x").unwrap();
        crooked.remove_here().unwrap();
        assert!(world.path("base/there").exists(), "nobody knows what was made on the way");
        let named = MountPlace::named(&world.path("base/crooked")).unwrap();
        assert_eq!((named.path(), named.made()), (&*world.path("outside"), None));
    }

    #[test]
    fn only_what_was_made_is_removed() {
        let world = World::new();
        let made = world.within("made").unwrap().made().unwrap();
        fs::rename(world.path("base/made"), world.path("base/moved")).unwrap();
        fs::create_dir(world.path("base/made")).unwrap();
        made.remove_here().unwrap_err();
        assert!(world.path("base/made").exists(), "somebody else has made it");
        fs::remove_dir(world.path("base/made")).unwrap();
        fs::rename(world.path("base/moved"), world.path("base/made")).unwrap();
        made.remove_here().unwrap();
        assert!(!world.path("base/made").exists());
    }

    #[test]
    fn on_the_host_links_of_root_and_of_oneself_are_followed() {
        let world = World::new();
        for (name, place) in [
            ("base/link/x", "base/real/x"),
            ("base/absolute/y", "outside/y"),
            ("base/crooked", "outside"),
            ("base/../base/real", "base/real"),
        ] {
            assert_eq!(world.on_host(name).unwrap().path(), world.path(place), "{name}");
        }
        assert!(matches!(world.on_host("base/loop"), Err(PlaceError::Link(_))));
        if !geteuid().is_root() {
            return;
        }
        lchown(world.path("base/link"), Some(NOBODY), Some(NOBODY)).unwrap();
        let led = world.on_host("base/link/x");
        assert!(matches!(led, Err(PlaceError::Link(_))), "{led:?}");
    }

    #[test]
    fn links_that_others_may_have_put_there_are_not_followed() {
        if !geteuid().is_root() {
            return;
        }
        let is_followed = |owner: u32, mode: u32, below: &str| {
            let world = World::new();
            fs::create_dir(world.path("base/kept")).unwrap();
            symlink(world.path("outside"), world.path("base/kept/link")).unwrap();
            lchown(world.path("base"), Some(owner), Some(owner)).unwrap();
            fs::set_permissions(world.path("base"), fs::Permissions::from_mode(mode)).unwrap();
            let found = world.on_host(&format!("base/{below}/new"));
            let is_refused = matches!(found, Err(PlaceError::Link(_)));
            assert!(is_refused || found.is_ok(), "{found:?}");
            assert_eq!(!is_refused, world.path("outside/new").exists());
            !is_refused
        };
        for (owner, mode, in_it, below) in [
            (0, 0o755, true, true),
            (0, 0o700, true, true),
            (0, 0o775, false, false),
            (0, 0o757, false, false),
            // Others cannot move root's directories there, but can move its links.
            (0, 0o1777, false, true),
            (NOBODY, 0o755, false, false),
            (NOBODY, 0o1777, false, false),
        ] {
            let found = ["absolute", "kept/link"].map(|path| is_followed(owner, mode, path));
            assert_eq!(found, [in_it, below], "{owner} {mode:o}");
        }
        // Anything but a link is passed through.
        assert_eq!(World::new().on_host("base/real").unwrap().made(), None);
        assert!(is_followed(NOBODY, 0o755, "../outside"));
    }

    #[test]
    fn nothing_goes_over_the_file_system_of_processes() {
        for path in ["/proc", "/proc/self/task", "/proc/sys"] {
            let path = Path::new(path);
            for found in [MountPlace::named(path), MountPlace::on_host(path)] {
                assert!(matches!(found, Err(PlaceError::Processes(_))), "{found:?}");
            }
        }
        assert_eq!(MountPlace::on_host(Path::new("/")).unwrap().path(), Path::new("/"));
    }

    #[test]
    fn a_place_stays_what_it_is_when_its_name_is_given_away() {
        let world = World::new();
        let place = world.within("real").unwrap();
        fs::rename(world.path("base/real"), world.path("base/moved")).unwrap();
        symlink(world.path("outside"), world.path("base/real")).unwrap();
        let held = with_held_path(place.descriptor(), Path::new(""), |path| fs::read_link(path));
        assert_eq!(held.unwrap().unwrap(), world.path("base/moved"));
    }
}
