//! A directory with the images of a shelf, served by FUSE.

use super::error::RoundError;
use super::shelf::{Answer, Opening, Presence, Shelf};
use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Nothing is cached of an image that may be gone.
const NOT_AT_ALL: Duration = Duration::ZERO;
/// Number of concurrent requests: some are slow.
const THREADS: usize = 6;
const FIRST_IMAGE: u64 = 2;

/// A directory with a shelf's images: `vd0`, `vd1` and so on, as long as this value lives.
pub(super) struct ImageServer {
    directory: PathBuf,
    names: Vec<PathBuf>,
    session: Option<BackgroundSession>,
}

impl ImageServer {
    pub(super) fn start(shelf: &Arc<Shelf>, directory: &Path) -> Result<Self, RoundError> {
        let mut config = Config::default();
        config.mount_options =
            vec![MountOption::FSName("rzfs-proof".to_owned()), MountOption::DefaultPermissions];
        config.n_threads = Some(THREADS);
        config.clone_fd = true;
        let images = Images(Arc::clone(shelf));
        let session =
            fuser::spawn_mount(images, directory, &config).map_err(RoundError::at(directory))?;
        let names = (0..shelf.count()).map(|image| directory.join(name(image))).collect();
        Ok(Self { directory: directory.to_owned(), names, session: Some(session) })
    }

    /// The paths of the images.
    pub(super) fn paths(&self) -> &[PathBuf] {
        &self.names
    }
}

impl Drop for ImageServer {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            // Open images stay open, and return errors.
            if let Err(error) = session.umount_and_join() {
                eprintln!("{}: {error}", self.directory.display());
            }
        }
    }
}

pub(super) fn name(image: usize) -> String {
    format!("vd{image}")
}

struct Images(Arc<Shelf>);

impl Images {
    fn image(&self, inode: INodeNo) -> Answer<usize> {
        let image = inode.0.checked_sub(FIRST_IMAGE).and_then(|image| usize::try_from(image).ok());
        image.filter(|image| *image < self.0.count()).ok_or(rustix::io::Errno::ISDIR)
    }

    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let is_image = inode != INodeNo::ROOT;
        let size = if is_image { self.0.size() } else { 0 };
        FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_image { FileType::RegularFile } else { FileType::Directory },
            perm: if is_image { 0o600 } else { 0o700 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    fn find(&self, name: &OsStr) -> Option<INodeNo> {
        let image = (0..self.0.count()).find(|image| *name == *self::name(*image))?;
        let is_there = self.0.presence(image) != Some(Presence::Unplugged);
        is_there.then_some(INodeNo(FIRST_IMAGE + image as u64))
    }
}

fn told(error: rustix::io::Errno) -> Errno {
    Errno::from_i32(error.raw_os_error())
}

impl Filesystem for Images {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.find(name) {
            Some(inode) => reply.entry(&NOT_AT_ALL, &self.attributes(inode), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&NOT_AT_ALL, &self.attributes(inode));
    }

    /// Images keep their size.
    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match size {
            Some(size) if size != self.0.size() => reply.error(Errno::EPERM),
            _ => reply.attr(&NOT_AT_ALL, &self.attributes(inode)),
        }
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.image(inode).and_then(|image| self.0.open(image)) {
            Ok(opening) => {
                // Writes must arrive, not stay in the kernel's page cache.
                let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
                reply.opened(FileHandle(opening.number()), flags);
            }
            Err(error) => reply.error(told(error)),
        }
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let answer = self.image(inode);
        match answer.and_then(|image| {
            self.0.read(Opening::of_number(handle.0), image, offset, size as usize)
        }) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(told(error)),
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let answer = self.image(inode);
        match answer
            .and_then(|image| self.0.write(Opening::of_number(handle.0), image, offset, bytes))
        {
            Ok(()) => reply.written(u32::try_from(bytes.len()).unwrap_or(u32::MAX)),
            Err(error) => reply.error(told(error)),
        }
    }

    /// Closing a file writes nothing.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, inode: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.image(inode).and_then(|image| self.0.flush(Opening::of_number(handle.0), image))
        {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(told(error)),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let names = (0..self.0.count()).map(name);
        let there = names.filter_map(|name| Some((self.find(OsStr::new(&name))?, name)));
        for (number, (inode, name)) in (1..).zip(there).skip(offset as usize) {
            if reply.add(inode, number, FileType::RegularFile, &name) {
                break;
            }
        }
        reply.ok();
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _offset: u64,
        _length: u64,
        _mode: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EOPNOTSUPP);
    }
}
