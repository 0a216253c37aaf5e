//! Detects paths that lead into a mounted file system of this same pool.
//!
//! ```text
//! /dev/disk/by-id/x ── step ── link, step ── ... ── file                elsewhere
//! /mnt/images/a.img ── step ── root of an own mount: no further step    inside
//! ```
//! A device in there would wait for itself for ever, and so may a lookup: a process that waits for
//! the pool can hold a directory lock. So a path is followed step by step, and never beyond the
//! root of such a mount, using only facts that the kernel itself has.

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags, openat, readlinkat, statx,
};
use rustix::io::Errno;
use rzfs_fuse::SystemMounts;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path};

/// Maximum number of links on a path, the kernel's own limit.
const MOST_LINKS: usize = 40;
/// Maximum number of steps of a path, including all its links.
const MOST_STEPS: usize = 1 << 12;

/// The mounted file systems of a pool, by device number.
#[derive(Debug)]
pub(super) struct OwnFileSystems(Vec<(u32, u32)>);

/// The target of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Destination {
    /// Into a file system of the pool.
    Inside,
    /// To a file outside.
    Elsewhere,
    /// Nowhere: there is no such file.
    Nowhere,
}

impl OwnFileSystems {
    /// Those of a pool, from the mount table. If it cannot be read none are known.
    pub(super) fn of(pool: &str) -> Self {
        let mounts = SystemMounts::now().inspect_err(|error| {
            tracing::warn!(%error, "nobody knows what is mounted");
        });
        Self(mounts.map(|mounts| mounts.superblocks_of(pool).collect()).unwrap_or_default())
    }

    /// The target of an absolute path. Other paths name a device in other ways.
    pub(super) fn destination(&self, path: &Path) -> Destination {
        if path.is_absolute() {
            self.follow(path).unwrap_or_else(|end| end)
        } else {
            Destination::Nowhere
        }
    }

    fn follow(&self, path: &Path) -> Result<Destination, Destination> {
        let root = self.step(CWD, OsStr::new("/"))?;
        let mut at = duplicate(&root.file)?;
        let mut rest: Vec<OsString> = Vec::new();
        push(&mut rest, path);
        let mut links = 0;
        for _ in 0..MOST_STEPS {
            let Some(name) = rest.pop() else { return Ok(Destination::Elsewhere) };
            let next = self.step(at.as_fd(), &name)?;
            if !next.is_link {
                at = next.file;
                continue;
            }
            links += 1;
            if links > MOST_LINKS {
                return Ok(Destination::Nowhere);
            }
            let target =
                readlinkat(&next.file, "", Vec::new()).map_err(|_| Destination::Nowhere)?;
            let target = OsString::from_vec(target.into_bytes());
            if Path::new(&target).is_absolute() {
                at = duplicate(&root.file)?;
            }
            push(&mut rest, Path::new(&target));
        }
        Ok(Destination::Nowhere)
    }

    /// Goes on to an entry of a directory; the result if the path ends there.
    fn step(&self, directory: impl AsFd, name: &OsStr) -> Result<Step, Destination> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let nowhere = |_: Errno| Destination::Nowhere;
        let file = openat(directory, name, flags, Mode::empty()).map_err(nowhere)?;
        let known = known_of(&file).map_err(nowhere)?;
        if self.0.contains(&(known.stx_dev_major, known.stx_dev_minor)) {
            return Err(Destination::Inside);
        }
        let kind = FileType::from_raw_mode(u32::from(known.stx_mode));
        Ok(Step { file, is_link: kind == FileType::Symlink })
    }
}

/// A file on a path.
struct Step {
    file: OwnedFd,
    is_link: bool,
}

fn duplicate(file: &OwnedFd) -> Result<OwnedFd, Destination> {
    file.try_clone().map_err(|_| Destination::Nowhere)
}

/// Puts the steps of a path before the remaining ones.
fn push(rest: &mut Vec<OsString>, path: &Path) {
    let steps = path.components().rev().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    rest.extend(steps);
}

/// The kernel's knowledge of a file, without asking a file system that may not respond.
fn known_of(file: &OwnedFd) -> Result<Statx, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    statx(file, "", flags, StatxFlags::TYPE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Treats the mount at `/proc` as the pool's.
    fn with_proc() -> OwnFileSystems {
        let root = openat(CWD, "/proc", OFlags::PATH, Mode::empty()).unwrap();
        let known = known_of(&root).unwrap();
        OwnFileSystems(vec![(known.stx_dev_major, known.stx_dev_minor)])
    }

    #[test]
    fn paths_lead_into_own_file_systems_whatever_they_name_there() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        symlink("/proc/nothing", &link).unwrap();
        let relative = directory.path().join("relative");
        symlink("link/x", &relative).unwrap();
        let own = with_proc();
        let inside = ["/proc", "/proc/version", "/dev/../proc/version"].map(Path::new);
        // Names inside are not looked up, so missing ones are not noticed.
        let unknown = ["/proc/no/such/file", "/proc/.."].map(Path::new);
        for path in inside.into_iter().chain(unknown).chain([link.as_path(), &relative]) {
            assert_eq!(own.destination(path), Destination::Inside, "{}", path.display());
        }
    }

    #[test]
    fn other_paths_lead_elsewhere_or_nowhere() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("file"), "").unwrap();
        symlink("file", at("link")).unwrap();
        symlink("round", at("round")).unwrap();
        let own = with_proc();
        let expect = |path: &Path, destination| assert_eq!(own.destination(path), destination);
        expect(&at("file"), Destination::Elsewhere);
        expect(&at("link"), Destination::Elsewhere);
        expect(directory.path(), Destination::Elsewhere);
        expect(Path::new("/"), Destination::Elsewhere);
        expect(&at("nothing"), Destination::Nowhere);
        expect(&at("file").join("x"), Destination::Nowhere);
        expect(&at("round"), Destination::Nowhere);
        expect(Path::new("proc"), Destination::Nowhere);
    }

    #[test]
    fn a_pool_without_mounts_has_no_file_systems() {
        let own = OwnFileSystems::of("no/such pool");
        assert_eq!(own.destination(Path::new("/proc/version")), Destination::Elsewhere);
    }
}
