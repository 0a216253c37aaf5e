//! File flags and projects for `chattr`, `lsattr` and `xfs_quota`.
//!
//! ```text
//! FS_IOC_GETFLAGS, FS_IOC_SETFLAGS        u32 of flags
//! FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR    u32 xflags, extent size, extents, project, copy-on-write
//!                                         extent size, 8 bytes of padding
//! ZFS_IOC_GETDOSFLAGS, ZFS_IOC_SETDOSFLAGS   u64 of flags as ZFS stores them
//! ```
//! The kernel checks permissions; it knows the first four by itself.

use fuser::Errno;
use rzfs_format::znode::FileFlags;
use rzfs_zpl::Attributes;
use rzfs_zpl::live::{AttributeChange, FlagChange};

/// Bytes of the structure with the project.
const EXTENDED_LEN: usize = 28;
/// The offset of the project in it.
const PROJECT_AT: usize = 12;

/// A flag as `FS_IOC_GETFLAGS` numbers it, as `FS_IOC_FSGETXATTR` does, and as ZFS does.
const FLAGS: [(u32, u32, FileFlags); 4] = [
    (0x10, 0x8, FileFlags::IMMUTABLE),
    (0x20, 0x10, FileFlags::APPENDONLY),
    (0x40, 0x80, FileFlags::NODUMP),
    (0x2000_0000, 0x200, FileFlags::PROJINHERIT),
];

/// The DOS flags that OpenZFS exposes to users.
const DOS_FLAGS: [FileFlags; 11] = [
    FileFlags::IMMUTABLE,
    FileFlags::APPENDONLY,
    FileFlags::NOUNLINK,
    FileFlags::ARCHIVE,
    FileFlags::NODUMP,
    FileFlags::SYSTEM,
    FileFlags::HIDDEN,
    FileFlags::READONLY,
    FileFlags::REPARSE,
    FileFlags::OFFLINE,
    FileFlags::SPARSE,
];

/// An ioctl command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    /// `FS_IOC_GETFLAGS`
    Flags,
    /// `FS_IOC_SETFLAGS`
    SetFlags,
    /// `FS_IOC_FSGETXATTR`
    Extended,
    /// `FS_IOC_FSSETXATTR`
    SetExtended,
    /// `ZFS_IOC_GETDOSFLAGS`
    DosFlags,
    /// `ZFS_IOC_SETDOSFLAGS`
    SetDosFlags,
}

impl Command {
    /// The command with this number of ioctl(2).
    pub(crate) const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0x8008_6601 => Self::Flags,
            0x4008_6602 => Self::SetFlags,
            0x801c_581f => Self::Extended,
            0x401c_5820 => Self::SetExtended,
            0x8008_8301 => Self::DosFlags,
            0x4008_8302 => Self::SetDosFlags,
            _ => return None,
        })
    }

    /// Whether it changes something.
    pub(crate) const fn is_change(self) -> bool {
        matches!(self, Self::SetFlags | Self::SetExtended | Self::SetDosFlags)
    }

    /// The reply for a file with these attributes.
    pub(crate) fn answer(self, attributes: &Attributes) -> Vec<u8> {
        let has = |flag: &FileFlags| attributes.flags.contains(*flag);
        match self {
            Self::Flags => {
                let flags = FLAGS.iter().filter(|(_, _, flag)| has(flag));
                flags.fold(0_u32, |all, (number, _, _)| all | number).to_ne_bytes().to_vec()
            }
            Self::Extended => {
                let flags = FLAGS.iter().filter(|(_, _, flag)| has(flag));
                let flags = flags.fold(0_u32, |all, (_, number, _)| all | number);
                let project = u32::try_from(attributes.project).unwrap_or(u32::MAX);
                [flags, 0, 0, project, 0, 0, 0].into_iter().flat_map(u32::to_ne_bytes).collect()
            }
            Self::DosFlags => {
                let flags = DOS_FLAGS.iter().filter(|flag| has(flag));
                flags.fold(0_u64, |all, flag| all | flag.0).to_ne_bytes().to_vec()
            }
            Self::SetFlags | Self::SetExtended | Self::SetDosFlags => Vec::new(),
        }
    }

    /// The attribute change that it requests.
    ///
    /// # Errors
    /// It sets a flag that ZFS does not have, or the data are too short.
    pub(crate) fn change(self, data: &[u8]) -> Result<AttributeChange, Errno> {
        let change = |flags, project| AttributeChange {
            flags: Some(flags),
            project,
            ..AttributeChange::default()
        };
        let word = |at: usize| {
            let bytes = data.get(at..at + 4).and_then(|bytes| bytes.first_chunk());
            bytes.copied().map(u32::from_ne_bytes).ok_or(Errno::EINVAL)
        };
        match self {
            Self::SetFlags => {
                Ok(change(chosen(word(0)?, &FLAGS.map(|(flag, _, zfs)| (flag, zfs)))?, None))
            }
            Self::SetExtended if data.len() >= EXTENDED_LEN => {
                let flags = chosen(word(0)?, &FLAGS.map(|(_, flag, zfs)| (flag, zfs)))?;
                Ok(change(flags, Some(word(PROJECT_AT)?)))
            }
            Self::SetDosFlags => {
                let wanted = data.first_chunk().copied().map(u64::from_ne_bytes);
                let wanted = wanted.ok_or(Errno::EINVAL)?;
                let known = DOS_FLAGS.iter().fold(0, |all, flag| all | flag.0);
                if wanted & !known != 0 {
                    return Err(Errno::EOPNOTSUPP);
                }
                let clear = FileFlags(known & !wanted);
                Ok(change(FlagChange { set: FileFlags(wanted), clear }, None))
            }
            _ => Err(Errno::EINVAL),
        }
    }
}

/// Sets the flags in a word, and clears the others.
fn chosen(wanted: u32, known: &[(u32, FileFlags)]) -> Result<FlagChange, Errno> {
    let mut change = FlagChange::default();
    let mut unknown = wanted;
    for (number, flag) in known {
        if wanted & number != 0 {
            change.set = change.set.with(*flag);
        } else {
            change.clear = change.clear.with(*flag);
        }
        unknown &= !number;
    }
    if unknown != 0 { Err(Errno::EOPNOTSUPP) } else { Ok(change) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_are_not_set_are_cleared() {
        let change = Command::SetFlags.change(&0x50_u32.to_ne_bytes()).unwrap();
        let FlagChange { set, clear } = change.flags.unwrap();
        assert_eq!(set, FileFlags::IMMUTABLE.with(FileFlags::NODUMP));
        assert_eq!(clear, FileFlags::APPENDONLY.with(FileFlags::PROJINHERIT));
        assert_eq!(change.project, None);
    }

    #[test]
    fn flags_that_zfs_does_not_have_are_refused() {
        let secure_deletion = 1_u32;
        let refused = Command::SetFlags.change(&secure_deletion.to_ne_bytes());
        assert_eq!(refused, Err(Errno::EOPNOTSUPP));
        assert_eq!(Command::SetExtended.change(&[0; 27]), Err(Errno::EINVAL));
        assert_eq!(Command::from_number(0x5401), None);
    }

    #[test]
    fn the_project_is_the_fourth_word() {
        let words = [0x200_u32, 0, 0, 77, 0, 0, 0].map(u32::to_ne_bytes);
        let change = Command::SetExtended.change(words.as_flattened()).unwrap();
        assert_eq!(change.project, Some(77));
        assert_eq!(change.flags.unwrap().set, FileFlags::PROJINHERIT);
    }
}
