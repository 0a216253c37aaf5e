//! Uberblocks: the root of a pool at one transaction group (spec 01, section 3).
//!
//! ```text
//! 0     8       16  24       32        40         168      176    184    192     200         208
//! | magic | version | txg | guid sum | timestamp | MOS pointer | software | MMP    | MMP   | MMP    | checkpoint | RAID-Z |
//! |       |         |     |          |           | 128 bytes   | version  | magic  | delay | config | txg        | reflow |
//! ```
//! All fields are words in the writer's byte order, which the magic number tells. Fields after the
//! MOS pointer came with later releases; older software left them zero. In a label an uberblock
//! fills a slot of a ring (see [`crate::label::UberblockRing`]) that ends in a checksum trailer.

use crate::endian::{ByteOrder, Fields, FieldsMut};
use crate::{BlockPointer, FormatError, Txg};

const WHAT: &str = "uberblock";
const MAGIC: u64 = 0x00ba_b10c;
const MMP_MAGIC: u64 = 0xa11c_ea11;

const WORDS: usize = 27;
const POINTER_WORD: usize = 5;
const POINTER_WORDS: usize = BlockPointer::SIZE / 8;
/// Words up to and including the MOS pointer: all that version-1 software wrote.
const FIRST_WORDS: usize = POINTER_WORD + POINTER_WORDS;

/// The newest version before feature flags.
pub const LAST_NUMBERED_VERSION: u64 = 28;

/// The version of pools with feature flags.
pub const FEATURES_VERSION: u64 = 5000;

/// Whether OpenZFS can read pools of this version.
#[must_use]
pub const fn is_supported_version(version: u64) -> bool {
    matches!(version, 1..=LAST_NUMBERED_VERSION | FEATURES_VERSION)
}

/// What one committed transaction group left: where its meta object set is, and what to expect
/// of the vdevs.
///
/// A decoded one has the right magic number; its checksum is the reader's business.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Uberblock {
    /// Version of the pool: 1 to 28 or 5000.
    pub version: u64,
    /// The transaction group that it commits.
    pub txg: Txg,
    /// Sum of the guids of all vdevs, modulo 2^64.
    pub guid_sum: u64,
    /// When it was written, in seconds since 1970 (UTC).
    pub timestamp: u64,
    /// The block of the meta object set.
    pub mos: BlockPointer,
    /// Newest version that the writer supports.
    pub software_version: u64,
    /// Multihost fields, if the writer knew them.
    pub multihost: Option<Multihost>,
    /// In an uberblock to which a pool was rewound: the checkpoint's own txg; else 0.
    pub checkpoint_txg: Txg,
    /// How far an expansion of a RAID-Z vdev has come.
    pub raidz_reflow: RaidzReflow,
}

impl Uberblock {
    /// Whether it repeats a committed one, as a sign that its pool is in use (`multihost`).
    #[must_use]
    pub fn is_heartbeat(&self) -> bool {
        let sequence = self.multihost.and_then(|multihost| multihost.config.sequence());
        sequence.is_some_and(|sequence| sequence > 0)
    }

    /// Size in bytes; the rest of a slot up to its trailer is zero.
    pub const SIZE: usize = WORDS * 8;

    /// Decodes the start of a slot and returns the byte order of its writer.
    ///
    /// # Errors
    /// [`FormatError::Field`] when the magic number is none in either order.
    pub fn decode(bytes: &[u8]) -> Result<(Self, ByteOrder), FormatError> {
        let magic = Fields::new(WHAT, bytes, ByteOrder::Little).u64(0)?;
        let order = match magic {
            MAGIC => ByteOrder::Little,
            _ if magic.swap_bytes() == MAGIC => ByteOrder::Big,
            _ => return Err(FormatError::field(WHAT, "magic", magic)),
        };
        let words = Fields::new(WHAT, bytes, order).u64s::<WORDS>(0)?;
        Ok((Self::from_words(&words)?, order))
    }

    /// An uberblock kept as words in host order: the checkpoint's entry in the object directory.
    /// Words that older software did not write may be missing.
    ///
    /// # Errors
    /// [`FormatError`] when the magic number is wrong or the words end before the MOS pointer does.
    pub fn from_words(words: &[u64]) -> Result<Self, FormatError> {
        if words.len() < FIRST_WORDS {
            let (need, have) = (FIRST_WORDS * 8, words.len() * 8);
            return Err(FormatError::Truncated { what: WHAT, need, have });
        }
        let word = |index: usize| words.get(index).copied().unwrap_or(0);
        if word(0) != MAGIC {
            return Err(FormatError::field(WHAT, "magic", word(0)));
        }
        let mut mos = [0; POINTER_WORDS];
        for (index, pointer_word) in mos.iter_mut().enumerate() {
            *pointer_word = word(POINTER_WORD + index);
        }
        let multihost = Multihost { delay: word(23), config: MultihostConfig(word(24)) };
        Ok(Self {
            version: word(1),
            txg: Txg(word(2)),
            guid_sum: word(3),
            timestamp: word(4),
            mos: BlockPointer::from_words(mos),
            software_version: word(21),
            multihost: (word(22) == MMP_MAGIC).then_some(multihost),
            checkpoint_txg: Txg(word(25)),
            raidz_reflow: RaidzReflow(word(26)),
        })
    }

    /// The words in host order.
    #[must_use]
    pub fn to_words(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        words[0] = MAGIC;
        words[1] = self.version;
        words[2] = self.txg.get();
        words[3] = self.guid_sum;
        words[4] = self.timestamp;
        words[POINTER_WORD..FIRST_WORDS].copy_from_slice(self.mos.words());
        words[21] = self.software_version;
        if let Some(multihost) = &self.multihost {
            words[22] = MMP_MAGIC;
            words[23] = multihost.delay;
            words[24] = multihost.config.0;
        }
        words[25] = self.checkpoint_txg.get();
        words[26] = self.raidz_reflow.0;
        words
    }

    /// The on-disk bytes.
    #[must_use]
    pub fn encode(&self, order: ByteOrder) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        FieldsMut::new(&mut bytes, order).set_u64s(0, &self.to_words());
        bytes
    }

    /// By what the newest of several uberblocks is chosen: txg, then time, then the sequence
    /// number of multihost writes.
    #[must_use]
    pub fn precedence(&self) -> (Txg, u64, u16) {
        let sequence = self.multihost.and_then(|multihost| multihost.config.sequence());
        (self.txg, self.timestamp, sequence.unwrap_or(0))
    }
}

/// The heartbeat parameters of a pool's owner for other hosts (spec 01, section 10).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Multihost {
    /// Average nanoseconds between heartbeats; 0 when multihost is off.
    pub delay: u64,
    /// Interval, sequence number and fail intervals.
    pub config: MultihostConfig,
}

/// The packed word of multihost settings; each field is there only if its valid bit is.
///
/// ```text
/// 63              48 47        32 31                  8 7       3   2      1     0
/// | fail intervals  | sequence   | write interval (ms) | zero   | valid: fail, seq, interval |
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct MultihostConfig(pub u64);

impl MultihostConfig {
    /// A word with all three fields; the interval is cut to 24 bits.
    #[must_use]
    pub const fn new(interval_ms: u32, sequence: u16, fail_intervals: u16) -> Self {
        Self(
            (fail_intervals as u64) << 48
                | (sequence as u64) << 32
                | (interval_ms as u64 & 0xff_ffff) << 8
                | 0b111,
        )
    }

    /// Milliseconds between heartbeats.
    #[must_use]
    pub const fn interval_ms(self) -> Option<u32> {
        if self.0 & 1 == 0 { None } else { Some((self.0 >> 8 & 0xff_ffff) as u32) }
    }

    /// Number of the heartbeat since the last txg or second.
    #[must_use]
    pub const fn sequence(self) -> Option<u16> {
        if self.0 & 2 == 0 { None } else { Some((self.0 >> 32) as u16) }
    }

    /// After how many missed intervals the owner stops writing; 0: never.
    #[must_use]
    pub const fn fail_intervals(self) -> Option<u16> {
        if self.0 & 4 == 0 { None } else { Some((self.0 >> 48) as u16) }
    }
}

/// Progress of a RAID-Z expansion: a packed word of offset and scratch state.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct RaidzReflow(pub u64);

/// What the scratch area of an expanding RAID-Z vdev holds (spec 07, section 10.6).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RaidzScratch {
    /// Nothing; no expansion is in its first steps.
    NotInUse,
    /// The only good copy of the vdev's first rows.
    Valid,
    /// Nothing of use any more, the copy was written back.
    InvalidSynced,
    /// The same, written back during an import.
    InvalidSyncedOnImport,
    /// The same, and reflow has gone on.
    InvalidSyncedReflow,
}

impl RaidzReflow {
    /// A word of these fields; the offset is a multiple of 512 bytes.
    #[must_use]
    pub const fn new(offset: u64, scratch: RaidzScratch) -> Self {
        Self(offset >> 9 & ((1 << 55) - 1) | (scratch as u64) << 55)
    }

    /// Byte offset below which blocks have the new layout.
    #[must_use]
    pub const fn offset(self) -> u64 {
        (self.0 & ((1 << 55) - 1)) << 9
    }

    /// What the scratch area holds.
    ///
    /// # Errors
    /// [`FormatError::Field`] for a state that the format does not have.
    pub fn scratch(self) -> Result<RaidzScratch, FormatError> {
        Ok(match self.0 >> 55 {
            0 => RaidzScratch::NotInUse,
            1 => RaidzScratch::Valid,
            2 => RaidzScratch::InvalidSynced,
            3 => RaidzScratch::InvalidSyncedOnImport,
            4 => RaidzScratch::InvalidSyncedReflow,
            state => return Err(FormatError::field(WHAT, "RAID-Z scratch state", state)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The example of spec 01, section 3.1: slot 5 of a fresh pool.
    fn fresh_slot() -> Vec<u8> {
        let words: [u64; 24] = [
            0x0cb1_ba00_0000_0000,
            0x8813_0000_0000_0000,
            0x0500_0000_0000_0000,
            0xd204_73d7_335d_9ec1,
            0xc200_016b_0000_0000,
            0x0800_0000_0000_0000,
            0x5001_0000_0000_0000,
            0x0800_0000_0000_0000,
            0x5081_0000_0000_0000,
            0x0800_0000_0000_0000,
            0xe800_0100_0000_0000,
            0x0700_0700_0207_0b80,
            0,
            0,
            0,
            0x0500_0000_0000_0000,
            0x2e00_0000_0000_0000,
            0xa3b2_d9cc_0100_0000,
            0x7429_5ac9_ec06_0000,
            0xfd2a_f8cf_6f55_0d00,
            0xc0e8_c1d6_4b5d_2211,
            0x8813_0000_0000_0000,
            0x11ea_1ca1_0000_0000,
            0,
        ];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        bytes.resize(4096, 0);
        bytes
    }

    #[test]
    fn the_fresh_pools_uberblock_decodes() {
        let (uberblock, order) = Uberblock::decode(&fresh_slot()).unwrap();
        assert_eq!(order, ByteOrder::Little);
        assert_eq!((uberblock.version, uberblock.txg), (5000, Txg(5)));
        assert_eq!(uberblock.guid_sum, 13_951_691_172_879_729_874);
        assert_eq!(uberblock.timestamp, 1_795_227_842);
        assert_eq!(uberblock.mos.dvas().next().unwrap().to_string(), "0:2a000:1000");
        assert_eq!(uberblock.mos.dvas().count(), 3);
        assert_eq!(uberblock.multihost.unwrap().delay, 0);
        assert_eq!(uberblock.raidz_reflow.scratch(), Ok(RaidzScratch::NotInUse));
        assert_eq!(uberblock.encode(order), fresh_slot()[..Uberblock::SIZE]);
    }

    #[test]
    fn the_other_byte_order_decodes_to_the_same() {
        let (uberblock, _) = Uberblock::decode(&fresh_slot()).unwrap();
        let swapped = uberblock.encode(ByteOrder::Big);
        assert_eq!(Uberblock::decode(&swapped), Ok((uberblock, ByteOrder::Big)));
    }

    #[test]
    fn what_is_no_uberblock_is_refused() {
        let mut slot = fresh_slot();
        slot[1] ^= 1;
        assert!(Uberblock::decode(&slot).is_err());
        assert!(Uberblock::decode(&[]).is_err());
        assert!(Uberblock::decode(&fresh_slot()[..Uberblock::SIZE - 1]).is_err());
    }

    #[test]
    fn checkpoints_of_older_software_have_fewer_words() {
        let (mut uberblock, _) = Uberblock::decode(&fresh_slot()).unwrap();
        uberblock.checkpoint_txg = Txg(5);
        let words = uberblock.to_words();
        assert_eq!(Uberblock::from_words(&words[..26]), Ok(uberblock.clone()));
        assert_eq!(Uberblock::from_words(&words), Ok(uberblock));
        assert!(Uberblock::from_words(&words[..20]).is_err());
    }

    #[test]
    fn multihost_settings_unpack() {
        let config = MultihostConfig(0x000a_0002_0003_e807);
        assert_eq!(config, MultihostConfig::new(1000, 2, 10));
        assert_eq!(config.interval_ms(), Some(1000));
        assert_eq!(config.sequence(), Some(2));
        assert_eq!(config.fail_intervals(), Some(10));
        let invalid = MultihostConfig(config.0 & !7);
        assert_eq!(
            (invalid.interval_ms(), invalid.sequence(), invalid.fail_intervals()),
            (None, None, None)
        );
    }

    #[test]
    fn txg_then_time_then_sequence_decide() {
        let (old, _) = Uberblock::decode(&fresh_slot()).unwrap();
        let mut by_sequence = old.clone();
        by_sequence.multihost = Some(Multihost { delay: 1, config: MultihostConfig::new(1, 9, 1) });
        let by_time = Uberblock { timestamp: old.timestamp + 1, ..old.clone() };
        let by_txg = Uberblock { txg: Txg(6), timestamp: 0, ..old.clone() };
        let mut order = [by_txg.clone(), by_time.clone(), by_sequence.clone(), old.clone()];
        order.sort_by_key(Uberblock::precedence);
        assert_eq!(order, [old, by_sequence, by_time, by_txg]);
    }

    #[test]
    fn only_openzfs_versions_are_supported() {
        for version in [1, 8, 28, 5000] {
            assert!(is_supported_version(version));
        }
        for version in [0, 29, 999, 4999, 5001, u64::MAX] {
            assert!(!is_supported_version(version));
        }
    }

    proptest! {
        #[test]
        fn any_words_round_trip(mut words in prop::array::uniform27(any::<u64>()), mmp: bool) {
            words[0] = MAGIC;
            words[22] = if mmp { MMP_MAGIC } else { 0 };
            if !mmp {
                words[23..25].fill(0);
            }
            let uberblock = Uberblock::from_words(&words).unwrap();
            prop_assert_eq!(uberblock.to_words(), words);
            for order in [ByteOrder::Little, ByteOrder::Big] {
                let decoded = Uberblock::decode(&uberblock.encode(order)).unwrap();
                prop_assert_eq!(decoded, (uberblock.clone(), order));
            }
        }

        #[test]
        fn reflow_words_round_trip(sectors in 0_u64..1 << 54) {
            let word = RaidzReflow::new(sectors << 9, RaidzScratch::InvalidSynced);
            prop_assert_eq!(word.offset(), sectors << 9);
            prop_assert_eq!(word.scratch(), Ok(RaidzScratch::InvalidSynced));
        }
    }
}
