//! Attributes as FUSE wants them.

use fuser::{FileAttr, FileType, Generation, INodeNo, TimeOrNow};
use rzfs_format::dirent::FileKind;
use rzfs_format::znode::{DeviceNumber, Timestamp};
use rzfs_zpl::live::TimeChange;
use rzfs_zpl::{Attributes, ControlAttributes};
use std::time::{Duration, SystemTime};

/// The kind of a file.
pub(crate) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::Directory => FileType::Directory,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Socket => FileType::Socket,
        FileKind::Regular => FileType::RegularFile,
    }
}

/// A device number as FUSE passes it: 8 bits of the minor, 12 of the major, the rest of the minor.
fn device(number: DeviceNumber) -> u32 {
    number.minor & 0xff | (number.major & 0xfff) << 8 | (number.minor & 0xf_ff00) << 12
}

/// The device number that FUSE encodes in this way.
pub(crate) fn device_number(passed: u32) -> DeviceNumber {
    DeviceNumber { major: passed >> 8 & 0xfff, minor: passed & 0xff | passed >> 12 & 0xf_ff00 }
}

/// A time; one that the system cannot represent becomes the epoch.
pub(crate) fn time(timestamp: Timestamp) -> SystemTime {
    let nanoseconds = Duration::from_nanos(u64::from(timestamp.nanoseconds));
    let seconds = Duration::from_secs(timestamp.seconds.unsigned_abs());
    let epoch = SystemTime::UNIX_EPOCH;
    let whole =
        if timestamp.seconds < 0 { epoch.checked_sub(seconds) } else { epoch.checked_add(seconds) };
    whole.and_then(|whole| whole.checked_add(nanoseconds)).unwrap_or(epoch)
}

/// A time in its stored form. For times before 1970 fuser subtracts the nanoseconds instead of
/// adding them; using them unchanged undoes that.
fn timestamp(time: SystemTime) -> Timestamp {
    let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => Timestamp { seconds: seconds(since), nanoseconds: since.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            Timestamp { seconds: -seconds(before), nanoseconds: before.subsec_nanos() }
        }
    }
}

/// A time to be set.
pub(crate) fn time_change(time: TimeOrNow) -> TimeChange {
    match time {
        TimeOrNow::SpecificTime(time) => TimeChange::At(timestamp(time)),
        TimeOrNow::Now => TimeChange::Now,
    }
}

/// How long the kernel may rely on a reply without asking again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lifetime {
    /// That the name leads to this file.
    pub(crate) name: Duration,
    /// That these are the attributes.
    pub(crate) attributes: Duration,
}

/// For state that only the kernel itself changes.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(1 << 30);
/// The space that a file uses is known once it is on disk, which takes a few seconds.
const UNTIL_WRITTEN: Duration = Duration::from_secs(1);

impl Lifetime {
    /// Only the kernel changes it.
    pub(crate) const FOR_EVER: Self = Self { name: FOR_EVER, attributes: FOR_EVER };
    /// Others may change it behind the kernel's back.
    pub(crate) const NONE: Self = Self { name: Duration::ZERO, attributes: Duration::ZERO };

    /// The same for a file that is not on disk yet.
    pub(crate) const fn until_written(self) -> Self {
        Self { attributes: UNTIL_WRITTEN, ..self }
    }
}

/// A file as a FUSE entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) attributes: FileAttr,
    pub(crate) generation: Generation,
    pub(crate) lifetime: Lifetime,
}

/// The attributes of a file.
pub(crate) fn of_file(inode: INodeNo, attributes: &Attributes) -> FileAttr {
    FileAttr {
        ino: inode,
        size: attributes.size,
        blocks: attributes.blocks,
        atime: time(attributes.atime),
        mtime: time(attributes.mtime),
        ctime: time(attributes.ctime),
        crtime: time(attributes.crtime),
        kind: file_type(attributes.kind),
        perm: attributes.permissions,
        nlink: u32::try_from(attributes.links).unwrap_or(u32::MAX),
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: device(attributes.device),
        blksize: attributes.block_size,
        flags: 0,
    }
}

/// The attributes of a directory of `.zfs`.
pub(crate) fn of_control(inode: INodeNo, attributes: &ControlAttributes) -> FileAttr {
    let time = time(attributes.time);
    FileAttr {
        ino: inode,
        size: attributes.size,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind: FileType::Directory,
        perm: ControlAttributes::PERMISSIONS,
        nlink: u32::try_from(attributes.links).unwrap_or(u32::MAX),
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 512,
        flags: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_have_their_nanoseconds_forward() {
        let shown = time(Timestamp { seconds: -2, nanoseconds: 500_000_000 });
        assert_eq!(shown, SystemTime::UNIX_EPOCH - Duration::from_millis(1500));
    }

    #[test]
    fn device_numbers_are_linux_ones() {
        for (major, minor) in [(8, 1), (259, 0x1_2345), (0xfff, 0xf_ffff), (0, 0)] {
            let number = DeviceNumber { major, minor };
            assert_eq!(device_number(device(number)), number);
        }
        assert_eq!(device(DeviceNumber { major: 8, minor: 1 }), 0x801);
        assert_eq!(device(DeviceNumber { major: 259, minor: 0x1_2345 }), 0x1231_0345);
    }
}
