//! Mount points that the file system does not have.
//!
//! ```text
//! tank            mounted at DIR         has no directory "home"
//! tank/home       mounted at DIR/home    needs one
//! ```
//! Nothing can be created in a read-only file system, so these directories exist only in the mount:
//! they contain only each other, below directories on disk or below each other.

use fuser::{FileAttr, FileType, INodeNo};
use rustix::process::{getegid, geteuid};
use rzfs_format::ObjectId;
use rzfs_format::dirent::FileKind;
use rzfs_format::zap::Normalization;
use rzfs_zpl::{DirCookie, DirEntry, Files, NameTarget, ZplError};
use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::time::SystemTime;

/// The inode number of the first of them; the others are below. Object numbers do not reach it, and
/// the numbers of the control tree are above.
const FIRST_INODE: u64 = ObjectId::END.0 - (1 << 41);

/// Maximum number of directories of one mount.
const MAX_COUNT: usize = 1 << 20;

/// A directory: on disk, or of the mount alone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Place {
    /// An object of the live file system.
    Object(ObjectId),
    /// A directory of the mount alone.
    MountPoint(MountPoint),
}

/// A directory of the mount alone, by its position.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct MountPoint(u32);

impl MountPoint {
    /// Its inode number.
    pub(crate) const fn inode(self) -> ObjectId {
        ObjectId(FIRST_INODE - self.0 as u64)
    }

    /// The directory with this inode number; `None` if it is a file's.
    pub(crate) fn from_inode(inode: ObjectId) -> Option<Self> {
        let index = FIRST_INODE.checked_sub(inode.0)?;
        usize::try_from(index).ok().filter(|index| *index < MAX_COUNT)?;
        u32::try_from(index).ok().map(Self)
    }
}

/// The directories that exist only in the mount. Their numbers are not reused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MountPoints {
    /// How the file system compares names.
    compared: Normalization,
    below: BTreeMap<Place, Vec<(Vec<u8>, MountPoint)>>,
    all: Vec<Directory>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Directory {
    /// Its parent directory.
    above: Place,
    /// The number of paths through it; it is removed when there is none.
    paths: u32,
    made: SystemTime,
}

/// The directories that a path needs besides those on disk.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct MountPath {
    /// The directories of the path that exist only in the mount, the uppermost first.
    pub(crate) directories: Vec<MountPoint>,
    /// The uppermost of them that is new.
    pub(crate) new: Option<(Place, Vec<u8>)>,
}

impl MountPoints {
    /// An empty set for a file system.
    pub(crate) fn of(file_system: &Files) -> Self {
        Self::comparing(file_system.master().compared_names())
    }

    const fn comparing(compared: Normalization) -> Self {
        Self { compared, below: BTreeMap::new(), all: Vec::new() }
    }

    /// The directories that paths relative to the root need besides those on disk.
    ///
    /// Where a file or a link is in the way the path ends: nothing can be mounted there.
    ///
    /// # Errors
    /// A directory on a path cannot be read.
    pub(crate) fn missing(file_system: &Files, paths: &[&Path]) -> io::Result<Self> {
        let mut all = Self::of(file_system);
        for path in paths {
            all.add(file_system, path)?;
        }
        Ok(all)
    }

    /// Makes the directories that another path needs.
    ///
    /// # Errors
    /// A directory on the path cannot be read; some may have been made.
    pub(crate) fn add(&mut self, file_system: &Files, path: &Path) -> io::Result<MountPath> {
        let mut place = Place::Object(file_system.root());
        let mut way = MountPath::default();
        for component in path.components() {
            let Component::Normal(name) = component else { continue };
            let known = self.all.len();
            let Some(inner) = self.enter(file_system, place, name.as_bytes())? else { break };
            if self.all.len() > known && way.new.is_none() {
                way.new = Some((place, name.as_bytes().to_vec()));
            }
            if let Place::MountPoint(directory) = inner {
                way.directories.push(directory);
            }
            place = inner;
        }
        self.lead_through(&way);
        Ok(way)
    }

    /// An empty set for new contents of the same mount: previous numbers are not reused.
    pub(crate) fn succeeded(&self, file_system: &Files) -> Self {
        let all = self.all.iter().map(|one| Directory { paths: 0, ..*one }).collect();
        Self { all, ..Self::of(file_system) }
    }

    /// A directory that hides any entry of this name on disk; `None` if there are too many.
    pub(crate) fn cover(&mut self, place: Place, name: &[u8]) -> Option<MountPoint> {
        if let Some(known) = self.lookup(place, name) {
            return Some(known);
        }
        let index = u32::try_from(self.all.len()).ok().filter(|_| self.has_room())?;
        self.all.push(Directory { above: place, paths: 0, made: SystemTime::now() });
        self.below.entry(place).or_default().push((name.to_vec(), MountPoint(index)));
        Some(MountPoint(index))
    }

    /// Counts another path through these directories.
    pub(crate) fn lead_through(&mut self, way: &MountPath) {
        for directory in &way.directories {
            if let Some(one) = self.directory_mut(*directory) {
                one.paths = one.paths.saturating_add(1);
            }
        }
    }

    /// The names of all of them, with their parents.
    pub(crate) fn all_names(&self) -> impl Iterator<Item = (Place, &[u8])> {
        self.below
            .iter()
            .flat_map(|(place, entries)| entries.iter().map(|(name, _)| (*place, name.as_slice())))
    }

    /// Removes a directory that contains none of these.
    pub(crate) fn uncover(&mut self, directory: MountPoint) {
        if let Some(above) = self.parent(directory) {
            let entries = self.below.entry(above).or_default();
            entries.retain(|(_, one)| *one != directory);
            if entries.is_empty() {
                self.below.remove(&above);
            }
        }
    }

    /// Removes the directories that no path needs any more; returns the uppermost.
    pub(crate) fn remove(&mut self, way: &MountPath) -> Option<(Place, Vec<u8>)> {
        let mut uppermost = None;
        for directory in &way.directories {
            let Some(one) = self.directory_mut(*directory) else { continue };
            one.paths = one.paths.saturating_sub(1);
            let Directory { above, paths: 0, .. } = *one else { continue };
            let Some(entries) = self.below.get_mut(&above) else { continue };
            let Some(position) = entries.iter().position(|(_, one)| one == directory) else {
                continue;
            };
            let (name, _) = entries.remove(position);
            if entries.is_empty() {
                self.below.remove(&above);
            }
            uppermost = uppermost.or(Some((above, name)));
        }
        uppermost
    }

    fn directory_mut(&mut self, of: MountPoint) -> Option<&mut Directory> {
        self.all.get_mut(usize::try_from(of.0).ok()?)
    }

    /// The subdirectory with this name, made if it is missing; `None` if the parent is not a
    /// directory.
    fn enter(
        &mut self,
        file_system: &Files,
        place: Place,
        name: &[u8],
    ) -> io::Result<Option<Place>> {
        const ENOTDIR: i32 = 20;
        if let Some(known) = self.lookup(place, name) {
            return Ok(Some(Place::MountPoint(known)));
        }
        if let Place::Object(directory) = place {
            match file_system.lookup(directory, name) {
                Ok(NameTarget::Object(object)) => return Ok(Some(Place::Object(object))),
                // Nothing can be mounted in `.zfs`; the system will report that.
                Ok(NameTarget::Control) => {}
                Err(ZplError::NotFound { .. }) => {}
                Err(error) if error.errno() == ENOTDIR => return Ok(None),
                Err(error) => return Err(io::Error::from_raw_os_error(error.errno())),
            }
        }
        Ok(Some(self.cover(place, name).map_or(place, Place::MountPoint)))
    }

    fn has_room(&self) -> bool {
        self.all.len() < MAX_COUNT
    }

    /// Whether a directory contains any of them.
    pub(crate) fn are_in(&self, place: Place) -> bool {
        self.below.contains_key(&place)
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.below.is_empty()
    }

    /// The subdirectory with this name.
    pub(crate) fn lookup(&self, place: Place, name: &[u8]) -> Option<MountPoint> {
        let entries = self.below.get(&place)?;
        let compared = self.compared.normalize(name);
        let is_it = |known: &[u8]| self.compared.normalize(known) == compared;
        entries.iter().find(|(known, _)| is_it(known)).map(|(_, found)| *found)
    }

    /// The parent of a directory.
    pub(crate) fn parent(&self, of: MountPoint) -> Option<Place> {
        Some(self.directory(of)?.above)
    }

    fn directory(&self, of: MountPoint) -> Option<&Directory> {
        self.all.get(usize::try_from(of.0).ok()?)
    }

    /// Passes their entries in a directory to `visit`, from a position on.
    ///
    /// Their positions are numbers that positions in directories on disk leave free, so they follow
    /// all others.
    pub(crate) fn list(
        &self,
        place: Place,
        from: DirCookie,
        mut visit: impl FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) {
        let first = DirCookie::FREE.0;
        for (name, mount_point) in self.below.get(&place).into_iter().flatten() {
            let next = first + 1 + u64::from(mount_point.0);
            let entry = DirEntry {
                name,
                object: mount_point.inode(),
                kind: FileKind::Directory,
                next: DirCookie(next),
            };
            if from.0 < next && visit(entry).is_break() {
                return;
            }
        }
    }

    /// Whether a position follows all entries on disk.
    pub(crate) fn is_position(&self, position: DirCookie) -> bool {
        let first = DirCookie::FREE.0;
        (first..=first.saturating_add(self.all.len() as u64)).contains(&position.0)
    }

    /// The attributes of one: a directory made by the user of this process.
    pub(crate) fn attributes(&self, of: MountPoint, inode: INodeNo) -> FileAttr {
        let made = self.directory(of).map_or(SystemTime::UNIX_EPOCH, |one| one.made);
        let entries = self.below.get(&Place::MountPoint(of)).map_or(0, Vec::len);
        FileAttr {
            ino: inode,
            size: entries as u64 + 2,
            blocks: 0,
            atime: made,
            mtime: made,
            ctime: made,
            crtime: made,
            kind: FileType::Directory,
            perm: 0o755,
            nlink: u32::try_from(entries).unwrap_or(u32::MAX).saturating_add(2),
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
            rdev: 0,
            blksize: 512,
            flags: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> MountPoints {
        let mut all = MountPoints::comparing(Normalization::NONE);
        let root = Place::Object(ObjectId(34));
        for (place, name) in [
            (root, "home"),
            (Place::MountPoint(MountPoint(0)), "ann"),
            (Place::MountPoint(MountPoint(0)), "bob"),
            (root, "srv"),
        ] {
            let index = MountPoint(all.all.len() as u32);
            all.all.push(Directory { above: place, paths: 1, made: SystemTime::now() });
            all.below.entry(place).or_default().push((name.into(), index));
        }
        all
    }

    fn listed(all: &MountPoints, place: Place, from: DirCookie) -> Vec<(String, u64)> {
        let mut found = Vec::new();
        all.list(place, from, |entry| {
            found.push((String::from_utf8_lossy(entry.name).into_owned(), entry.next.0));
            ControlFlow::Continue(())
        });
        found
    }

    #[test]
    fn names_lead_to_directories_and_numbers_back() {
        let all = example();
        let root = Place::Object(ObjectId(34));
        let home = all.lookup(root, b"home").unwrap();
        let bob = all.lookup(Place::MountPoint(home), b"bob").unwrap();
        assert_eq!(all.parent(bob), Some(Place::MountPoint(home)));
        assert_eq!(all.lookup(root, b"bob"), None);
        assert_eq!(MountPoint::from_inode(bob.inode()), Some(bob));
        assert_eq!(MountPoint::from_inode(ObjectId(34)), None);
        assert_eq!(MountPoint::from_inode(ObjectId(ObjectId::END.0 - 1)), None);
    }

    #[test]
    fn directories_go_with_the_last_path_that_needs_them() {
        let mut all = example();
        let root = Place::Object(ObjectId(34));
        let home = all.lookup(root, b"home").unwrap();
        let way = |name: &[u8]| {
            let inner = all.lookup(Place::MountPoint(home), name).unwrap();
            MountPath { directories: vec![home, inner], new: None }
        };
        let (ann, bob) = (way(b"ann"), way(b"bob"));
        all.directory_mut(home).unwrap().paths = 2;
        let end = listed(&all, Place::MountPoint(home), DirCookie::START)[0].1;
        assert_eq!(all.remove(&ann), Some((Place::MountPoint(home), b"ann".to_vec())));
        assert_eq!(all.lookup(root, b"home"), Some(home));
        assert_eq!(listed(&all, Place::MountPoint(home), DirCookie(end)).len(), 1);
        assert_eq!(all.remove(&bob), Some((root, b"home".to_vec())));
        assert_eq!(all.lookup(root, b"home"), None);
        assert_eq!(listed(&all, root, DirCookie::START).len(), 1);
    }

    #[test]
    fn listings_go_on_where_they_were_left() {
        let all = example();
        let home = Place::MountPoint(MountPoint(0));
        let both = listed(&all, home, DirCookie::START);
        assert_eq!(both.len(), 2);
        let rest = listed(&all, home, DirCookie(both[0].1));
        assert_eq!(rest, both[1..]);
        assert!(listed(&all, home, DirCookie(both[1].1)).is_empty());
        assert!(both.iter().all(|(_, position)| all.is_position(DirCookie(*position))));
        assert!(!all.is_position(DirCookie(1 << 28)));
    }
}
