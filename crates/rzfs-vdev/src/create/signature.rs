//! Other contents of a disk: signatures of file systems, volume managers and partition tables, at
//! their fixed places.

use rzfs_blockdev::{BlockDevice, read_exact_at};

/// Bytes at the start of a disk that contain all the signatures.
const REACH: usize = 72 << 10;

/// A signature: offset, bytes, and its name in `blkid`.
type Signature = (usize, &'static [u8], &'static str);

/// Most specific first: some leave room for others.
const SIGNATURES: [Signature; 25] = [
    (0, b"LUKS\xba\xbe", "crypto_LUKS"),
    (0, b"XFSB", "xfs"),
    (0, b"hsqs", "squashfs"),
    (0x200, b"LABELONE", "LVM2_member"),
    (0, b"LABELONE", "LVM2_member"),
    (0x400, b"LABELONE", "LVM2_member"),
    (0x600, b"LABELONE", "LVM2_member"),
    (0x1000, b"\xfc\x4e\x2b\xa9", "linux_raid_member"),
    (0, b"\xfc\x4e\x2b\xa9", "linux_raid_member"),
    (0x1_0040, b"_BHRfS_M", "btrfs"),
    (0x1018, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", "bcachefs"),
    (0x1018, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef", "bcache"),
    (0x400, b"\x10\x20\xf5\xf2", "f2fs"),
    (0x400, b"\xe2\xe1\xf5\xe0", "erofs"),
    (0x8000, b"JFS1", "jfs"),
    (0x1_0034, b"ReIsErFs", "reiserfs"),
    (0x1_0034, b"ReIsEr2Fs", "reiserfs"),
    (0x2000, b"OCFSV2", "ocfs2"),
    (0x438, b"\x53\xef", "ext4"),
    (3, b"NTFS    ", "ntfs"),
    (3, b"EXFAT   ", "exfat"),
    (54, b"FAT", "vfat"),
    (82, b"FAT32   ", "vfat"),
    (0x8001, b"CD001", "iso9660"),
    (0x200, b"EFI PART", "gpt"),
];

/// Possible ends of a swap area's signature: one page, of any size.
const SWAP_PAGES: [usize; 3] = [4 << 10, 16 << 10, 64 << 10];

/// The apparent contents of a disk, as named by `blkid`; `None` if they are unknown or unreadable.
#[must_use]
pub fn signature(device: &dyn BlockDevice) -> Option<&'static str> {
    let size = usize::try_from(device.geometry().size).unwrap_or(usize::MAX);
    let start = read_exact_at(device, 0, REACH.min(size)).ok()?;
    let has = |offset: usize, bytes: &[u8]| {
        start.get(offset..).is_some_and(|rest| rest.starts_with(bytes))
    };
    let found = SIGNATURES.iter().find(|(offset, bytes, _)| has(*offset, bytes));
    if let Some((_, _, name)) = found {
        return Some(if *name == "ext4" { ext_generation(&start) } else { name });
    }
    let is_swap = |page: &usize| [b"SWAPSPACE2", b"SWAP-SPACE"].iter().any(|s| has(page - 10, *s));
    if SWAP_PAGES.iter().any(is_swap) {
        return Some("swap");
    }
    // An MBR with partitions; boot code alone does not count.
    let partitions = start.get(446..510)?;
    let is_entry = |entry: &[u8]| matches!(entry, [0 | 0x80, _, _, _, kind, ..] if *kind != 0);
    let is_table = has(510, &[0x55, 0xaa])
        && partitions.chunks(16).any(is_entry)
        && partitions
            .chunks(16)
            .all(|entry| entry.iter().all(|byte| *byte == 0) || is_entry(entry));
    is_table.then_some("dos")
}

/// Features distinguish the three.
fn ext_generation(start: &[u8]) -> &'static str {
    const HAS_JOURNAL: u32 = 4;
    /// All incompatible features of ext2 and ext3.
    const OLD_INCOMPATIBLE: u32 = 0x16;
    let word = |offset: usize| {
        let bytes = start.get(offset..).and_then(|rest| rest.first_chunk::<4>());
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    };
    match (word(0x45c) & HAS_JOURNAL, word(0x460) & !OLD_INCOMPATIBLE) {
        (_, 1..) => "ext4",
        (0, 0) => "ext2",
        (_, 0) => "ext3",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_blockdev::{Access, MemoryDevice};

    fn of(parts: &[(usize, &[u8])]) -> Option<&'static str> {
        let mut content = vec![0; 128 << 10];
        for (offset, bytes) in parts {
            content[*offset..*offset + bytes.len()].copy_from_slice(bytes);
        }
        signature(&MemoryDevice::new("disk", content, Access::ReadOnly))
    }

    #[test]
    fn every_signature_is_found_where_it_belongs() {
        for (offset, bytes, name) in SIGNATURES {
            let found = of(&[(offset, bytes)]);
            assert_eq!(found, Some(if name == "ext4" { "ext2" } else { name }));
            assert_eq!(of(&[(offset + 1, bytes)]).filter(|found| *found == name), None, "{name}");
        }
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(4086, b"SWAPSPACE2")]), Some("swap"));
        assert_eq!(of(&[((64 << 10) - 10, b"SWAPSPACE2")]), Some("swap"));
    }

    #[test]
    fn ext_file_systems_are_told_apart_by_features() {
        let magic: (usize, &[u8]) = (0x438, b"\x53\xef");
        assert_eq!(of(&[magic, (0x45c, &[4])]), Some("ext3"));
        assert_eq!(of(&[magic, (0x45c, &[4]), (0x460, &[0x42])]), Some("ext4"));
    }

    #[test]
    fn boot_code_alone_is_no_partition_table() {
        let end: (usize, &[u8]) = (510, &[0x55, 0xaa]);
        assert_eq!(of(&[end]), None);
        let entry = [0x80, 0, 1, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 0, 1, 0];
        assert_eq!(of(&[end, (446, &entry)]), Some("dos"));
        assert_eq!(of(&[end, (446, &entry), (462, &[7; 16])]), None);
    }
}
