//! Attributes as FUSE wants them.

use fuser::{FileAttr, FileType, INodeNo};
use rzfs_format::dirent::FileKind;
use rzfs_format::znode::{DeviceNumber, Timestamp};
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

/// A time; those that the system cannot say are the epoch.
pub(crate) fn time(timestamp: Timestamp) -> SystemTime {
    let nanoseconds = Duration::from_nanos(u64::from(timestamp.nanoseconds));
    let seconds = Duration::from_secs(timestamp.seconds.unsigned_abs());
    let epoch = SystemTime::UNIX_EPOCH;
    let whole =
        if timestamp.seconds < 0 { epoch.checked_sub(seconds) } else { epoch.checked_add(seconds) };
    whole.and_then(|whole| whole.checked_add(nanoseconds)).unwrap_or(epoch)
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
        assert_eq!(device(DeviceNumber { major: 8, minor: 1 }), 0x801);
        assert_eq!(device(DeviceNumber { major: 259, minor: 0x1_2345 }), 0x1231_0345);
    }
}
