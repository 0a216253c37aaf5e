//! Directory entries (spec 05, sections 3.1 and 3.2).
//!
//! A directory is a ZAP from name to one number:
//!
//! ```text
//! bits  0 .. 47 object | 48 .. 59 zero | 60 .. 63 type, 0 = look at the object
//! ```

use crate::units::ObjectId;

/// What kind of file an object is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FileKind {
    /// A named pipe.
    Fifo,
    /// A character device.
    CharDevice,
    /// A directory.
    Directory,
    /// A block device.
    BlockDevice,
    /// A regular file.
    Regular,
    /// A symbolic link.
    Symlink,
    /// A socket.
    Socket,
}

impl FileKind {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::Fifo,
        Self::CharDevice,
        Self::Directory,
        Self::BlockDevice,
        Self::Regular,
        Self::Symlink,
        Self::Socket,
    ];

    /// The kind with this number in a directory entry.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// The number in a directory entry: the type bits of `st_mode`, shifted right by 12.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Fifo => 1,
            Self::CharDevice => 2,
            Self::Directory => 4,
            Self::BlockDevice => 6,
            Self::Regular => 8,
            Self::Symlink => 10,
            Self::Socket => 12,
        }
    }

    /// The kind that the type bits of a mode say.
    #[must_use]
    pub fn from_mode(mode: u32) -> Option<Self> {
        Self::from_number((mode >> 12 & 0xf) as u8)
    }

    /// The type bits of `st_mode`.
    #[must_use]
    pub const fn mode_bits(self) -> u32 {
        (self.number() as u32) << 12
    }
}

/// The value of a directory entry: an object and, in file systems from version 2 on, a hint of
/// what kind of file it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DirectoryEntry {
    /// The object; below 2^48.
    pub object: ObjectId,
    /// The kind that the entry claims; the object's own mode counts.
    pub kind: Option<FileKind>,
}

impl DirectoryEntry {
    /// Decodes an entry's value.
    #[must_use]
    pub fn decode(value: u64) -> Self {
        Self {
            object: ObjectId(value & (ObjectId::END.0 - 1)),
            kind: FileKind::from_number((value >> 60) as u8),
        }
    }

    /// The entry's value.
    #[must_use]
    pub fn encode(self) -> u64 {
        self.object.0 & (ObjectId::END.0 - 1)
            | self.kind.map_or(0, |kind| u64::from(kind.number()) << 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn entries_of_the_spec_decode() {
        for (value, object, kind) in [
            (0x4000_0000_0000_0080, 128, Some(FileKind::Directory)),
            (0x8000_0000_0000_0002, 2, Some(FileKind::Regular)),
            (0xa000_0000_0000_0081, 129, Some(FileKind::Symlink)),
            (0x81, 129, None),
        ] {
            let entry = DirectoryEntry::decode(value);
            assert_eq!(entry, DirectoryEntry { object: ObjectId(object), kind });
            assert_eq!(entry.encode(), value);
        }
    }

    #[test]
    fn unused_bits_and_unknown_types_are_ignored() {
        let entry = DirectoryEntry::decode(0x3fff_0000_0000_0002);
        assert_eq!(entry, DirectoryEntry { object: ObjectId(2), kind: None });
    }

    #[test]
    fn kinds_agree_with_modes() {
        let bits = FileKind::ALL.map(FileKind::mode_bits);
        let expected =
            [0o010_000, 0o020_000, 0o040_000, 0o060_000, 0o100_000, 0o120_000, 0o140_000];
        assert_eq!(bits, expected);
        assert_eq!(FileKind::from_mode(0o104_755), Some(FileKind::Regular));
        assert_eq!(FileKind::from_mode(0o644), None);
    }

    proptest! {
        #[test]
        fn entries_round_trip(object in 0..ObjectId::END.0, kind in 0..7_usize) {
            let entry = DirectoryEntry { object: ObjectId(object), kind: Some(FileKind::ALL[kind]) };
            prop_assert_eq!(DirectoryEntry::decode(entry.encode()), entry);
        }
    }
}
