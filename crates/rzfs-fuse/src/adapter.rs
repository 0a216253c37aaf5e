//! FUSE requests to calls of the POSIX layer.

use crate::attributes::{file_type, of_control, of_file};
use crate::inode::{Inodes, Target};
use crate::mount_points::{MountPoint, MountPoints, Place};
use fuser::{
    Errno, FileAttr, FileHandle, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEntry,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyXattr, Request,
};
use rzfs_format::dirent::FileKind;
use rzfs_format::{ObjectId, ObjsetId};
use rzfs_zpl::{
    AclType, ControlNode, ControlTree, DirCookie, DirEntry, FileSystem, Found, ZplError,
};
use std::any::Any;
use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

/// Nothing changes below a mount that only reads, so the kernel may keep what it has learnt.
const FOR_EVER: Duration = Duration::from_secs(1 << 30);

/// Most bytes that the kernel should read ahead.
const MAX_READ_AHEAD: u32 = 1 << 20;

/// Entries whose attributes are read together while a directory is listed.
const LISTING_BATCH: usize = 256;

/// What the kernel is asked for, each if it has it: large and parallel requests, attributes with
/// listings, no request where none is needed.
const WANTED: [InitFlags; 10] = [
    InitFlags::FUSE_ASYNC_READ,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_MAX_PAGES,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_EXPORT_SUPPORT,
    InitFlags::FUSE_NO_OPEN_SUPPORT,
    InitFlags::FUSE_NO_OPENDIR_SUPPORT,
];

/// Requests in the background (reading ahead, asynchronous reads) that the kernel may have open
/// at once, and from how many on it calls the file system busy.
const MAX_BACKGROUND: u16 = 64;
const CONGESTION: u16 = MAX_BACKGROUND / 4 * 3;

/// One mounted file system.
pub(crate) struct Adapter {
    live: Arc<FileSystem>,
    control: Option<ControlTree>,
    inodes: Inodes,
    /// What the kernel can do.
    kernel: InitFlags,
    mount_points: MountPoints,
    _while_mounted: Option<Arc<dyn Any + Send + Sync>>,
}

type Answer<T> = Result<T, Errno>;

fn errno(error: &ZplError) -> Errno {
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
    /// A file system with its `.zfs`, and with directories that only the mount has.
    /// `while_mounted` is dropped when the mount has ended.
    pub(crate) fn new(
        live: Arc<FileSystem>,
        control: Option<ControlTree>,
        mount_points: MountPoints,
        while_mounted: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Self {
        let inodes = Inodes::new(live.root());
        let kernel = InitFlags::empty();
        Self { inodes, live, control, kernel, mount_points, _while_mounted: while_mounted }
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
    fn file(&self, inode: INodeNo) -> Answer<(Arc<FileSystem>, ObjectId)> {
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

    fn look_up(&self, parent: INodeNo, name: &[u8]) -> Answer<(FileAttr, Generation)> {
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

    /// The next entries of a directory, at most [`LISTING_BATCH`].
    fn batch(&self, directory: INodeNo, from: DirCookie) -> Answer<Vec<Listed>> {
        let parent = self.target(directory)?;
        let mut batch = Vec::with_capacity(LISTING_BATCH);
        self.list(directory, from, |entry| {
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
        })?;
        Ok(batch)
    }

    /// Lists a directory together with the attributes of its entries until the answer is full.
    fn list_with_attributes(
        &self,
        directory: INodeNo,
        from: DirCookie,
        reply: &mut ReplyDirectoryPlus,
    ) -> Answer<()> {
        let mut from = from;
        loop {
            let batch = self.batch(directory, from)?;
            let Some(last) = batch.last() else { return Ok(()) };
            from = last.next;
            self.prefetch(directory, &batch)?;
            for entry in &batch {
                // Snapshots open when they are entered, not when they are listed.
                let listed = match entry.target {
                    Target::Control(_) | Target::MountPoint(_) => None,
                    target => Some(self.attributes(target, self.number(target)?)),
                };
                let name = OsStr::from_bytes(&entry.name);
                let cookie = entry.next.0;
                let is_full = match listed {
                    Some(Ok((attributes, generation))) if !is_dots(&entry.name) => {
                        let inode = attributes.ino;
                        reply.add(inode, cookie, name, &FOR_EVER, &attributes, generation)
                    }
                    // Without attributes the kernel asks for them when it needs them: a number
                    // of 0 says so, and the time is none.
                    _ => {
                        let attributes = placeholder(entry);
                        reply.add(INodeNo(0), cookie, name, &Duration::ZERO, &attributes, NONE)
                    }
                };
                if is_full {
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

    fn list_names(
        &self,
        directory: INodeNo,
        from: DirCookie,
        reply: &mut ReplyDirectory,
    ) -> Answer<()> {
        let parent = self.target(directory)?;
        self.list(directory, from, |entry| {
            let target = self.entry_target(parent, entry.object);
            let inode = self.inodes.shown(target).unwrap_or(INodeNo(entry.object.0));
            let name = OsStr::from_bytes(entry.name);
            if reply.add(inode, entry.next.0, file_type(entry.kind), name) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
    }

    fn seek(&self, inode: INodeNo, offset: i64, whence: i32) -> Answer<i64> {
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

const NONE: Generation = Generation(0);

/// Where to begin among the directories of the mount alone, when a listing is at this position.
fn from_free(position: DirCookie) -> DirCookie {
    // Positions after entries on disk are larger, and are before all of these.
    if position.0 >> 28 == 0 { position } else { DirCookie::START }
}

fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// The little that is known of an entry whose attributes were not read.
fn placeholder(entry: &Listed) -> FileAttr {
    let epoch = std::time::SystemTime::UNIX_EPOCH;
    let object = match entry.target {
        Target::Live(object) | Target::Snapshot(_, object) => object,
        Target::Control(node) => node.inode(),
        Target::MountPoint(mount_point) => mount_point.inode(),
    };
    FileAttr {
        ino: INodeNo(object.0),
        size: 0,
        blocks: 0,
        atime: epoch,
        mtime: epoch,
        ctime: epoch,
        crtime: epoch,
        kind: file_type(entry.kind),
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 512,
        flags: 0,
    }
}

/// Answers a request for an extended attribute: the size alone if that is what was asked for.
fn reply_xattr(reply: ReplyXattr, size: u32, value: Answer<Vec<u8>>) {
    match value {
        Err(error) => reply.error(error),
        Ok(value) => match u32::try_from(value.len()) {
            Ok(len) if size == 0 => reply.size(len),
            Ok(len) if len <= size => reply.data(&value),
            _ => reply.error(Errno::ERANGE),
        },
    }
}

impl fuser::Filesystem for Adapter {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for flag in WANTED {
            // What the kernel does not have it does without.
            let _ = config.add_capabilities(flag);
        }
        // The kernel takes "not supported" for an error once it was told of ACLs.
        if self.live.options().acl_type == AclType::Posix {
            let _ = config.add_capabilities(InitFlags::FUSE_POSIX_ACL);
        }
        let _ = config.set_max_readahead(MAX_READ_AHEAD);
        let _ = config.set_max_background(MAX_BACKGROUND);
        let _ = config.set_congestion_threshold(CONGESTION);
        self.kernel = config.capabilities();
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.look_up(parent, name.as_bytes()) {
            Ok((attributes, generation)) => reply.entry(&FOR_EVER, &attributes, generation),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let answer = self.target(inode).and_then(|target| {
            let shown = self.inodes.shown(target).ok_or(Errno::ESTALE)?;
            self.attributes(target, shown)
        });
        match answer {
            Ok((attributes, _)) => reply.attr(&FOR_EVER, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        let target = self.file(inode).and_then(|(file_system, object)| {
            file_system.read_link(object).map_err(|error| errno(&error))
        });
        match target {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error),
        }
    }

    /// Opening changes nothing here, so a kernel that can do without asking is told to: it saves
    /// two requests for each file. What must not be read is refused when it is read.
    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if self.kernel.contains(InitFlags::FUSE_NO_OPEN_SUPPORT) {
            return reply.error(Errno::ENOSYS);
        }
        let open = self.file(inode).and_then(|(file_system, object)| {
            file_system.open_for_reading(object).map_err(|error| errno(&error))
        });
        match open {
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE),
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let segments = self.file(inode).and_then(|(file_system, object)| {
            file_system
                .read_segments(object, offset, u64::from(size))
                .map_err(|error| errno(&error))
        });
        match segments.as_deref() {
            Ok([segment]) => reply.data(segment),
            Ok(segments) => reply.data(&segments.concat()),
            Err(error) => reply.error(*error),
        }
    }

    /// As for files.
    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if self.kernel.contains(InitFlags::FUSE_NO_OPENDIR_SUPPORT) {
            return reply.error(Errno::ENOSYS);
        }
        let flags = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR;
        reply.opened(FileHandle(0), flags);
    }

    fn readdir(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        match self.list_names(inode, DirCookie(offset), &mut reply) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        match self.list_with_attributes(inode, DirCookie(offset), &mut reply) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn statfs(&self, _: &Request, inode: INodeNo, reply: ReplyStatfs) {
        let (file_system, object) =
            self.file(inode).unwrap_or_else(|_| (Arc::clone(&self.live), self.live.root()));
        match file_system.statistics(object) {
            Ok(space) => reply.statfs(
                space.blocks,
                space.available,
                space.available,
                space.objects,
                space.available_objects,
                space.block_size,
                space.max_name,
                space.block_size,
            ),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn getxattr(&self, _: &Request, inode: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let value = match self.target(inode) {
            Ok(Target::Control(_) | Target::MountPoint(_)) => Err(Errno::NO_XATTR),
            _ => self.file(inode).and_then(|(file_system, object)| {
                file_system.xattr(object, name.as_bytes()).map_err(|error| errno(&error))
            }),
        };
        reply_xattr(reply, size, value);
    }

    fn listxattr(&self, _: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        let names = match self.target(inode) {
            Ok(Target::Control(_) | Target::MountPoint(_)) => Ok(Vec::new()),
            _ => self.file(inode).and_then(|(file_system, object)| {
                file_system.xattr_names(object).map_err(|error| errno(&error))
            }),
        };
        let list = names
            .map(|names| names.into_iter().flat_map(|name| name.into_iter().chain([0])).collect());
        reply_xattr(reply, size, list);
    }

    fn lseek(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        match self.seek(inode, offset, whence) {
            Ok(found) => reply.offset(found),
            Err(error) => reply.error(error),
        }
    }
}
