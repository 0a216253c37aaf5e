//! Files and directories of one file system, each opened relative to its directory.
//!
//! No link is followed, and nothing is opened that may block: pipes and devices have no projects.

use crate::console::{Failure, Outcome};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;
use rzfs_blockdev::{FileProject, without_number};
use rzfs_server::control::ControlDirectory;
use rzfs_server::protocol::{Answer, Request};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{fs, io};

/// How far to descend below a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Depth {
    Itself,
    /// Its entries, but not their children.
    Entries,
    Everything,
}

/// An open file or directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct File<'a> {
    /// Its displayed path: below the one on the command line.
    pub(super) path: &'a [u8],
    pub(super) project: FileProject,
    descriptor: BorrowedFd<'a>,
}

impl File<'_> {
    /// Changes its project, or whether that is inherited.
    pub(super) fn give(&self, project: FileProject) -> Outcome {
        let given = project.give_to(self.descriptor);
        given.map_err(|error| failed("set the project of", self.path, &error))
    }
}

/// The failure of an operation on the file with this path.
fn failed(what: &str, path: &[u8], error: &io::Error) -> Failure {
    let (path, reason) = (String::from_utf8_lossy(path), without_number(error));
    Failure::Failed(format!("failed to {what} {path}: {reason}"))
}

/// Identifies a file, whatever its path.
type Identity = (u64, u64);

/// An opened file.
struct Opened {
    descriptor: OwnedFd,
    about: Stat,
    project: FileProject,
}

/// A failed operation on a file.
struct Refused(&'static str, io::Error);

impl Refused {
    fn to(what: &'static str) -> impl Fn(Errno) -> Self {
        move |error| Self(what, error.into())
    }
}

fn kind(about: &Stat) -> FileType {
    FileType::from_raw_mode(about.st_mode)
}

const fn identity(about: &Stat) -> Identity {
    (about.st_dev, about.st_ino)
}

/// Opens a file or directory that is wanted; `None` if it is neither.
fn open(
    directory: impl AsFd,
    name: &OsStr,
    is_wanted: impl Fn(&Stat) -> bool,
) -> Result<Option<Opened>, Refused> {
    let about = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).map_err(Refused::to("stat"))?;
    let has_project = matches!(kind(&about), FileType::RegularFile | FileType::Directory);
    if !has_project || !is_wanted(&about) {
        return Ok(None);
    }
    // It may have been replaced by now.
    let safe = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let descriptor = openat(directory, name, OFlags::RDONLY | safe, Mode::empty())
        .map_err(Refused::to("open"))?;
    let opened = fstat(&descriptor).map_err(Refused::to("stat"))?;
    if identity(&opened) != identity(&about) {
        return Err(Refused("open", Errno::NOENT.into()));
    }
    let project = FileProject::of(&descriptor);
    let project = project.map_err(|error| Refused("get the project of", error))?;
    Ok(Some(Opened { descriptor, about, project }))
}

/// A directory whose entries are visited.
struct Level {
    entries: Dir,
    path: Vec<u8>,
}

impl Level {
    fn new(directory: OwnedFd, path: Vec<u8>) -> Result<Self, Failure> {
        match Dir::new(directory) {
            Ok(entries) => Ok(Self { entries, path }),
            Err(error) => Err(failed("list", &path, &error.into())),
        }
    }

    /// The name of its next entry.
    fn next(&mut self) -> Option<Result<Vec<u8>, Failure>> {
        loop {
            let name = match self.entries.read()? {
                Ok(entry) => entry.file_name().to_bytes().to_vec(),
                Err(error) => return Some(Err(failed("list", &self.path, &error.into()))),
            };
            if name != b"." && name != b".." {
                return Some(Ok(name));
            }
        }
    }

    /// Opens an entry that is wanted; `None` if it is gone, is neither file nor directory, or
    /// belongs to no file system, like `.zfs`.
    fn open(
        &self,
        name: &[u8],
        path: &[u8],
        is_wanted: impl Fn(&Stat) -> bool,
    ) -> Result<Option<Opened>, Failure> {
        let directory = self.entries.fd().map_err(|error| failed("list", path, &error.into()))?;
        match open(directory, OsStr::from_bytes(name), is_wanted) {
            Ok(opened) => Ok(opened),
            Err(Refused(what, error)) => match Errno::from_io_error(&error) {
                Some(Errno::NOENT | Errno::LOOP | Errno::NOTTY) => Ok(None),
                _ => Err(failed(what, path, &error)),
            },
        }
    }

    fn path_of(&self, name: &[u8]) -> Vec<u8> {
        let slash: &[u8] = if self.path.ends_with(b"/") { b"" } else { b"/" };
        [&self.path, slash, name].concat()
    }
}

/// Visits a file, or a directory and everything below it in the same file system. The visitor also
/// receives failures, and stops the walk by failing.
pub(super) fn each(
    named: &str,
    depth: Depth,
    mut visit: impl FnMut(Result<File<'_>, Failure>) -> Outcome,
) -> Outcome {
    let Opened { descriptor, about, project } = match open(CWD, OsStr::new(named), |_| true) {
        Ok(Some(opened)) => opened,
        Ok(None) => {
            let message = format!("{named}: only files and directories have projects");
            return visit(Err(Failure::Failed(message)));
        }
        Err(Refused(what, error)) => return visit(Err(failed(what, named.as_bytes(), &error))),
    };
    let path = named.as_bytes();
    visit(Ok(File { path, project, descriptor: descriptor.as_fd() }))?;
    if depth == Depth::Itself || kind(&about) != FileType::Directory {
        return Ok(());
    }
    let others = mounted_below(Path::new(named));
    let is_inside = |one: &Stat| one.st_dev == about.st_dev && !others.contains(&identity(one));
    let mut levels = Vec::new();
    match Level::new(descriptor, path.to_vec()) {
        Ok(level) => levels.push(level),
        Err(failure) => return visit(Err(failure)),
    }
    while let Some(level) = levels.last_mut() {
        let name = match level.next() {
            Some(Ok(name)) => name,
            Some(Err(failure)) => {
                levels.pop();
                visit(Err(failure))?;
                continue;
            }
            None => {
                levels.pop();
                continue;
            }
        };
        let path = level.path_of(&name);
        let Opened { descriptor, about, project } = match level.open(&name, &path, is_inside) {
            Ok(Some(opened)) => opened,
            Ok(None) => continue,
            Err(failure) => {
                visit(Err(failure))?;
                continue;
            }
        };
        visit(Ok(File { path: &path, project, descriptor: descriptor.as_fd() }))?;
        if depth == Depth::Everything && kind(&about) == FileType::Directory {
            match Level::new(descriptor, path) {
                Ok(level) => levels.push(level),
                Err(failure) => visit(Err(failure))?,
            }
        }
    }
    Ok(())
}

/// The roots of this user's file systems that are mounted below a directory: they may share its
/// mount, and so its device number.
fn mounted_below(directory: &Path) -> Vec<Identity> {
    let Ok(directory) = fs::canonicalize(directory) else { return Vec::new() };
    let pools = ControlDirectory::of_user().mounted().map(|mounted| mounted.clients);
    let mut found = Vec::new();
    for mut pool in pools.unwrap_or_default() {
        let Ok(Answer::Mounts(mounts)) = pool.ask(&Request::Mounts) else { continue };
        let places = mounts.iter().map(|mount| Path::new(&mount.mountpoint));
        let below = places.filter(|place| **place != directory && place.starts_with(&directory));
        found.extend(below.filter_map(|place| {
            statat(CWD, place, AtFlags::SYMLINK_NOFOLLOW).ok().as_ref().map(identity)
        }));
    }
    found
}
