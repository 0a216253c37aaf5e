//! The four labels of a leaf vdev (spec 01, section 1).
//!
//! ```text
//! leaf   0    256K   512K             4M                    psize - 512K   psize - 256K   psize
//!        | L0 | L1   | boot area      | allocatable         | L2           | L3           |
//!
//! label  0         8K           16K                        128K                    256K
//!        | blank   | boot env   | configuration (nvlist)   | ring of uberblocks    |
//! ```
//! `psize` is the size of the device rounded down to whole labels. Boot environment, configuration
//! and each slot of the ring end in a checksum trailer of [`TRAILER_SIZE`] bytes whose verifier is
//! the block's byte offset on the leaf.

use crate::nvlist::NvList;
use crate::{ByteOrder, FormatError};

/// Labels of a leaf.
pub const LABELS: usize = 4;

/// Bytes of a label; the size of a leaf is rounded down to a multiple of it.
pub const LABEL_SIZE: u64 = 256 << 10;

/// Bytes before the allocatable space: two labels and the boot area.
pub const START_SIZE: u64 = 4 << 20;

/// Bytes after the allocatable space: two labels.
pub const END_SIZE: u64 = 2 * LABEL_SIZE;

/// Where the boot area is on the leaf; RAID-Z expansion uses it as scratch space.
pub const BOOT_AREA: std::ops::Range<u64> = 2 * LABEL_SIZE..START_SIZE;

/// Smallest leaf.
pub const MIN_LEAF_SIZE: u64 = 64 << 20;

/// Offset of the boot environment in a label.
pub const BOOT_ENV_OFFSET: u64 = 8 << 10;

/// Bytes of the boot environment.
pub const BOOT_ENV_SIZE: usize = 8 << 10;

/// Offset of the configuration in a label.
pub const CONFIG_OFFSET: u64 = 16 << 10;

/// Bytes of the configuration.
pub const CONFIG_SIZE: usize = 112 << 10;

/// Offset of the ring of uberblocks in a label.
pub const RING_OFFSET: u64 = 128 << 10;

/// Bytes of the ring of uberblocks.
pub const RING_SIZE: usize = 128 << 10;

/// Bytes of the checksum trailer: magic number and four checksum words.
pub const TRAILER_SIZE: usize = 40;

const _: () = assert!(RING_OFFSET + RING_SIZE as u64 == LABEL_SIZE);
const _: () = assert!(CONFIG_OFFSET + CONFIG_SIZE as u64 == RING_OFFSET);

/// The space of a leaf that ZFS uses: whole labels of what the device has, at least
/// [`MIN_LEAF_SIZE`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LeafSize(u64);

impl LeafSize {
    /// The usable size of a device of `device_size` bytes; `None` when it is too small for a vdev.
    #[must_use]
    pub const fn of_device(device_size: u64) -> Option<Self> {
        let rounded = device_size - device_size % LABEL_SIZE;
        if rounded < MIN_LEAF_SIZE { None } else { Some(Self(rounded)) }
    }

    /// Bytes with labels and boot area.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Bytes that can be allocated.
    #[must_use]
    pub const fn allocatable(self) -> u64 {
        self.0 - START_SIZE - END_SIZE
    }

    /// Byte offset of a label on the leaf.
    #[must_use]
    pub const fn label_offset(self, label: LabelIndex) -> u64 {
        let index = label.0 as u64;
        if index < 2 { index * LABEL_SIZE } else { self.0 - (LABELS as u64 - index) * LABEL_SIZE }
    }
}

/// Which of the four labels: 0 and 1 at the start of the leaf, 2 and 3 at its end.
///
/// The even ones are written before the uberblock of a txg, the odd ones after it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LabelIndex(u8);

impl LabelIndex {
    /// All four.
    pub const ALL: [Self; LABELS] = [Self(0), Self(1), Self(2), Self(3)];

    /// The number, 0 to 3.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl std::fmt::Display for LabelIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Decodes the configuration of a label: `bytes` is its [`CONFIG_SIZE`] bytes with the trailer,
/// which the caller verifies.
///
/// # Errors
/// [`FormatError`] when the list is damaged.
pub fn decode_config(bytes: &[u8]) -> Result<NvList, FormatError> {
    let end = CONFIG_SIZE - TRAILER_SIZE;
    let payload = bytes.get(..end).ok_or(FormatError::Truncated {
        what: "label",
        need: CONFIG_SIZE,
        have: bytes.len(),
    })?;
    NvList::decode(payload)
}

/// The shape of the ring of uberblocks, given by the ashift of the leaf's top-level vdev.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UberblockRing {
    slot_shift: u8,
}

impl UberblockRing {
    /// The shapes that a ring can have, smallest slots first: for a scan that does not know the
    /// ashift.
    pub const ALL: [Self; 4] = [
        Self { slot_shift: 10 },
        Self { slot_shift: 11 },
        Self { slot_shift: 12 },
        Self { slot_shift: 13 },
    ];

    /// The ring of a top-level vdev with this ashift; slots are 1 to 8 KiB.
    #[must_use]
    pub fn of_ashift(ashift: u64) -> Self {
        Self { slot_shift: ashift.clamp(10, 13) as u8 }
    }

    /// Bytes of a slot.
    #[must_use]
    pub const fn slot_size(self) -> usize {
        1 << self.slot_shift
    }

    /// Number of slots.
    #[must_use]
    pub const fn slots(self) -> usize {
        RING_SIZE >> self.slot_shift
    }

    /// Byte offset of a slot in the label; slots beyond the last start again.
    #[must_use]
    pub const fn slot_offset(self, slot: usize) -> u64 {
        RING_OFFSET + ((slot % self.slots()) as u64) * self.slot_size() as u64
    }

    /// The slot for the uberblock of a txg. With multihost on, the last slot is kept for
    /// heartbeats.
    #[must_use]
    pub const fn slot_of_txg(self, txg: crate::Txg, multihost: Multihost) -> usize {
        let reserved = match multihost {
            Multihost::Off => 0,
            Multihost::On => 1,
        };
        (txg.0 % (self.slots() - reserved) as u64) as usize
    }

    /// The slot of multihost heartbeats: the last.
    #[must_use]
    pub const fn heartbeat_slot(self) -> usize {
        self.slots() - 1
    }
}

/// Whether a pool's owner writes heartbeats (pool property `multihost`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Multihost {
    /// No heartbeats.
    Off,
    /// Heartbeats go to the last slot.
    On,
}

/// What a boot loader left in the boot environment block (spec 01, section 1.5).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BootEnvironment {
    /// GRUB's environment block as text (`grub:envmap`).
    Grub(Vec<u8>),
    /// Named values.
    List(NvList),
    /// A FreeBSD boot loader's `nextboot` line, older than the format.
    FreeBsd(Vec<u8>),
}

const BOOT_ENV_RAW: u64 = 0;
const BOOT_ENV_NVLIST: u64 = 1;
const BOOT_ENV_VERSION_SIZE: usize = 8;

impl BootEnvironment {
    /// Decodes the block of [`BOOT_ENV_SIZE`] bytes with its trailer, which the caller verifies.
    ///
    /// # Errors
    /// [`FormatError::Truncated`] for another size. Contents that make no sense are an empty list,
    /// as with OpenZFS.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let what = "boot environment";
        let payload = bytes.get(..BOOT_ENV_SIZE - TRAILER_SIZE).ok_or(FormatError::Truncated {
            what,
            need: BOOT_ENV_SIZE,
            have: bytes.len(),
        })?;
        let fields = crate::endian::Fields::new(what, payload, ByteOrder::Big);
        let contents =
            fields.bytes(BOOT_ENV_VERSION_SIZE, payload.len() - BOOT_ENV_VERSION_SIZE)?;
        match (fields.u64(0)?, NvList::decode(contents)) {
            (BOOT_ENV_RAW, _) => Ok(Self::Grub(until_nul(contents))),
            (BOOT_ENV_NVLIST, Ok(list)) => Ok(Self::List(list)),
            _ if payload.first() == Some(&0) => Ok(Self::List(NvList::new())),
            _ => Ok(Self::FreeBsd(until_nul(payload))),
        }
    }
}

fn until_nul(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().take_while(|byte| *byte != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Txg;
    use crate::nvlist::Encoding;

    #[test]
    fn labels_lie_where_the_rounded_size_says() {
        let table: [(u64, [u64; 4]); 4] = [
            (64 << 20, [0, 0x4_0000, 0x3f8_0000, 0x3fc_0000]),
            ((65 << 20) + 1, [0, 0x4_0000, 0x408_0000, 0x40c_0000]),
            (96 << 20, [0, 0x4_0000, 0x5f8_0000, 0x5fc_0000]),
            (10 << 40, [0, 0x4_0000, (10 << 40) - 0x8_0000, (10 << 40) - 0x4_0000]),
        ];
        for (size, offsets) in table {
            let leaf = LeafSize::of_device(size).unwrap();
            assert_eq!(LabelIndex::ALL.map(|label| leaf.label_offset(label)), offsets);
        }
        assert_eq!(LeafSize::of_device(96 << 20).unwrap().allocatable(), 95_944_704);
    }

    #[test]
    fn small_devices_are_no_leaves() {
        for size in [0, 1, LABEL_SIZE, MIN_LEAF_SIZE - 1] {
            assert_eq!(LeafSize::of_device(size), None);
        }
        assert_eq!(LeafSize::of_device(MIN_LEAF_SIZE + 1).unwrap().get(), MIN_LEAF_SIZE);
    }

    #[test]
    fn the_ring_follows_the_ashift() {
        let slots = |ashift| UberblockRing::of_ashift(ashift).slots();
        assert_eq!((9..=16).map(slots).collect::<Vec<_>>(), [128, 128, 64, 32, 16, 16, 16, 16]);
        let ring = UberblockRing::of_ashift(12);
        assert_eq!(ring.slot_offset(5), 0x2_5000);
        assert_eq!(ring.slot_of_txg(Txg(34), Multihost::Off), 2);
        assert_eq!(ring.slot_of_txg(Txg(34), Multihost::On), 3);
        assert_eq!(ring.heartbeat_slot(), 31);
        for ring in UberblockRing::ALL {
            assert_eq!(ring.slots() * ring.slot_size(), RING_SIZE);
        }
    }

    #[test]
    fn a_config_is_a_padded_list() {
        let mut config = NvList::new();
        config.insert("version", 5000_u64).unwrap();
        let mut bytes = config.encode(Encoding::Xdr).unwrap();
        bytes.resize(CONFIG_SIZE, 0);
        assert_eq!(decode_config(&bytes), Ok(config));
        assert!(decode_config(&bytes[..CONFIG_SIZE - TRAILER_SIZE - 1]).is_err());
        assert!(decode_config(&[0xff; CONFIG_SIZE]).is_err());
    }

    #[test]
    fn boot_environments_of_all_kinds_decode() {
        let block = |version: u64, contents: &[u8]| {
            let mut bytes = version.to_be_bytes().to_vec();
            bytes.extend(contents);
            bytes.resize(BOOT_ENV_SIZE, 0);
            BootEnvironment::decode(&bytes).unwrap()
        };
        assert_eq!(block(0, b"saved=1\0x"), BootEnvironment::Grub(b"saved=1".to_vec()));
        assert_eq!(block(0, b""), BootEnvironment::Grub(Vec::new()));
        let mut list = NvList::new();
        list.insert("version", 1_u64).unwrap();
        let packed = list.encode(Encoding::Xdr).unwrap();
        assert_eq!(block(1, &packed), BootEnvironment::List(list));
        assert_eq!(block(1, b"damaged"), BootEnvironment::List(NvList::new()));
        assert_eq!(block(7, b""), BootEnvironment::List(NvList::new()));
        let nextboot = u64::from_be_bytes(*b"nextboot");
        assert_eq!(block(nextboot, b"=x"), BootEnvironment::FreeBsd(b"nextboot=x".to_vec()));
        assert!(BootEnvironment::decode(&[]).is_err());
    }
}
