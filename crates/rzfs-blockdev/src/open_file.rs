//! Opening files and block devices, and finding out what they can do.

mod claim;

pub use claim::Holder;

use crate::{Access, BUFFER_ALIGNMENT, DeviceGeometry, IoBuffer, without_number};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, SeekFrom, StatxFlags};
use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, opcode};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Logical and physical sector of regular files, in bytes: OpenZFS's own choice for file vdevs.
const FILE_SECTOR: u32 = 512;

/// Whether the kernel's page cache is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Caching {
    /// Block devices as [`Caching::Direct`], regular files as [`Caching::Buffered`].
    #[default]
    Automatic,
    /// Goes around the page cache (O_DIRECT) where the device allows it, else through it.
    Direct,
    /// Goes through the page cache.
    Buffered,
}

/// Why a device could not be opened.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot open {}: {}{}", path.display(), reason(source), described(holders))]
pub struct OpenError {
    /// The device.
    pub path: PathBuf,
    /// The system's error; `ENOTBLK` if it is not a device at all, `EBUSY` if it has another
    /// writer.
    pub source: Arc<io::Error>,
    /// The current writers of the device, as far as visible to this user.
    pub holders: Vec<Holder>,
}

fn reason(source: &io::Error) -> String {
    match source.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOTBLK) => "neither a block device nor a regular file".to_owned(),
        _ => without_number(source),
    }
}

fn described(holders: &[Holder]) -> String {
    let names: Vec<_> = holders.iter().map(Holder::to_string).collect();
    if names.is_empty() { String::new() } else { format!("; in use by {}", names.join(", ")) }
}

impl OpenError {
    /// An error returned by the system.
    pub fn new(path: &Path, source: impl Into<io::Error>) -> Self {
        let source = source.into();
        let is_busy = source.raw_os_error() == Some(Errno::BUSY.raw_os_error());
        let holders = if is_busy { claim::holders(path) } else { Vec::new() };
        Self { path: path.to_owned(), source: Arc::new(source), holders }
    }

    /// Whether the device has another writer, or is used for another purpose.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        self.errno() == Errno::BUSY.raw_os_error()
    }

    /// Whether the device, or its file system, is read-only.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.errno() == Errno::ROFS.raw_os_error()
    }

    /// The system's error number, `EIO` if there is none.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.source.raw_os_error().unwrap_or(Errno::IO.raw_os_error())
    }
}

/// An open file or block device with the properties that transfers need.
pub(crate) struct OpenFile {
    fd: OwnedFd,
    /// Holds the claim on the file behind a loop device.
    _backing: Option<OwnedFd>,
    name: Arc<str>,
    access: Access,
    geometry: DeviceGeometry,
    /// Alignment of offsets, lengths and addresses of transfers; 1 with the page cache.
    alignment: u32,
    /// Unique in its engine.
    id: u64,
    /// Whether it is a regular file that had a name when it was opened.
    was_named: bool,
    /// Whether the device is gone and only requests in flight keep the file.
    retired: AtomicBool,
}

impl OpenFile {
    pub(crate) fn open(path: &Path, access: Access, caching: Caching, id: u64) -> io::Result<Self> {
        let mode = match access {
            Access::ReadOnly => OFlags::RDONLY,
            // On a block device: refuse one that is mounted or part of something else. Of regular
            // files the kernel makes nothing of it.
            Access::ReadWrite => OFlags::RDWR | OFlags::EXCL,
        };
        // Opening some devices has effects.
        check_type(FileType::from_raw_mode(rustix::fs::stat(path)?.st_mode))?;
        // O_NONBLOCK, so that a FIFO in the place of a device is refused and not waited for.
        let flags = mode | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        let is_block = file_type(fd.as_fd())? == FileType::BlockDevice;
        rustix::fs::fcntl_setfl(&fd, OFlags::empty())?;
        // The kernel opens it for writing all the same, and refuses every write.
        if access == Access::ReadWrite && is_block && is_read_only(fd.as_fd())? {
            return Err(Errno::ROFS.into());
        }
        let backing = match access {
            Access::ReadOnly => None,
            Access::ReadWrite if is_block => claim::claim_backing(fd.as_fd())?,
            Access::ReadWrite => {
                claim::claim_file(fd.as_fd(), path)?;
                None
            }
        };
        let mut geometry = geometry(fd.as_fd(), is_block)?;
        let want_direct = match caching {
            Caching::Automatic => is_block,
            Caching::Direct => true,
            Caching::Buffered => false,
        };
        let direct = if want_direct { make_direct(fd.as_fd(), &geometry, is_block) } else { None };
        let alignment = direct.unwrap_or(1);
        geometry.logical_sector = geometry.logical_sector.max(alignment);
        geometry.physical_sector = geometry.physical_sector.max(geometry.logical_sector);
        let name = path.to_string_lossy().into();
        let was_named = !is_block && rustix::fs::fstat(&fd)?.st_nlink > 0;
        let retired = AtomicBool::new(false);
        let _backing = backing;
        Ok(Self { fd, _backing, name, access, geometry, alignment, id, was_named, retired })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) fn access(&self) -> Access {
        self.access
    }

    pub(crate) fn geometry(&self) -> &DeviceGeometry {
        &self.geometry
    }

    /// Alignment of offsets, lengths and addresses of transfers: a power of two.
    pub(crate) fn alignment(&self) -> usize {
        self.alignment as usize
    }

    /// The number unique among the files of its engine.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Records that the device is gone.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    /// Whether the device is gone and only requests in flight keep the file.
    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }

    /// Whether its file system still knows it: asks the server of the file system.
    pub(crate) fn is_reachable(&self) -> bool {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
        rustix::fs::statx(&self.fd, "", flags, StatxFlags::BASIC_STATS).is_ok()
    }

    /// Whether it is a regular file that lost its last name since it was opened.
    pub(crate) fn is_deleted(&self) -> bool {
        self.was_named && rustix::fs::fstat(&self.fd).is_ok_and(|file| file.st_nlink == 0)
    }

    pub(crate) fn is_direct(&self) -> bool {
        self.alignment > 1
    }
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenFile({}, {:?}, alignment {})", self.name, self.access, self.alignment)
    }
}

/// The type of an open file, if it can hold a vdev.
fn file_type(fd: BorrowedFd<'_>) -> io::Result<FileType> {
    check_type(FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode))
}

fn check_type(found: FileType) -> io::Result<FileType> {
    match found {
        kind @ (FileType::BlockDevice | FileType::RegularFile) => Ok(kind),
        FileType::Directory => Err(Errno::ISDIR.into()),
        _ => Err(Errno::NOTBLK.into()),
    }
}

/// Whether a block device is read-only, however it was opened.
fn is_read_only(device: BorrowedFd<'_>) -> rustix::io::Result<bool> {
    /// `BLKROGET`.
    const GET_READ_ONLY: Opcode = opcode::none(0x12, 94);
    // SAFETY: the kernel writes an `int`.
    let call = unsafe { Getter::<GET_READ_ONLY, i32>::new() };
    // SAFETY: it writes nothing else.
    let answer = unsafe { rustix::ioctl::ioctl(device, call) }?;
    Ok(answer != 0)
}

fn geometry(fd: BorrowedFd<'_>, is_block: bool) -> io::Result<DeviceGeometry> {
    let size = rustix::fs::seek(fd, SeekFrom::End(0))?;
    if !is_block {
        return Ok(DeviceGeometry {
            size,
            logical_sector: FILE_SECTOR,
            physical_sector: FILE_SECTOR,
        });
    }
    let logical_sector = sector(rustix::fs::ioctl_blksszget(fd)?)?;
    let physical_sector = sector(rustix::fs::ioctl_blkpbszget(fd)?).unwrap_or(logical_sector);
    Ok(DeviceGeometry { size, logical_sector, physical_sector })
}

fn sector(size: u32) -> io::Result<u32> {
    if size.is_power_of_two() && size >= 512 { Ok(size) } else { Err(Errno::INVAL.into()) }
}

/// Makes transfers bypass the page cache, if that works with the alignment of buffers; returns the
/// alignment.
fn make_direct(fd: BorrowedFd<'_>, geometry: &DeviceGeometry, is_block: bool) -> Option<u32> {
    rustix::fs::fcntl_setfl(fd, OFlags::DIRECT).ok()?;
    let candidates: &[u32] = match stated_alignment(fd) {
        Some(alignment) => &[alignment],
        None if is_block => &[geometry.logical_sector],
        None => &[512, 4096],
    };
    let usable = candidates.iter().copied().find(|&alignment| {
        alignment.is_power_of_two()
            && (512..=BUFFER_ALIGNMENT as u32).contains(&alignment)
            && reads_directly(fd, alignment)
    });
    if usable.is_none() {
        rustix::fs::fcntl_setfl(fd, OFlags::empty()).ok()?;
    }
    usable
}

/// The O_DIRECT alignment from statx, if the kernel and file system report it.
fn stated_alignment(fd: BorrowedFd<'_>) -> Option<u32> {
    let statx = rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let stated = StatxFlags::from_bits_retain(statx.stx_mask).contains(StatxFlags::DIOALIGN);
    let alignment = statx.stx_dio_mem_align.max(statx.stx_dio_offset_align);
    (stated && statx.stx_dio_offset_align > 0).then(|| alignment.max(512))
}

/// Whether a read of one aligned unit is accepted.
fn reads_directly(fd: BorrowedFd<'_>, alignment: u32) -> bool {
    IoBuffer::zeroed(alignment as usize)
        .is_ok_and(|mut buffer| rustix::io::pread(fd, &mut *buffer, 0).is_ok())
}
