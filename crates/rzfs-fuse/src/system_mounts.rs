//! The system's mount table: `/proc/self/mountinfo`.
//!
//! ```text
//! 36 35 0:45 / /tank/home rw,noatime shared:7 - fuse.rzfs tank/home rw,user_id=0,...
//! |  |  |   |  directory, \040 for a space      kind     source    of the superblock
//! |  |  |   directory of the superblock that it shows
//! |  |  superblock
//! |  parent
//! number
//! ```

use crate::process_files::table_of_mounts;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The FUSE subtype of our mounts: their type is `fuse.rzfs`.
pub(crate) const SUBTYPE: &str = "rzfs";

/// The type of our mounts.
pub(crate) const KIND: &str = "fuse.rzfs";

/// Identifies a mount as long as it exists: numbers are reused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MountId {
    pub(crate) number: u64,
    /// Major and minor number of its superblock, which other mounts may share.
    pub(crate) superblock: (u32, u32),
}

/// A mount that this process can see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SystemMount {
    pub(crate) id: MountId,
    /// The number of its parent mount.
    pub(crate) parent: u64,
    /// The directory of the superblock that it shows.
    pub(crate) root: PathBuf,
    pub(crate) directory: PathBuf,
    pub(crate) kind: String,
    pub(crate) source: String,
    /// Whether its superblock is read-only for all mounts.
    pub(crate) is_read_only: bool,
    /// The user who made a FUSE mount, whose server determines its contents.
    pub(crate) user: Option<u32>,
}

impl SystemMount {
    /// All mounts; a mount comes after those that it is on.
    ///
    /// # Errors
    /// The table cannot be read.
    pub(crate) fn all() -> io::Result<Vec<Self>> {
        let table = table_of_mounts()?;
        Ok(table.split(|byte| *byte == b'\n').filter_map(Self::parse).collect())
    }

    /// The mount with this number.
    ///
    /// # Errors
    /// As [`Self::all`].
    pub(crate) fn with_number(number: u64) -> io::Result<Option<Self>> {
        Ok(Self::all()?.into_iter().find(|mount| mount.id.number == number))
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let text = |field: Vec<u8>| String::from_utf8_lossy(&field).into_owned();
        let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse().ok();
        let (number, parent) = (number()?, number()?);
        let (major, minor) = std::str::from_utf8(fields.next()?).ok()?.split_once(':')?;
        let superblock = (major.parse().ok()?, minor.parse().ok()?);
        let path = |field| PathBuf::from(OsString::from_vec(unescaped(field)));
        let (root, directory) = (path(fields.next()?), path(fields.next()?));
        let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
        let (kind, source) = (text(unescaped(rest.next()?)), text(unescaped(rest.next()?)));
        let mut options = rest.next().unwrap_or_default().split(|byte| *byte == b',');
        let user = options.clone().find_map(|option| option.strip_prefix(b"user_id="));
        Some(Self {
            id: MountId { number, superblock },
            parent,
            root,
            directory,
            kind,
            source,
            is_read_only: options.any(|option| option == b"ro"),
            user: user.and_then(|user| std::str::from_utf8(user).ok()?.parse().ok()),
        })
    }
}

/// A snapshot of the mount table.
#[derive(Debug)]
pub struct SystemMounts(HashMap<u64, SystemMount>);

impl SystemMounts {
    /// The current mounts.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn now() -> io::Result<Self> {
        let all = SystemMount::all()?;
        Ok(Self(all.into_iter().map(|mount| (mount.id.number, mount)).collect()))
    }

    /// The superblocks of mounted file systems and snapshots of a pool: their major and minor
    /// numbers.
    pub fn superblocks_of(&self, pool: &str) -> impl Iterator<Item = (u32, u32)> {
        let of_pool = move |mount: &&SystemMount| {
            let rest = mount.source.strip_prefix(pool);
            mount.kind == KIND
                && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '@']))
        };
        self.0.values().filter(of_pool).map(|mount| mount.id.superblock)
    }

    pub(crate) fn with_number(&self, number: u64) -> Option<&SystemMount> {
        self.0.get(&number)
    }

    /// The mount points within a superblock: paths from its root.
    pub(crate) fn within(&self, superblock: (u32, u32)) -> BTreeSet<PathBuf> {
        let place = |mount: &SystemMount| {
            let parent = self.0.get(&mount.parent)?;
            let inner = mount.directory.strip_prefix(&parent.directory).ok()?;
            let is_in = parent.id.superblock == superblock && parent.id != mount.id;
            let root = parent.root.strip_prefix("/").ok()?;
            is_in.then(|| root.join(inner))
        };
        self.0.values().filter_map(place).collect()
    }
}

/// Decodes bytes escaped as a backslash and three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, others)) = rest.split_first() {
        let octal = match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] => {
                Some((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'))
            }
            _ => None,
        };
        bytes.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { rest.get(4..).unwrap_or_default() } else { others };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood() {
        let line =
            br"36 35 0:45 / /tank/my\040home\134 rw,noatime shared:7 - fuse.rzfs tank/my\040home ro,user_id=7";
        let expected = SystemMount {
            id: MountId { number: 36, superblock: (0, 45) },
            parent: 35,
            root: "/".into(),
            directory: r"/tank/my home\".into(),
            kind: KIND.into(),
            source: "tank/my home".into(),
            is_read_only: true,
            user: Some(7),
        };
        assert_eq!(SystemMount::parse(line), Some(expected));
        assert_eq!(SystemMount::parse(b""), None);
        assert_eq!(SystemMount::parse(b"36 35 0:45 / /x rw -"), None);
        assert_eq!(unescaped(br"a\0401\9\04"), br"a 1\9\04");
    }

    #[test]
    fn what_is_mounted_in_a_superblock_is_found_through_all_of_its_mounts() {
        let lines = [
            "36 1 0:45 / /tank rw - fuse.rzfs tank rw",
            "37 36 0:46 / /tank/home rw - fuse.rzfs tank/home rw",
            "38 1 0:45 /a/b /elsewhere rw - fuse.rzfs tank rw",
            "39 38 0:4 / /elsewhere/c rw - tmpfs tmpfs rw",
            "40 37 0:5 / /tank/home/x rw - tmpfs tmpfs rw",
        ];
        let all = lines.map(|line| SystemMount::parse(line.as_bytes()).unwrap());
        let mounts = SystemMounts(all.into_iter().map(|one| (one.id.number, one)).collect());
        let within: Vec<_> = mounts.within((0, 45)).into_iter().collect();
        assert_eq!(within, [PathBuf::from("a/b/c"), PathBuf::from("home")]);
    }

    #[test]
    fn superblocks_are_told_by_pool() {
        let line = |number: u32, kind, source| {
            let line = format!("{number} 1 0:{number} / /x rw - {kind} {source} rw");
            SystemMount::parse(line.as_bytes()).unwrap()
        };
        let all = [
            line(40, KIND, "tank"),
            line(41, KIND, "tank/home"),
            line(42, KIND, "tank@then"),
            line(43, KIND, "tanker"),
            line(44, "fuse.other", "tank"),
        ];
        let mounts = SystemMounts(all.into_iter().map(|one| (one.id.number, one)).collect());
        let mut found: Vec<_> = mounts.superblocks_of("tank").collect();
        found.sort_unstable();
        assert_eq!(found, [(0, 40), (0, 41), (0, 42)]);
    }

    #[test]
    fn the_root_directory_is_mounted() {
        let all = SystemMount::all().unwrap();
        let root = all.iter().find(|mount| mount.directory.as_os_str() == "/").unwrap();
        assert_eq!(SystemMount::with_number(root.id.number).unwrap().as_ref(), Some(root));
    }
}
