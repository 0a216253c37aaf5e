//! One file system as a mount needs it: files by number, calls of the POSIX layer, errnos.

use crate::attributes::{file_type, of_control, of_file};
use crate::inode::{Inodes, Target};
use crate::mount_points::{MountPoint, MountPoints, Place};
use crate::xattr;
use fuser::{Errno, FileAttr, FileType, Generation, INodeNo};
use rzfs_format::dirent::FileKind;
use rzfs_format::{ObjectId, ObjsetId};
use rzfs_zpl::{ControlNode, ControlTree, DirCookie, DirEntry, FileSystem, Found, ZplError};
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// Entries whose attributes are read together while a directory is listed.
const LISTING_BATCH: usize = 256;

/// A file system, its `.zfs`, and the directories that only the mount has.
pub(crate) struct Adapter {
    live: Arc<FileSystem>,
    control: Option<ControlTree>,
    inodes: Inodes,
    mount_points: MountPoints,
}

pub(crate) type Answer<T> = Result<T, Errno>;

pub(crate) fn errno(error: &ZplError) -> Errno {
    tracing::debug!(%error, "request failed");
    Errno::from_i32(error.errno())
}

/// An entry of a listing, kept until its attributes are read.
struct Listed {
    name: Vec<u8>,
    target: Target,
    kind: FileKind,
    next: DirCookie,
}

impl Adapter {
    pub(crate) fn new(
        live: Arc<FileSystem>,
        control: Option<ControlTree>,
        mount_points: MountPoints,
    ) -> Self {
        Self { inodes: Inodes::new(live.root()), live, control, mount_points }
    }

    /// The file system without its snapshots.
    pub(crate) fn live(&self) -> &FileSystem {
        &self.live
    }

    /// The root directory.
    pub(crate) fn root_object(&self) -> (Arc<FileSystem>, ObjectId) {
        (Arc::clone(&self.live), self.live.root())
    }

    /// The attributes of the root directory.
    pub(crate) fn root(&self) -> Answer<(FileAttr, Generation)> {
        self.attributes(Target::Live(self.live.root()), INodeNo::ROOT)
    }

    /// The attributes of a file with the number that users see.
    pub(crate) fn shown_attributes(&self, inode: INodeNo) -> Answer<FileAttr> {
        let target = self.target(inode)?;
        let shown = self.inodes.shown(target).ok_or(Errno::ESTALE)?;
        Ok(self.attributes(target, shown)?.0)
    }

    /// An extended attribute.
    pub(crate) fn xattr(&self, inode: INodeNo, name: &[u8]) -> Answer<Vec<u8>> {
        match self.target(inode)? {
            Target::Control(_) => return Err(xattr::missing_from_control(name)),
            Target::MountPoint(_) => return Err(Errno::NO_XATTR),
            Target::Live(_) | Target::Snapshot(..) => {}
        }
        let (file_system, object) = self.file(inode)?;
        file_system.xattr(object, name).map_err(|error| errno(&error))
    }

    /// The names of the extended attributes.
    pub(crate) fn xattr_names(&self, inode: INodeNo) -> Answer<Vec<Vec<u8>>> {
        if let Target::Control(_) | Target::MountPoint(_) = self.target(inode)? {
            return Ok(Vec::new());
        }
        let (file_system, object) = self.file(inode)?;
        file_system.xattr_names(object).map_err(|error| errno(&error))
    }

    fn target(&self, inode: INodeNo) -> Answer<Target> {
        self.inodes.target(inode).ok_or(Errno::ESTALE)
    }

    fn control(&self) -> Answer<&ControlTree> {
        self.control.as_ref().ok_or(Errno::ENOENT)
    }

    fn snapshot(&self, objset: ObjsetId) -> Answer<Arc<FileSystem>> {
        self.control()?.open(objset).map_err(|error| errno(&error))
    }

    /// The file system and object of a file that is not a directory of `.zfs`.
    pub(crate) fn file(&self, inode: INodeNo) -> Answer<(Arc<FileSystem>, ObjectId)> {
        match self.target(inode)? {
            Target::Live(object) => Ok((Arc::clone(&self.live), object)),
            Target::Snapshot(objset, object) => Ok((self.snapshot(objset)?, object)),
            Target::Control(_) | Target::MountPoint(_) => Err(Errno::EISDIR),
        }
    }

    /// What a directory of `.zfs` shows as: a snapshot as its root.
    fn resolve(&self, node: ControlNode) -> Answer<Target> {
        match node {
            ControlNode::Snapshot(objset) => {
                Ok(Target::Snapshot(objset, self.snapshot(objset)?.root()))
            }
            _ => Ok(Target::Control(node)),
        }
    }

    /// The attributes of a file, with `inode` as its number.
    fn attributes(&self, target: Target, inode: INodeNo) -> Answer<(FileAttr, Generation)> {
        let of = |file_system: &FileSystem, object| {
            let attributes = file_system.attributes(object).map_err(|error| errno(&error))?;
            Ok((of_file(inode, &attributes), Generation(attributes.generation)))
        };
        match target {
            Target::Live(object) => of(&self.live, object),
            Target::Snapshot(objset, object) => of(&*self.snapshot(objset)?, object),
            Target::Control(node) => {
                let attributes = self.control()?.attributes(node).map_err(|error| errno(&error))?;
                Ok((of_control(inode, &attributes), NONE))
            }
            Target::MountPoint(mount_point) => {
                Ok((self.mount_points.attributes(mount_point, inode), NONE))
            }
        }
    }

    fn number(&self, target: Target) -> Answer<INodeNo> {
        self.inodes.number(target).ok_or(Errno::ENFILE)
    }

    /// What a name in a directory leads to.
    pub(crate) fn look_up(&self, parent: INodeNo, name: &[u8]) -> Answer<(FileAttr, Generation)> {
        let found = |file_system: &FileSystem, object| {
            file_system.lookup(object, name).map_err(|error| errno(&error))
        };
        let target = match self.target(parent)? {
            Target::Live(object) => match self.mount_points.lookup(Place::Object(object), name) {
                Some(mount_point) => Target::MountPoint(mount_point),
                None => match found(&self.live, object)? {
                    Found::Object(object) => Target::Live(object),
                    Found::Control => Target::Control(ControlNode::Root),
                },
            },
            Target::MountPoint(above) => self.look_up_mount_point(above, name)?,
            Target::Snapshot(objset, object) => match found(&*self.snapshot(objset)?, object)? {
                Found::Object(object) => Target::Snapshot(objset, object),
                Found::Control => return Err(Errno::ENOENT),
            },
            Target::Control(node) => {
                let node = self.control()?.lookup(node, name).map_err(|error| errno(&error))?;
                self.resolve(node)?
            }
        };
        self.attributes(target, self.number(target)?)
    }

    fn look_up_mount_point(&self, directory: MountPoint, name: &[u8]) -> Answer<Target> {
        match name {
            b"." => Ok(Target::MountPoint(directory)),
            b".." => self.above(directory),
            name => {
                let found = self.mount_points.lookup(Place::MountPoint(directory), name);
                found.map(Target::MountPoint).ok_or(Errno::ENOENT)
            }
        }
    }

    fn above(&self, directory: MountPoint) -> Answer<Target> {
        match self.mount_points.parent(directory).ok_or(Errno::ESTALE)? {
            Place::Object(object) => Ok(Target::Live(object)),
            Place::MountPoint(mount_point) => Ok(Target::MountPoint(mount_point)),
        }
    }

    /// Hands the entries of a directory of the live file system from a position on to `visit`:
    /// those on disk, then those of the mount alone.
    fn list_live(
        &self,
        directory: ObjectId,
        from: DirCookie,
        mut visit: impl FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Answer<()> {
        let mut flow = ControlFlow::Continue(());
        if !self.mount_points.is_position(from) {
            let listed = self.live.read_dir(directory, from, |entry| {
                flow = visit(entry);
                flow
            });
            listed.map_err(|error| errno(&error))?;
        }
        if flow.is_continue() {
            self.mount_points.list(Place::Object(directory), from_free(from), visit);
        }
        Ok(())
    }

    /// The same for a directory of the mount alone.
    fn list_mount_point(
        &self,
        directory: MountPoint,
        from: DirCookie,
        mut visit: impl FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Answer<()> {
        let above = match self.above(directory)? {
            Target::MountPoint(above) => above.inode(),
            Target::Live(object) => object,
            Target::Control(_) | Target::Snapshot(..) => return Err(Errno::ESTALE),
        };
        for (next, name, object) in [(1, &b"."[..], directory.inode()), (2, b"..", above)] {
            let next = DirCookie(next);
            let entry = DirEntry { name, object, kind: FileKind::Directory, next };
            if from < next && visit(entry).is_break() {
                return Ok(());
            }
        }
        self.mount_points.list(Place::MountPoint(directory), from_free(from), visit);
        Ok(())
    }

    /// Hands the entries of a directory from a position on to `visit`.
    fn list(
        &self,
        directory: INodeNo,
        from: DirCookie,
        visit: impl FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Answer<()> {
        let listed = match self.target(directory)? {
            Target::MountPoint(mount_point) => {
                return self.list_mount_point(mount_point, from, visit);
            }
            Target::Live(object) => return self.list_live(object, from, visit),
            Target::Snapshot(objset, object) => {
                self.snapshot(objset)?.read_dir(object, from, visit)
            }
            Target::Control(node) => self.control()?.read_dir(node, from, visit),
        };
        listed.map_err(|error| errno(&error))
    }

    /// What an entry of `directory` names.
    fn entry_target(&self, directory: Target, object: ObjectId) -> Target {
        match directory {
            Target::Snapshot(objset, _) => Target::Snapshot(objset, object),
            _ => Target::of_number(object),
        }
    }

    /// The next entries of a directory, at most [`LISTING_BATCH`]. Damage counts once it is the
    /// next thing: entries before it are good.
    fn batch(&self, directory: INodeNo, from: DirCookie) -> Answer<Vec<Listed>> {
        let parent = self.target(directory)?;
        let mut batch = Vec::with_capacity(LISTING_BATCH);
        let listed = self.list(directory, from, |entry| {
            batch.push(Listed {
                name: entry.name.to_vec(),
                target: self.entry_target(parent, entry.object),
                kind: entry.kind,
                next: entry.next,
            });
            if batch.len() == LISTING_BATCH {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        match listed {
            Err(error) if batch.is_empty() => Err(error),
            _ => Ok(batch),
        }
    }

    /// Hands the entries of a directory with their attributes on to `visit`, until it says that
    /// the answer is full. What is not known of an entry without being asked for (and of `.` and
    /// `..`, which the kernel knows) comes as a placeholder only.
    pub(crate) fn list_with_attributes(
        &self,
        directory: INodeNo,
        from: DirCookie,
        mut visit: impl FnMut(&OsStr, DirCookie, Option<(FileAttr, Generation)>, &FileAttr) -> bool,
    ) -> Answer<()> {
        let start = from;
        let mut from = from;
        loop {
            let batch = match self.batch(directory, from) {
                // Who asks for what follows gets the error.
                Err(_) if from != start => return Ok(()),
                batch => batch?,
            };
            let Some(last) = batch.last() else { return Ok(()) };
            from = last.next;
            self.prefetch(directory, &batch)?;
            for entry in &batch {
                // Snapshots open when they are entered, not when they are listed.
                let known = match entry.target {
                    Target::Control(_) | Target::MountPoint(_) => None,
                    _ if is_dots(&entry.name) => None,
                    target => self.attributes(target, self.number(target)?).ok(),
                };
                let name = OsStr::from_bytes(&entry.name);
                if visit(name, entry.next, known, &placeholder(entry)) {
                    return Ok(());
                }
            }
        }
    }

    fn prefetch(&self, directory: INodeNo, batch: &[Listed]) -> Answer<()> {
        let objects: Vec<ObjectId> = batch
            .iter()
            .filter_map(|entry| match entry.target {
                Target::Live(object) | Target::Snapshot(_, object) => Some(object),
                Target::Control(_) | Target::MountPoint(_) => None,
            })
            .collect();
        match self.target(directory)? {
            Target::Live(_) => self.live.prefetch_attributes(&objects),
            Target::Snapshot(objset, _) => self.snapshot(objset)?.prefetch_attributes(&objects),
            Target::Control(_) | Target::MountPoint(_) => {}
        }
        Ok(())
    }

    /// Hands the entries of a directory with the numbers that users see on to `visit`, until it
    /// says that the answer is full.
    pub(crate) fn list_names(
        &self,
        directory: INodeNo,
        from: DirCookie,
        mut visit: impl FnMut(INodeNo, DirCookie, FileType, &OsStr) -> bool,
    ) -> Answer<()> {
        let parent = self.target(directory)?;
        let mut is_empty = true;
        let listed = self.list(directory, from, |entry| {
            let target = self.entry_target(parent, entry.object);
            let inode = self.inodes.shown(target).unwrap_or(INodeNo(entry.object.0));
            let name = OsStr::from_bytes(entry.name);
            if visit(inode, entry.next, file_type(entry.kind), name) {
                return ControlFlow::Break(());
            }
            is_empty = false;
            ControlFlow::Continue(())
        });
        match listed {
            // Who asks for what follows gets the error.
            Err(_) if !is_empty => Ok(()),
            listed => listed,
        }
    }

    /// The next data or hole, as `whence` says.
    pub(crate) fn seek(&self, inode: INodeNo, offset: i64, whence: i32) -> Answer<i64> {
        const SEEK_DATA: i32 = 3;
        const SEEK_HOLE: i32 = 4;
        let (file_system, object) = self.file(inode)?;
        let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
        let found = match whence {
            SEEK_DATA => file_system.seek_data(object, offset),
            SEEK_HOLE => file_system.seek_hole(object, offset),
            _ => return Err(Errno::EINVAL),
        };
        i64::try_from(found.map_err(|error| errno(&error))?).map_err(|_| Errno::EOVERFLOW)
    }
}

pub(crate) const NONE: Generation = Generation(0);

/// Where to begin among the directories of the mount alone, when a listing is at this position.
fn from_free(position: DirCookie) -> DirCookie {
    // Positions after entries on disk are larger, and are before all of these.
    if position.0 >> 28 == 0 { position } else { DirCookie::START }
}

fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// Attributes of nothing.
pub(crate) const ABSENT: FileAttr = FileAttr {
    ino: INodeNo(0),
    size: 0,
    blocks: 0,
    atime: UNIX_EPOCH,
    mtime: UNIX_EPOCH,
    ctime: UNIX_EPOCH,
    crtime: UNIX_EPOCH,
    kind: FileType::RegularFile,
    perm: 0,
    nlink: 1,
    uid: 0,
    gid: 0,
    rdev: 0,
    blksize: 512,
    flags: 0,
};

/// The little that is known of an entry whose attributes were not read.
fn placeholder(entry: &Listed) -> FileAttr {
    let object = match entry.target {
        Target::Live(object) | Target::Snapshot(_, object) => object,
        Target::Control(node) => node.inode(),
        Target::MountPoint(mount_point) => mount_point.inode(),
    };
    FileAttr { ino: INodeNo(object.0), kind: file_type(entry.kind), ..ABSENT }
}
