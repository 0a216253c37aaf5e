//! Limiting a device to one writer, and reporting who that is.
//!
//! Two processes that write one pool destroy it, so opening a device for writing claims it: a block
//! device with `O_EXCL`, which the kernel grants once, a regular file with `flock`. Both belong to
//! the open device and end with it, however its process ends; both work across all processes of a
//! machine, whatever their namespaces are. Readers claim nothing, and are not kept out. A loop
//! device is claimed together with its backing file.

use crate::without_controls;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, StatxFlags, fstat, statx};
use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode};
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A process that has a device open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Its number.
    pub process: u32,
    /// The name of its program, if visible.
    pub program: Option<String>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.process)?;
        match &self.program {
            Some(program) => write!(f, " ({program})"),
            None => Ok(()),
        }
    }
}

impl Holder {
    fn of_process(process: u32) -> Self {
        let program = fs::read_to_string(format!("/proc/{process}/comm")).ok();
        Self { process, program: program.as_deref().map(shown) }
    }
}

/// The name of a program, which is chosen by its user and untrusted.
fn shown(name: &str) -> String {
    let shown = without_controls(name.trim_end().as_bytes(), b"");
    String::from_utf8_lossy(&shown).into_owned()
}

/// How long a terminating process may still have its files.
const LAST_BREATH: Duration = Duration::from_secs(5);
/// Interval of checks whether it has released them.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Claims an open regular file for writing.
///
/// # Errors
/// `EBUSY`: it is claimed already.
pub(super) fn claim_file(fd: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    lock(fd, path, FlockOperation::NonBlockingLockExclusive)
}

/// Claims the backing file of a loop device, if it is one: others may open that by its own path.
/// The claim lasts as long as the returned guard.
///
/// # Errors
/// `EBUSY`: it is claimed already.
pub(super) fn claim_backing(device: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let Some(Backing { path, is_whole }) = Backing::of(fstat(device)?.st_rdev) else {
        return Ok(None);
    };
    let file = match open_backing(device, &path) {
        Ok(file) => file,
        // It may have no name here, or be in another user's directory.
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "other writers cannot be kept out");
            return Ok(None);
        }
    };
    let operation = match is_whole {
        true => FlockOperation::NonBlockingLockExclusive,
        false => FlockOperation::NonBlockingLockShared,
    };
    lock(file.as_fd(), &path, operation)?;
    Ok(Some(file))
}

/// Opens the backing file of a loop device, if its path refers to it: the path is from the
/// namespace of the process that set up the device, and may refer to another file here.
fn open_backing(device: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    let (found, status) = (fstat(&file)?, LoopStatus::of(device)?);
    match (found.st_dev, found.st_ino) == (status.device, status.inode) {
        true => Ok(file),
        false => Err(Errno::STALE),
    }
}

/// The kernel's status of a loop device (`struct loop_info64`).
#[repr(C)]
struct LoopStatus {
    /// The number of the file system that its file is in.
    device: u64,
    /// The file.
    inode: u64,
    _rest: [u64; 27],
}

impl LoopStatus {
    fn of(device: BorrowedFd<'_>) -> rustix::io::Result<Self> {
        /// `LOOP_GET_STATUS64`, which no other driver of block devices knows.
        const GET_STATUS: Opcode = 0x4c05;
        // SAFETY: the kernel writes a `struct loop_info64`, which has 232 bytes as this one has.
        let call = unsafe { Getter::<GET_STATUS, Self>::new() };
        // SAFETY: it writes nothing else.
        unsafe { rustix::ioctl::ioctl(device, call) }
    }
}

const _: () = assert!(size_of::<LoopStatus>() == 232);

/// The backing file of a loop device.
struct Backing {
    path: PathBuf,
    /// Whether the device covers all of it, not just a partition or section.
    is_whole: bool,
}

impl Backing {
    fn of(rdev: u64) -> Option<Self> {
        let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
        let device = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let is_partition = device.join("partition").exists();
        let about = device.join(if is_partition { "../loop" } else { "loop" });
        let mut path = fs::read(about.join("backing_file")).ok()?;
        path.pop_if(|last| *last == b'\n');
        let is_zero = |name| fs::read_to_string(about.join(name)).is_ok_and(|n| n.trim() == "0");
        let is_whole = !is_partition && is_zero("offset") && is_zero("sizelimit");
        Some(Self { path: OsString::from_vec(path).into(), is_whole })
    }
}

/// Locks a file. A killed process releases its files some time after its mounts are gone, which is
/// waited for.
fn lock(fd: BorrowedFd<'_>, path: &Path, operation: FlockOperation) -> io::Result<()> {
    let start = Instant::now();
    loop {
        match rustix::fs::flock(fd, operation) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) => {
                if start.elapsed() > LAST_BREATH || !is_left_behind(path) {
                    return Err(Errno::BUSY.into());
                }
                std::thread::sleep(LOOK_AGAIN);
            }
            // There are file systems without locks.
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "other writers cannot be kept out");
                return Ok(());
            }
        }
    }
}

/// Whether only terminating processes have a file locked: their programs are already gone.
fn is_left_behind(path: &Path) -> bool {
    let Ok(metadata) = fs::metadata(path) else { return false };
    let has_ended = |process: &u32| {
        let program = fs::read_link(format!("/proc/{process}/exe"));
        program.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    // The lock may have been released meanwhile.
    lockers_of(metadata.dev(), metadata.ino()).iter().all(has_ended)
}

/// The kernel's identity of a device, whatever path leads to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Identity {
    Block { rdev: u64 },
    File { dev: u64, inode: u64 },
}

impl Identity {
    fn of(metadata: &fs::Metadata) -> Option<Self> {
        let kind = metadata.file_type();
        if kind.is_block_device() {
            Some(Self::Block { rdev: metadata.rdev() })
        } else if kind.is_file() {
            Some(Self::File { dev: metadata.dev(), inode: metadata.ino() })
        } else {
            None
        }
    }
}

fn identity(path: &Path) -> Option<Identity> {
    Identity::of(&fs::metadata(path).ok()?)
}

/// The processes that keep others from writing a device, as far as visible to this user.
pub(crate) fn holders(path: &Path) -> Vec<Holder> {
    let mut processes = match identity(path) {
        None => return Vec::new(),
        Some(Identity::File { dev, inode }) => lockers_of(dev, inode),
        Some(Identity::Block { rdev }) => {
            let mut processes = openers(rdev);
            let backing = Backing::of(rdev).and_then(|backing| identity(&backing.path));
            if let Some(Identity::File { dev, inode }) = backing {
                processes.extend(lockers_of(dev, inode));
            }
            processes
        }
    };
    processes.sort_unstable();
    processes.dedup();
    processes.into_iter().map(Holder::of_process).collect()
}

/// The processes that have a file locked.
fn lockers_of(dev: u64, inode: u64) -> Vec<u32> {
    lockers(&fs::read_to_string("/proc/locks").unwrap_or_default(), dev, inode)
}

/// The same, by the kernel's list of locks.
fn lockers(locks: &str, dev: u64, inode: u64) -> Vec<u32> {
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let file = format!("{major:02x}:{minor:02x}:{inode}");
    // `1: FLOCK  ADVISORY  WRITE 4711 fd:01:1234 0 EOF`; who waits has `->` behind the number.
    let process = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        if words.next()? != "FLOCK" {
            return None;
        }
        let process = words.nth(2)?;
        if words.next()? == file { process.parse().ok() } else { None }
    };
    locks.lines().filter_map(process).filter(|process| *process > 0).collect()
}

/// The processes that have a device open for writing.
fn openers(rdev: u64) -> Vec<u32> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|process| has_open(*process, rdev)).collect()
}

fn has_open(process: u32, rdev: u64) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    files.flatten().any(|file| {
        // The link's own permissions say what the file is open for.
        const WRITES: u32 = 0o200;
        let writes = file.metadata().is_ok_and(|link| link.mode() & WRITES != 0);
        writes && block_device(&file.path()) == Some(rdev)
    })
}

/// The number of the block device at a path. Cached attributes suffice: other processes may have
/// files open on file systems that no longer respond.
fn block_device(path: &Path) -> Option<u64> {
    let known = AtFlags::STATX_DONT_SYNC;
    let file = statx(CWD, path, known, StatxFlags::TYPE).ok()?;
    let is_block = FileType::from_raw_mode(file.stx_mode.into()) == FileType::BlockDevice;
    is_block.then(|| rustix::fs::makedev(file.stx_rdev_major, file.stx_rdev_minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_forges_lines_by_the_name_of_a_program() {
        assert_eq!(shown("dd\n"), "dd");
        assert_eq!(shown("\n\u{1b}[31mOK\nOK\n"), "??[31mOK?OK");
    }

    #[test]
    fn whoever_has_a_lock_is_found_in_the_kernels_list() {
        let list = "1: POSIX  ADVISORY  READ 11 fd:01:77 128 128\n\
                    2: FLOCK  ADVISORY  WRITE 4711 fd:01:77 0 EOF\n\
                    2: -> FLOCK  ADVISORY  WRITE 12 fd:01:77 0 EOF\n\
                    3: FLOCK  ADVISORY  WRITE 13 fd:01:78 0 EOF\n\
                    4: OFDLCK ADVISORY  WRITE -1 fd:01:77 0 EOF\n";
        let dev = rustix::fs::makedev(0xfd, 1);
        assert_eq!(lockers(list, dev, 77), [4711]);
        assert_eq!(lockers(list, dev, 7), []);
    }
}
