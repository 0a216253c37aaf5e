//! The requests of a mount: each goes to one of its file systems.

use crate::adapter::{ABSENT, Adapter, Answer, NONE, errno};
use crate::grafts::Grafts;
use crate::mount::Nested;
use crate::mount_points::MountPoints;
use crate::xattr;
use fuser::{
    Errno, FileAttr, FileHandle, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEntry,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyXattr, Request,
};
use rzfs_zpl::{AclType, ControlTree, DirCookie, FileSystem};
use std::any::Any;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Nothing changes below a mount that only reads, so the kernel may keep what it has learnt.
const FOR_EVER: Duration = Duration::from_secs(1 << 30);

/// Most bytes that the kernel should read ahead.
const MAX_READ_AHEAD: u32 = 1 << 20;

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

/// What a mount serves.
pub(crate) struct Session {
    /// The file system at the root, then those that are grafted into it.
    file_systems: Vec<Adapter>,
    grafts: Grafts,
    /// What the kernel can do.
    kernel: InitFlags,
    _while_mounted: Option<Arc<dyn Any + Send + Sync>>,
}

impl Session {
    /// A file system with others in it, and with directories at `mount_points` for other mounts.
    /// `while_mounted` is dropped when the mount has ended.
    ///
    /// # Errors
    /// A directory on the way to a mount point cannot be read.
    pub(crate) fn new(
        live: Arc<FileSystem>,
        control: Option<ControlTree>,
        mut nested: Vec<Nested>,
        mount_points: &[PathBuf],
        while_mounted: Option<Arc<dyn Any + Send + Sync>>,
    ) -> io::Result<Self> {
        nested.sort_by_key(|one| one.path.components().count());
        let places: Vec<PathBuf> = nested.iter().map(|one| one.path.clone()).collect();
        // For each the file system that it is in, and where there.
        let within: Vec<(usize, &Path)> =
            (0..places.len()).map(|of| enclosing(&places, of)).collect();
        let of = |file_system: usize| {
            let inner = within.iter().filter(move |(index, _)| *index == file_system);
            inner.map(|(_, path)| *path)
        };
        let paths: Vec<&Path> = of(0).chain(mount_points.iter().map(PathBuf::as_path)).collect();
        let directories = MountPoints::missing(&live, &paths)?;
        let mut file_systems = vec![Adapter::new(live, control, directories)];
        for (index, one) in nested.into_iter().enumerate() {
            let paths: Vec<&Path> = of(index + 1).collect();
            let directories = MountPoints::missing(&one.file_system, &paths)?;
            file_systems.push(Adapter::new(one.file_system, one.control, directories));
        }
        let mut grafts = Grafts::default();
        for (index, (outer, path)) in within.iter().enumerate() {
            let Some(adapter) = file_systems.get(*outer) else { continue };
            let mut directory = INodeNo::ROOT;
            for name in path.iter() {
                let found = adapter.look_up(directory, name.as_bytes());
                directory =
                    found.map_err(|error| io::Error::from_raw_os_error(error.code()))?.0.ino;
            }
            grafts.insert(*outer, directory, index + 1);
        }
        let kernel = InitFlags::empty();
        Ok(Self { file_systems, grafts, kernel, _while_mounted: while_mounted })
    }

    /// The file system that a number of the mount belongs to, with its position, and the number
    /// there.
    fn inner(&self, outer: INodeNo) -> Answer<(usize, &Adapter, INodeNo)> {
        let (index, inner) = self.grafts.inner(outer).ok_or(Errno::ESTALE)?;
        Ok((index, self.file_systems.get(index).ok_or(Errno::ESTALE)?, inner))
    }

    /// Attributes with the mount's number.
    fn numbered(&self, index: usize, mut attributes: FileAttr) -> Answer<FileAttr> {
        attributes.ino = self.grafts.outer(index, attributes.ino).ok_or(Errno::ENFILE)?;
        Ok(attributes)
    }

    fn look_up(&self, parent: INodeNo, name: &OsStr) -> Answer<(FileAttr, Generation)> {
        let (index, adapter, directory) = self.inner(parent)?;
        let (attributes, generation) = adapter.look_up(directory, name.as_bytes())?;
        match self.grafts.at(index, attributes.ino) {
            Some(grafted) => {
                let adapter = self.file_systems.get(grafted).ok_or(Errno::ESTALE)?;
                let (attributes, generation) = adapter.root()?;
                Ok((self.numbered(grafted, attributes)?, generation))
            }
            None => Ok((self.numbered(index, attributes)?, generation)),
        }
    }

    fn list_with_attributes(
        &self,
        directory: INodeNo,
        from: DirCookie,
        reply: &mut ReplyDirectoryPlus,
    ) -> Answer<()> {
        let (index, adapter, directory) = self.inner(directory)?;
        adapter.list_with_attributes(directory, from, |name, next, known, placeholder| {
            let known = known
                .filter(|(attributes, _)| self.grafts.at(index, attributes.ino).is_none())
                .and_then(|(attributes, generation)| {
                    Some((self.numbered(index, attributes).ok()?, generation))
                });
            match known {
                Some((attributes, generation)) => {
                    let inode = attributes.ino;
                    reply.add(inode, next.0, name, &FOR_EVER, &attributes, generation)
                }
                // Without attributes the kernel asks for them when it needs them: a number of 0
                // says so, and the time is none.
                None => reply.add(INodeNo(0), next.0, name, &Duration::ZERO, placeholder, NONE),
            }
        })
    }

    fn list_names(
        &self,
        directory: INodeNo,
        from: DirCookie,
        reply: &mut ReplyDirectory,
    ) -> Answer<()> {
        let (index, adapter, directory) = self.inner(directory)?;
        adapter.list_names(directory, from, |inode, next, kind, name| {
            let inode = self.grafts.outer(index, inode).unwrap_or(inode);
            reply.add(inode, next.0, kind, name)
        })
    }
}

/// The file system that a nested one is in, by its position, and where there. The nested ones
/// come after the one at the root, so theirs is their position + 1.
fn enclosing(places: &[PathBuf], of: usize) -> (usize, &Path) {
    let Some(path) = places.get(of) else { return (0, Path::new("")) };
    let inside = |(index, other): (usize, &PathBuf)| {
        let relative = path.strip_prefix(other).ok().filter(|_| index != of)?;
        Some((index + 1, relative))
    };
    let all = places.iter().enumerate().filter_map(inside);
    all.min_by_key(|(_, relative)| relative.components().count()).unwrap_or((0, path))
}

impl fuser::Filesystem for Session {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for flag in WANTED {
            // What the kernel does not have it does without.
            let _ = config.add_capabilities(flag);
        }
        // The kernel takes "not supported" for an error once it was told of ACLs.
        if self.file_systems.iter().all(|one| one.live().options().acl_type == AclType::Posix) {
            let _ = config.add_capabilities(InitFlags::FUSE_POSIX_ACL);
        }
        let _ = config.set_max_readahead(MAX_READ_AHEAD);
        let _ = config.set_max_background(MAX_BACKGROUND);
        let _ = config.set_congestion_threshold(CONGESTION);
        self.kernel = config.capabilities();
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.look_up(parent, name) {
            Ok((attributes, generation)) => reply.entry(&FOR_EVER, &attributes, generation),
            // That there is no such file can be remembered too; number 0 says it.
            Err(error) if error == Errno::ENOENT => reply.entry(&FOR_EVER, &ABSENT, NONE),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let answer = self.inner(inode).and_then(|(index, adapter, inode)| {
            self.numbered(index, adapter.shown_attributes(inode)?)
        });
        match answer {
            Ok(attributes) => reply.attr(&FOR_EVER, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        let target = self.inner(inode).and_then(|(_, adapter, inode)| {
            let (file_system, object) = adapter.file(inode)?;
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
        let open = self.inner(inode).and_then(|(_, adapter, inode)| {
            let (file_system, object) = adapter.file(inode)?;
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
        let segments = self.inner(inode).and_then(|(_, adapter, inode)| {
            let (file_system, object) = adapter.file(inode)?;
            let segments = file_system.read_segments(object, offset, u64::from(size));
            segments.map_err(|error| errno(&error))
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
        let space = self.inner(inode).and_then(|(_, adapter, inode)| {
            let (file_system, object) =
                adapter.file(inode).unwrap_or_else(|_| adapter.root_object());
            file_system.statistics(object).map_err(|error| errno(&error))
        });
        match space {
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
            Err(error) => reply.error(error),
        }
    }

    fn getxattr(&self, _: &Request, inode: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let value =
            self.inner(inode).and_then(|(_, adapter, inode)| adapter.xattr(inode, name.as_bytes()));
        xattr::reply(reply, size, value);
    }

    fn listxattr(&self, request: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.inner(inode).and_then(|(_, adapter, inode)| adapter.xattr_names(inode));
        let list = names.map(|names| xattr::listing(names, request.uid()));
        xattr::reply(reply, size, list);
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
        let found =
            self.inner(inode).and_then(|(_, adapter, inode)| adapter.seek(inode, offset, whence));
        match found {
            Ok(found) => reply.offset(found),
            Err(error) => reply.error(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_file_system_is_the_one_around() {
        let places = ["a", "b", "a/b/c", "a/b/c/d"].map(PathBuf::from);
        let found: Vec<_> = (0..places.len()).map(|of| enclosing(&places, of)).collect();
        let path = Path::new;
        assert_eq!(found, [(0, path("a")), (0, path("b")), (1, path("b/c")), (3, path("d"))]);
    }
}
