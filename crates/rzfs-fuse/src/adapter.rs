//! One file system as a mount needs it: files by number, POSIX-layer calls, errnos.

mod changes;
mod listing;
mod succession;

pub(crate) use changes::{Creation, allocation_of};
pub(crate) use succession::Succession;

use crate::answer::{Answer, errno};
use crate::attributes::{Entry, FOR_EVER, Lifetime, of_control, of_file};
use crate::inode::{Inodes, Rights, SnapshotId, Target};
use crate::known::{Dropped, KnownFiles};
use crate::mount_points::{MountPath, MountPoint, MountPoints, Place};
use crate::xattr;
use fuser::{Errno, FileAttr, FileType, Generation, INodeNo};
use rzfs_format::{ObjectId, ObjsetId};
use rzfs_zpl::{Attributes, ControlNode, ControlTree, FileSystem, Files, NameTarget, ZplError};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, UNIX_EPOCH};

/// A file system, its `.zfs`, and the directories that exist only in the mount.
pub(crate) struct Adapter {
    head: Files,
    control: Option<ControlTree>,
    inodes: Inodes,
    mount_points: RwLock<Arc<MountPoints>>,
    /// Only used for a live file system.
    known: KnownFiles,
}

impl Adapter {
    pub(crate) fn new(
        head: Files,
        control: Option<ControlTree>,
        mount_points: MountPoints,
    ) -> Self {
        if let Some(live) = head.live() {
            live.set_callers_wait();
        }
        let (inodes, known) = (Inodes::new(head.root()), KnownFiles::default());
        let mount_points = RwLock::new(Arc::new(mount_points));
        Self { inodes, head, control, mount_points, known }
    }

    /// The current directories that exist only in the mount.
    fn mount_points(&self) -> Arc<MountPoints> {
        Arc::clone(&self.mount_points.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes the missing directories of a path from the root. Directory names must not change
    /// meanwhile.
    pub(crate) fn make_path(&self, path: &Path) -> io::Result<MountPath> {
        let mut all = MountPoints::clone(&self.mount_points());
        let way = all.add(&self.head, path)?;
        *self.mount_points.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(all);
        Ok(way)
    }

    /// Removes the directories made for a path that no other path needs; returns the uppermost one.
    pub(crate) fn drop_path(&self, way: &MountPath) -> Option<(Place, Vec<u8>)> {
        let mut all = self.mount_points.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut all).remove(way)
    }

    /// The inode number of a directory that contains others.
    pub(crate) fn number_of_place(&self, place: Place) -> Option<INodeNo> {
        let number = self.number(match place {
            Place::Object(object) => Target::Live(object),
            Place::MountPoint(directory) => Target::MountPoint(directory),
        });
        number.ok()
    }

    /// The numbers of the known files that can change.
    pub(crate) fn known_numbers(&self) -> Vec<INodeNo> {
        let known = self.known.all().into_iter();
        known.filter_map(|object| self.number(Target::Live(object)).ok()).collect()
    }

    /// Returns the numbers of files with pages in the kernel, which is about to drop them.
    pub(crate) fn take_pages(&self) -> Vec<INodeNo> {
        self.known.take_pages()
    }

    /// Records that the kernel has dropped the pages of a file.
    pub(crate) fn note_dropped(&self, inode: INodeNo) -> Dropped {
        match self.target(inode) {
            Ok(Target::Live(object)) => self.known.note_dropped(object),
            _ => Dropped::Done,
        }
    }

    /// What is stored into pages from now on belongs to these contents.
    pub(crate) fn keep_stores(&self) {
        self.known.keep_stores();
    }

    /// The file system without its snapshots.
    pub(crate) const fn head(&self) -> &Files {
        &self.head
    }

    /// The root directory.
    pub(crate) fn root_object(&self) -> (Files, ObjectId) {
        (self.head.clone(), self.head.root())
    }

    /// The root directory as a FUSE entry.
    pub(crate) fn root(&self) -> Answer<Entry> {
        self.entry(Target::Live(self.head.root()))
    }

    /// The attributes of a file with the inode number that users see.
    pub(crate) fn shown_attributes(&self, inode: INodeNo) -> Answer<(FileAttr, Duration)> {
        let target = self.target(inode)?;
        let shown = self.shown(target).ok_or(Errno::ESTALE)?;
        let entry = self.attributes(target, shown)?;
        Ok((entry.attributes, entry.lifetime.attributes))
    }

    /// The inode number that users see: the object's, unless the kernel knows another.
    fn shown(&self, target: Target) -> Option<INodeNo> {
        let known = match target {
            Target::Live(object) if object != self.head.root() => self.known.number(object),
            _ => None,
        };
        known.or_else(|| self.inodes.shown(target))
    }

    /// An extended attribute.
    pub(crate) fn xattr(&self, inode: INodeNo, name: &[u8]) -> Answer<Vec<u8>> {
        xattr::check_name(name)?;
        match self.target(inode)? {
            Target::Control(_) => return Err(xattr::unsupported(name)),
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
        if self.known.is_gone(inode) {
            return Err(Errno::ESTALE);
        }
        self.inodes.target(inode).ok_or(Errno::ESTALE)
    }

    fn control(&self) -> Answer<&ControlTree> {
        self.control.as_ref().ok_or(Errno::ENOENT)
    }

    /// The snapshot that currently has this object set number.
    fn snapshot_now(&self, objset: ObjsetId) -> Answer<Arc<FileSystem>> {
        self.control()?.open(objset).map_err(|error| match error {
            // The caller already has files of it.
            ZplError::NoSnapshot { .. } => Errno::ESTALE,
            error => errno(&error),
        })
    }

    fn snapshot(&self, id: SnapshotId) -> Answer<Arc<FileSystem>> {
        let snapshot = self.snapshot_now(id.objset)?;
        if SnapshotId::of(&snapshot) == id { Ok(snapshot) } else { Err(Errno::ESTALE) }
    }

    /// The file system and object of a file outside the directories of `.zfs`.
    pub(crate) fn file(&self, inode: INodeNo) -> Answer<(Files, ObjectId)> {
        match self.target(inode)? {
            Target::Live(object) => Ok((self.head.clone(), object)),
            Target::Snapshot(id, object) => Ok((self.snapshot(id)?.into(), object)),
            Target::Control(_) | Target::MountPoint(_) => Err(Errno::EISDIR),
        }
    }

    /// Resolves a directory of `.zfs`: a snapshot is shown as its root.
    fn resolve(&self, node: ControlNode) -> Answer<Target> {
        match node {
            ControlNode::Snapshot(objset) => {
                let snapshot = self.snapshot_now(objset)?;
                Ok(Target::Snapshot(SnapshotId::of(&snapshot), snapshot.root()))
            }
            _ => Ok(Target::Control(node)),
        }
    }

    /// The attributes of a file, with `inode` as its number.
    fn attributes(&self, target: Target, inode: INodeNo) -> Answer<Entry> {
        let lifetime = self.lifetime(target);
        let of = |objset: ObjsetId, attributes: &Attributes| Entry {
            attributes: of_file(inode, attributes),
            generation: generation(objset, attributes.generation),
            lifetime,
        };
        match target {
            Target::Live(object) => {
                let attributes = self.head.attributes(object).map_err(|error| errno(&error))?;
                Ok(of(self.head.objset(), &attributes))
            }
            Target::Snapshot(id, object) => {
                let attributes = self.snapshot(id)?.attributes(object);
                Ok(of(id.objset, &attributes.map_err(|error| errno(&error))?))
            }
            Target::Control(node) => {
                let attributes = self.control()?.attributes(node).map_err(|error| errno(&error))?;
                let attributes = of_control(inode, &attributes);
                Ok(Entry { attributes, generation: NONE, lifetime })
            }
            Target::MountPoint(mount_point) => {
                let mut attributes = self.mount_points().attributes(mount_point, inode);
                let adopted = self.inodes.adopted_by(mount_point);
                let generation = adopted.map_or(NONE, |one| one.generation);
                if let Some(Rights { uid, gid, permissions }) = adopted.map(|one| one.rights) {
                    (attributes.uid, attributes.gid) = (uid, gid);
                    attributes.perm = permissions;
                }
                Ok(Entry { attributes, generation, lifetime })
            }
        }
    }

    /// How long the kernel may cache a reply about a file.
    fn lifetime(&self, target: Target) -> Lifetime {
        let Some(live) = self.head.live() else { return Lifetime::FOR_EVER };
        match target {
            Target::Live(object) => {
                let lifetime = Lifetime { name: self.name_lifetime(), ..Lifetime::FOR_EVER };
                match live.is_settled(object) {
                    Ok(true) => lifetime,
                    _ => lifetime.until_written(),
                }
            }
            // Snapshots are created, destroyed and renamed without the kernel's knowledge.
            Target::Control(_) => Lifetime::NONE,
            Target::Snapshot(id, object) if self.is_snapshot_root(id, object) => {
                Lifetime { name: Duration::ZERO, ..Lifetime::FOR_EVER }
            }
            Target::MountPoint(_) => Lifetime { name: self.name_lifetime(), ..Lifetime::FOR_EVER },
            Target::Snapshot(..) => Lifetime::FOR_EVER,
        }
    }

    fn is_snapshot_root(&self, id: SnapshotId, object: ObjectId) -> bool {
        self.snapshot(id).is_ok_and(|snapshot| snapshot.root() == object)
    }

    /// How long the kernel may cache a name, positive or negative: not at all where several names
    /// match the same entry, as it would not notice one of them disappear.
    fn name_lifetime(&self) -> Duration {
        if self.head.master().has_exact_names() { FOR_EVER } else { Duration::ZERO }
    }

    /// How long the kernel may cache the absence of a name in a directory.
    pub(crate) fn absence_lifetime(&self, directory: INodeNo) -> Duration {
        match self.target(directory) {
            Ok(Target::Control(_)) | Err(_) if self.head.live().is_some() => Duration::ZERO,
            _ => self.name_lifetime(),
        }
    }

    /// Counts a reply that names a file; returns its number.
    fn remember(&self, target: Target) -> Answer<INodeNo> {
        match (self.head.live(), target) {
            (Some(live), Target::Live(object)) => self.known.remember(live, object, &self.inodes),
            _ => self.number(target),
        }
    }

    /// Drops `lookups` references that replies gave to a file.
    pub(crate) fn forget(&self, inode: INodeNo, lookups: u64) {
        if self.known.forget_gone(inode, lookups) {
            return;
        }
        if let Ok(Target::Live(object)) = self.target(inode) {
            self.known.forget(object, lookups);
        }
    }

    /// A file as a FUSE entry: the kernel knows it from now on.
    fn entry(&self, target: Target) -> Answer<Entry> {
        let inode = self.remember(target)?;
        self.attributes(target, inode).inspect_err(|_| self.forget(inode, 1))
    }

    /// Records that the kernel gets pages of a live file, before they are read.
    pub(crate) fn note_pages(&self, inode: INodeNo) {
        if let (Some(_), Ok(Target::Live(object))) = (self.head.live(), self.target(inode)) {
            self.known.note_pages(object);
        }
    }

    /// Whether the kernel may have pages of a live file.
    pub(crate) fn has_pages(&self, inode: INodeNo) -> bool {
        matches!(self.target(inode), Ok(Target::Live(object)) if self.known.has_pages(object))
    }

    /// Whether data that the kernel writes back from a mapping may belong to replaced contents; the
    /// caller then discards it.
    pub(crate) fn discards_stores(&self, inode: INodeNo) -> bool {
        matches!(self.target(inode), Ok(Target::Live(object)) if self.known.discards_stores(object))
    }

    /// Whether the kernel may have a wrong file length, and so append at the wrong offset.
    pub(crate) fn is_resized(&self, inode: INodeNo) -> bool {
        matches!(self.target(inode), Ok(Target::Live(object)) if self.known.is_resized(object))
    }

    /// Records that the kernel knows the length of the file.
    pub(crate) fn clear_resized(&self, inode: INodeNo) {
        if let Ok(Target::Live(object)) = self.target(inode) {
            self.known.clear_resized(object);
        }
    }

    /// Records that a file was read.
    pub(crate) fn note_access(&self, inode: INodeNo) {
        if let (Some(live), Ok(Target::Live(object))) = (self.head.live(), self.target(inode)) {
            // A failure to record the time does not fail the read.
            let _ = live.note_access(object);
        }
    }

    /// Releases all files and writes pending changes: the mount has ended. A suspended pool keeps
    /// them and writes them when it resumes.
    pub(crate) fn close(&self) {
        let Some(live) = self.head.live() else { return };
        self.known.clear();
        for result in [live.flush_access_times(), live.sync_unless_suspended()] {
            if let Err(error) = result {
                tracing::error!(%error, "changes cannot be written");
            }
        }
    }

    fn number(&self, target: Target) -> Answer<INodeNo> {
        let known = match target {
            Target::Live(object) => self.known.number(object),
            _ => None,
        };
        known.or_else(|| self.inodes.number(target)).ok_or(Errno::ENFILE)
    }

    /// A file by the number in a file handle; ESTALE when the file is gone.
    pub(crate) fn by_number(&self, inode: INodeNo) -> Answer<Entry> {
        let target = self.target(inode)?;
        let named = match target {
            Target::Live(object) => self.head.require_named(object),
            Target::Snapshot(id, object) => Files::from(self.snapshot(id)?).require_named(object),
            Target::Control(_) | Target::MountPoint(_) => Ok(()),
        };
        match named.map_err(|error| errno(&error)) {
            Ok(()) => self.entry(target),
            // The number may now belong to an object that is not a file.
            Err(error) if [Errno::ENOENT, Errno::EINVAL].contains(&error) => Err(Errno::ESTALE),
            Err(error) => Err(error),
        }
    }

    /// Looks up a name in a directory.
    pub(crate) fn look_up(&self, parent: INodeNo, name: &[u8]) -> Answer<Entry> {
        let target = match self.target(parent)? {
            Target::Live(object) => match self.mount_points().lookup(Place::Object(object), name) {
                Some(mount_point) => Target::MountPoint(mount_point),
                None => match self.head.lookup(object, name).map_err(|error| errno(&error))? {
                    NameTarget::Object(object) => Target::Live(object),
                    NameTarget::Control => Target::Control(ControlNode::Root),
                },
            },
            Target::MountPoint(above) => self.look_up_mount_point(above, name)?,
            Target::Snapshot(id, object) => {
                let found = self.snapshot(id)?.lookup(object, name);
                match found.map_err(|error| errno(&error))? {
                    NameTarget::Object(object) => Target::Snapshot(id, object),
                    NameTarget::Control => return Err(Errno::ENOENT),
                }
            }
            Target::Control(node) => {
                let node = self.control()?.lookup(node, name).map_err(|error| errno(&error))?;
                self.resolve(node)?
            }
        };
        self.entry(target)
    }

    fn look_up_mount_point(&self, directory: MountPoint, name: &[u8]) -> Answer<Target> {
        match name {
            b"." => Ok(Target::MountPoint(directory)),
            b".." => self.above(directory),
            name => {
                let found = self.mount_points().lookup(Place::MountPoint(directory), name);
                found.map(Target::MountPoint).ok_or(Errno::ENOENT)
            }
        }
    }

    fn above(&self, directory: MountPoint) -> Answer<Target> {
        match self.mount_points().parent(directory).ok_or(Errno::ESTALE)? {
            Place::Object(object) => Ok(Target::Live(object)),
            Place::MountPoint(mount_point) => Ok(Target::MountPoint(mount_point)),
        }
    }

    /// Looks for data or a hole.
    pub(crate) fn seek(&self, inode: INodeNo, seeking: Seeking) -> Answer<Sought> {
        let (file_system, object) = self.file(inode)?;
        let size = file_system.attributes(object).map_err(|error| errno(&error))?.size;
        let data_from = |offset| match file_system.seek_data(object, offset) {
            Err(error) if errno(&error) == Errno::ENXIO => Ok(None),
            data => data.map(Some).map_err(|error| errno(&error)),
        };
        Ok(match seeking {
            Seeking::Data(offset) => {
                let data = data_from(offset)?;
                let found = data.ok_or(Errno::ENXIO).and_then(signed);
                Sought { found, hole: offset..data.unwrap_or(size) }
            }
            Seeking::Hole(offset) => {
                let hole = file_system.seek_hole(object, offset);
                let hole = hole.map_err(|error| errno(&error))?;
                Sought { found: signed(hole), hole: hole..data_from(hole)?.unwrap_or(size) }
            }
        })
    }

    /// The same in a file that counts as data all over.
    pub(crate) fn seek_in_data(&self, inode: INodeNo, seeking: Seeking) -> Answer<i64> {
        let (file_system, object) = self.file(inode)?;
        let size = file_system.attributes(object).map_err(|error| errno(&error))?.size;
        match seeking {
            Seeking::Data(offset) | Seeking::Hole(offset) if offset >= size => Err(Errno::ENXIO),
            Seeking::Data(offset) => signed(offset),
            Seeking::Hole(_) => signed(size),
        }
    }
}

/// What is looked for in a file, from an offset on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seeking {
    Data(u64),
    Hole(u64),
}

impl Seeking {
    /// As the arguments of lseek(2) say.
    pub(crate) fn of(offset: i64, whence: i32) -> Answer<Self> {
        const SEEK_DATA: i32 = 3;
        const SEEK_HOLE: i32 = 4;
        let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
        match whence {
            SEEK_DATA => Ok(Self::Data(offset)),
            SEEK_HOLE => Ok(Self::Hole(offset)),
            _ => Err(Errno::EINVAL),
        }
    }
}

/// What was found.
#[derive(Debug)]
pub(crate) struct Sought {
    pub(crate) found: Answer<i64>,
    /// The hole that was passed or found; empty if there was none.
    pub(crate) hole: Range<u64>,
}

fn signed(offset: u64) -> Answer<i64> {
    i64::try_from(offset).map_err(|_| Errno::EOVERFLOW)
}

pub(crate) const NONE: Generation = Generation(0);

/// Tells apart files that reuse a number: in one file system, and in its snapshots, whose numbers
/// are reassigned with every mount. The kernel keeps 32 bits.
fn generation(objset: ObjsetId, generation: u64) -> Generation {
    const SPREAD: u64 = 0x9e37_79b1;
    let mixed = generation.wrapping_add(objset.0.wrapping_mul(SPREAD));
    Generation(mixed & u64::from(u32::MAX))
}

/// Attributes of a missing file.
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
