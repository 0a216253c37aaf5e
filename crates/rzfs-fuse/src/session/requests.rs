//! The translation of the kernel's requests.

use super::Session;
use super::changes::{Pages, Progress, SetAttributes, Writing, done};
use super::waiting::{Server, Shortening};
use crate::adapter::{ABSENT, Creation, NONE, Seeking, allocation_of};
use crate::answer::{Answer, errno, is_suspended};
use crate::attributes::Entry;
use crate::credentials::{Asking, Capability, caller, caller_with};
use crate::file_flags::Command;
use crate::options::Opens;
use crate::xattr;
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileAttr, FileHandle, FileType,
    FopenFlags, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyStatx, ReplyWrite, ReplyXattr, Request,
    SetxattrFlags, TimeOrNow, WriteFlags,
};
use rzfs_zpl::DirCookie;
use rzfs_zpl::live::{Caller, NewKind, Privilege};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

impl fuser::Filesystem for Server {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        self.session.negotiate(config);
        Ok(())
    }

    fn destroy(&mut self) {
        self.drop_waiting();
        self.session.close();
    }

    fn panicked(&self, request: u64) {
        tracing::error!(request, "answering it has panicked; whoever asked got EIO");
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _pass = self.session.enter();
        match self.session.look_up(parent, name) {
            // The absence of a file can be cached too; number 0 says so.
            Err(error) if error == Errno::ENOENT => {
                reply.entry(&self.session.absence_lifetime(parent), &ABSENT, NONE);
            }
            answer => Session::named(reply, answer),
        }
    }

    fn forget(&self, _: &Request, inode: INodeNo, lookups: u64) {
        let _pass = self.session.enter();
        self.session.forget(inode, lookups);
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let _pass = self.session.enter();
        Session::shown(reply, self.session.attributes(inode));
    }

    /// Asked instead, once for each file, when a program requests the birth time.
    fn statx(
        &self,
        _: &Request,
        inode: INodeNo,
        _: Option<FileHandle>,
        _: u32,
        _: u32,
        reply: ReplyStatx,
    ) {
        let _pass = self.session.enter();
        match self.session.attributes(inode) {
            Ok((attributes, lifetime)) => reply.statx(&lifetime, &attributes),
            Err(error) => reply.error(error),
        }
    }

    /// Asked where the kernel does not check itself: the user who mounted may do everything but
    /// execute files that nobody may.
    fn access(&self, _: &Request, inode: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        const EXECUTE: u16 = 0o111;
        if !mask.contains(AccessFlags::X_OK) {
            return reply.ok();
        }
        let _pass = self.session.enter();
        match self.session.attributes(inode).map(|(file, _)| file) {
            Ok(file) if file.kind == FileType::RegularFile && file.perm & EXECUTE == 0 => {
                reply.error(Errno::EACCES);
            }
            Ok(_) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        let _pass = self.session.enter();
        let target = self.session.inner(inode).and_then(|(_, adapter, inode)| {
            let (file_system, object) = adapter.file(inode)?;
            file_system.read_link(object).map_err(|error| errno(&error))
        });
        match target {
            Ok(target) => {
                self.session.note_access(inode);
                reply.data(&target);
            }
            Err(error) => reply.error(error),
        }
    }

    /// Opening changes nothing here, so a kernel that supports it is told not to ask, unless the
    /// mount checks opens: that saves two requests for each file. Forbidden reads and writes fail
    /// by themselves. Once told, the kernel does not ask again.
    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let can_do_without = self.session.kernel_can(InitFlags::FUSE_NO_OPEN_SUPPORT);
        if self.session.opens == Opens::Unasked && can_do_without {
            return reply.error(Errno::ENOSYS);
        }
        let _pass = self.session.enter();
        match self.session.inner(inode).and_then(|(_, adapter, inode)| adapter.open(inode, flags)) {
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
        let _pass = self.session.enter();
        let segments = self.session.inner(inode).and_then(|(_, adapter, inode)| {
            if Pages::of(flags) == Pages::Kept {
                adapter.note_pages(inode);
            }
            let (file_system, object) = adapter.file(inode)?;
            let segments = file_system.read_segments(object, offset, u64::from(size));
            segments.map_err(|error| errno(&error))
        });
        match segments.as_deref() {
            Ok(segments) => {
                // After the reply the kernel may ask for the time, and caches it.
                if flags.0 & libc::O_NOATIME == 0 {
                    self.session.note_access(inode);
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
        if self.session.kernel_can(InitFlags::FUSE_NO_OPENDIR_SUPPORT) {
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
        let _pass = self.session.enter();
        match self.session.list_names(inode, DirCookie(offset), &mut reply) {
            Ok(()) => {
                self.session.note_access(inode);
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
        let _pass = self.session.enter();
        match self.session.list_with_attributes(inode, DirCookie(offset), &mut reply) {
            Ok(()) => {
                self.session.note_access(inode);
                reply.ok();
            }
            Err(error) => reply.error(error),
        }
    }

    fn statfs(&self, _: &Request, inode: INodeNo, reply: ReplyStatfs) {
        let _pass = self.session.enter();
        let space = self.session.inner(inode).and_then(|(_, adapter, inode)| {
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
        let _pass = self.session.enter();
        let value = self
            .session
            .inner(inode)
            .and_then(|(_, adapter, inode)| adapter.xattr(inode, name.as_bytes()));
        let value = value.map_err(|error| match error.code() {
            // Other file systems of the mount have ACLs.
            libc::EOPNOTSUPP if self.session.has_lists() => xattr::unsupported(name.as_bytes()),
            _ => error,
        });
        xattr::reply(reply, size, value);
    }

    fn listxattr(&self, request: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        let _pass = self.session.enter();
        let names =
            self.session.inner(inode).and_then(|(_, adapter, inode)| adapter.xattr_names(inode));
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
        match Seeking::of(offset, whence) {
            Ok(seeking) => self.session.seek(inode, seeking, reply),
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
        let (name, asking) = (name.to_owned(), Asking::of(request));
        let make = move |session: &Session| {
            let creation = Creation::of_mode(mode, umask, device)?;
            session.make(parent, &name, creation, asking)
        };
        self.change(parent, make, |made| Session::named(reply, made));
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
        let (name, asking) = (name.to_owned(), Asking::of(request));
        if self.session.shows_snapshots(parent) {
            let caller = asking.caller();
            let take = move |session: &Session| session.take_snapshot(parent, &name, caller);
            return self.change_apart(parent, take, |taken| Session::named(reply, taken));
        }
        let creation = Creation { kind: NewKind::Directory, mode, umask };
        let make = move |session: &Session| session.make(parent, &name, creation, asking);
        self.change(parent, make, |made| Session::named(reply, made));
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let (name, target, asking) = (name.to_owned(), target.to_owned(), Asking::of(request));
        let make = move |session: &Session| {
            let kind = NewKind::Symlink(target.as_os_str().as_bytes());
            session.make(parent, &name, Creation { kind, mode: 0o777, umask: 0 }, asking)
        };
        self.change(parent, make, |made| Session::named(reply, made));
    }

    /// The kernel makes the file with [`mknod`](fuser::Filesystem::mknod) and opens it without
    /// asking.
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

    /// `O_TMPFILE`. A link gives the file a name; the kernel ensures that there is none after
    /// `O_EXCL`.
    fn tmpfile(
        &self,
        request: &Request,
        parent: INodeNo,
        mode: u32,
        umask: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let asking = Asking::of(request);
        let creation = Creation { kind: NewKind::Regular, mode, umask };
        let make = move |session: &Session| session.make_unnamed(parent, creation, asking);
        self.change(parent, make, |made| match made {
            Ok(Entry { attributes, generation, lifetime }) => {
                let (lifetime, flags) = (lifetime.attributes, FopenFlags::FOPEN_KEEP_CACHE);
                reply.created(&lifetime, &attributes, generation, FileHandle(0), flags);
            }
            Err(error) => reply.error(error),
        });
    }

    fn link(&self, _: &Request, inode: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.to_owned();
        let link = move |session: &Session| session.link_file(inode, parent, &name);
        self.change(parent, link, |linked| Session::named(reply, linked));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        let remove = move |session: &Session| session.remove_file(parent, &name);
        self.change(parent, remove, |removed| done(reply, removed));
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        if self.session.shows_snapshots(parent) {
            let caller = caller(request);
            let destroy = move |session: &Session| session.destroy_snapshot(parent, &name, caller);
            return self.change_apart(parent, destroy, |destroyed| done(reply, destroyed));
        }
        let remove = move |session: &Session| session.remove_directory(parent, &name);
        self.change(parent, remove, |removed| done(reply, removed));
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
        let (name, new_name, caller) = (name.to_owned(), new_name.to_owned(), caller(request));
        if self.session.shows_snapshots(parent) {
            let rename = move |session: &Session| {
                session.rename_snapshot((parent, &name), (new_parent, &new_name), flags, caller)
            };
            return self.change_apart(parent, rename, |renamed| done(reply, renamed));
        }
        let rename = move |session: &Session| {
            session.move_name((parent, &name), (new_parent, &new_name), flags, caller)
        };
        self.change(parent, rename, |renamed| done(reply, renamed));
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
        let caller = caller(request);
        let is_long =
            size.is_some_and(|size| self.session.takes_many_groups(inode, size..u64::MAX));
        let set = move |session: &Session| session.set_attributes(inode, change, caller);
        let shown = move |changed: Answer<(FileAttr, Duration)>| {
            // Other requests were answered meanwhile: the kernel must ask again.
            let lifetime = |kept| if is_long { Duration::ZERO } else { kept };
            Session::shown(reply, changed.map(|(attributes, kept)| (attributes, lifetime(kept))));
        };
        match is_long {
            true => self.change_apart(inode, set, shown),
            false => self.change(inode, set, shown),
        }
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
        // The kernel knows what the writer may do; for pages written later it has asked before.
        let privilege = match flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            true => Privilege::Ordinary,
            false => Privilege::Superuser,
        };
        let caller = Caller { privilege, ..caller(request) };
        // Data written to a mapping is in pages, however the file was opened.
        let pages = match flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
            true => Pages::Kept,
            false => Pages::of(open_flags),
        };
        let shortening = match pages {
            _ if flags.contains(WriteFlags::FUSE_WRITE_CACHE) => Shortening::Never,
            Pages::Passed => Shortening::Fails,
            Pages::Kept => Shortening::Possible,
        };
        let writing = Writing { inode, offset, caller, flags: open_flags, pages, shortening };
        let mut progress = Progress::default();
        let written = {
            let _pass = self.session.enter();
            self.session.write_rest(&writing, data, &mut progress)
        };
        if !written.is_err_and(is_suspended) {
            return self.session.answer_write(&writing, written.map(|()| progress), reply);
        }
        let Some(data) = self.keep_data(data, shortening) else {
            return reply.error(Errno::ENOMEM);
        };
        let session = Arc::clone(&self.session);
        self.keep(
            shortening.waits(),
            move |session| session.write_rest(&writing, &data, &mut progress).map(|()| progress),
            move |written| session.answer_write(&writing, written, reply),
        );
    }

    /// Closing a file changes nothing; the kernel is told not to ask again.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.session.make_durable(inode, reply);
    }

    fn fsyncdir(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.session.make_durable(inode, reply);
    }

    fn setxattr(
        &self,
        request: &Request,
        inode: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        kernel_flags: SetxattrFlags,
        reply: ReplyEmpty,
    ) {
        let (name, value, asking) = (name.to_owned(), value.to_owned(), Asking::of(request));
        let drops_group = kernel_flags.contains(SetxattrFlags::FUSE_SETXATTR_ACL_KILL_SGID);
        let set = move |session: &Session| {
            let (_, adapter, inode) = session.inner(inode)?;
            let keeps_group = |group| match session.gets_group_decision() {
                true => !drops_group,
                false => asking.is_root_or_in(group),
            };
            adapter.set_xattr(inode, (name.as_bytes(), &value), flags, keeps_group)
        };
        self.change(inode, set, |answer| done(reply, answer));
    }

    fn removexattr(&self, _: &Request, inode: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        let remove = move |session: &Session| {
            let (_, adapter, inode) = session.inner(inode)?;
            adapter.remove_xattr(inode, name.as_bytes())
        };
        self.change(inode, remove, |removed| done(reply, removed));
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
        // Flags that bind all users are not for the root user of a container.
        let caller = caller_with(request, Capability::LinuxImmutable);
        let data = data.to_owned();
        let control = move |session: &Session| session.control_flags(inode, command, &data, caller);
        let tell = |answer: Answer<Vec<u8>>| match answer {
            Ok(answer) => reply.ioctl(0, &answer),
            Err(error) => reply.error(error),
        };
        match command.is_change() {
            true => self.change(inode, control, tell),
            false => {
                let _pass = self.session.enter();
                tell(control(&self.session));
            }
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
        let allocation = match allocation_of(mode) {
            Ok(allocation) => allocation,
            Err(error) => return reply.error(error),
        };
        let caller = caller(request);
        let range = offset..offset.saturating_add(len);
        let allocate =
            move |session: &Session| session.allocate(inode, (offset, len), allocation, caller);
        match self.session.waits_for_groups(inode, range, allocation) {
            true => self.change_apart(inode, allocate, |allocated| done(reply, allocated)),
            false => self.change(inode, allocate, |allocated| done(reply, allocated)),
        }
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
        let (from, to, caller) = ((from, from_offset), (to, to_offset), caller(request));
        let copy = move |session: &Session| session.copy(from, to, len, caller);
        self.change(to.0, copy, |copied| match copied {
            Ok(copied) => reply.written(u32::try_from(copied).unwrap_or(u32::MAX)),
            Err(error) => reply.error(error),
        });
    }
}
