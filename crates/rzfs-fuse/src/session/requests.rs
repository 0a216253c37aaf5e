//! The requests of the kernel, translated.

use super::Session;
use super::changes::{Pages, SetAttributes, done};
use crate::adapter::{ABSENT, Creation, NONE, errno};
use crate::credentials::{Capability, caller, caller_with, is_in_group};
use crate::file_flags::Command;
use crate::mount::Opens;
use crate::xattr;
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, FopenFlags, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rzfs_zpl::DirCookie;
use rzfs_zpl::live::{Caller, NewKind, Privilege};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

impl fuser::Filesystem for Session {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        self.negotiate(config);
        Ok(())
    }

    fn destroy(&mut self) {
        self.close();
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.look_up(parent, name) {
            // That there is no such file can be remembered too; number 0 says it.
            Err(error) if error == Errno::ENOENT => {
                reply.entry(&self.absence_lifetime(parent), &ABSENT, NONE);
            }
            answer => Self::named(reply, answer),
        }
    }

    fn forget(&self, _: &Request, inode: INodeNo, lookups: u64) {
        Self::forget(self, inode, lookups);
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        Self::shown(reply, self.attributes(inode));
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        let target = self.inner(inode).and_then(|(_, adapter, inode)| {
            let (file_system, object) = adapter.file(inode)?;
            file_system.read_link(object).map_err(|error| errno(&error))
        });
        match target {
            Ok(target) => {
                self.note_access(inode);
                reply.data(&target);
            }
            Err(error) => reply.error(error),
        }
    }

    /// Opening changes nothing here, so a kernel that can do without asking is told to, unless the
    /// mount is to check it: that saves two requests for each file. What must not be read or written
    /// is refused when it is. The kernel does not ask again once it was told.
    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let can_do_without = self.kernel.contains(InitFlags::FUSE_NO_OPEN_SUPPORT);
        if self.opens == Opens::Unasked && can_do_without {
            return reply.error(Errno::ENOSYS);
        }
        match self.inner(inode).and_then(|(_, adapter, inode)| adapter.open(inode, flags)) {
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
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let segments = self.inner(inode).and_then(|(_, adapter, inode)| {
            if Pages::of(flags) == Pages::Kept {
                adapter.note_pages(inode);
            }
            let (file_system, object) = adapter.file(inode)?;
            let segments = file_system.read_segments(object, offset, u64::from(size));
            segments.map_err(|error| errno(&error))
        });
        match segments.as_deref() {
            Ok(segments) => {
                // Once it has the answer the kernel may ask for the time, and keeps it.
                if flags.0 & libc::O_NOATIME == 0 {
                    self.note_access(inode);
                }
                match segments {
                    [segment] => reply.data(segment),
                    segments => reply.data(&segments.concat()),
                }
            }
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
            Ok(()) => {
                self.note_access(inode);
                reply.ok();
            }
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
            Ok(()) => {
                self.note_access(inode);
                reply.ok();
            }
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

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let made = Creation::of_mode(mode, umask, device)
            .and_then(|creation| self.make(parent, name, creation, caller(request)));
        Self::named(reply, made);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let creation = Creation { kind: NewKind::Directory, mode, umask };
        Self::named(reply, self.make(parent, name, creation, caller(request)));
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let kind = NewKind::Symlink(target.as_os_str().as_bytes());
        let creation = Creation { kind, mode: 0o777, umask: 0 };
        Self::named(reply, self.make(parent, name, creation, caller(request)));
    }

    /// The kernel makes the file with [`mknod`](Self::mknod) and opens it without asking.
    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn link(&self, _: &Request, inode: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        Self::named(reply, self.link_file(inode, parent, name));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.remove_file(parent, name));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.remove_directory(parent, name));
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = ((parent, name), (new_parent, new_name));
        done(reply, self.move_name(from, to, flags, caller(request)));
    }

    fn setattr(
        &self,
        request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = SetAttributes { mode, uid, gid, size, atime, mtime };
        self.set_attributes(inode, change, caller(request), reply);
    }

    fn write(
        &self,
        request: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        open_flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // The kernel knows what the writer may do; pages that it writes later it asked for before.
        let privilege = match flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            true => Privilege::Ordinary,
            false => Privilege::Superuser,
        };
        let caller = Caller { privilege, ..caller(request) };
        // What was written to a mapping is in pages, however the file was opened.
        let pages = match flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
            true => Pages::Kept,
            false => Pages::of(open_flags),
        };
        self.write_and_answer(inode, (offset, data), caller, (open_flags, pages), reply);
    }

    /// Closing a file changes nothing; the kernel is told not to ask again.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.make_durable(inode, reply);
    }

    fn fsyncdir(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.make_durable(inode, reply);
    }

    fn setxattr(
        &self,
        request: &Request,
        inode: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let answer = self.inner(inode).and_then(|(_, adapter, inode)| {
            let keeps_group = |group| request.uid() == 0 || is_in_group(request, group);
            adapter.set_xattr(inode, (name.as_bytes(), value), flags, keeps_group)
        });
        done(reply, answer);
    }

    fn removexattr(&self, _: &Request, inode: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let answer = self
            .inner(inode)
            .and_then(|(_, adapter, inode)| adapter.remove_xattr(inode, name.as_bytes()));
        done(reply, answer);
    }

    fn ioctl(
        &self,
        request: &Request,
        inode: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        command: u32,
        data: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        let Some(command) = Command::from_number(command) else {
            return reply.error(Errno::ENOTTY);
        };
        // What binds everybody is not for all who are root in some container.
        let caller = caller_with(request, Capability::LinuxImmutable);
        match self.control_flags(inode, command, data, caller) {
            Ok(answer) => reply.ioctl(0, &answer),
            Err(error) => reply.error(error),
        }
    }

    fn fallocate(
        &self,
        request: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.allocate(inode, (offset, len), mode, caller(request), reply);
    }

    fn copy_file_range(
        &self,
        request: &Request,
        from: INodeNo,
        _: FileHandle,
        from_offset: u64,
        to: INodeNo,
        _: FileHandle,
        to_offset: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let (from, to) = ((from, from_offset), (to, to_offset));
        match self.copy(from, to, len, caller(request)) {
            Ok(copied) => reply.written(u32::try_from(copied).unwrap_or(u32::MAX)),
            Err(error) => reply.error(error),
        }
    }
}
