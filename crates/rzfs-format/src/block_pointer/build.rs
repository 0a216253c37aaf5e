//! Making block pointers.

use super::{
    BlockPointer, CHECKSUM, Dva, EMBEDDED_WORDS, FILL, LOGICAL_BIRTH, PHYSICAL_BIRTH, PROP, SALT,
};
use crate::Level;
use crate::checksum::{ChecksumFunction, ChecksumValue};
use crate::compression::CompressionFunction;
use crate::endian::ByteOrder;
use crate::object_type::ObjectType;
use crate::units::{SECTOR_SHIFT, Txg};

/// What a pointer to a stored block says about it, but for the fill, which its owner knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredBlock {
    /// The type of the object that the block belongs to.
    pub object_type: ObjectType,
    /// The level in the object's tree.
    pub level: Level,
    /// Bytes once decompressed; a multiple of 512.
    pub logical_size: u64,
    /// Bytes as stored; a multiple of 512.
    pub physical_size: u64,
    /// How it is compressed.
    pub compression: CompressionFunction,
    /// How it is checksummed.
    pub checksum_function: ChecksumFunction,
    /// The checksum of what is stored.
    pub checksum: ChecksumValue,
    /// Where the copies are; unused ones are empty.
    pub dvas: [Dva; 3],
    /// When it was born.
    pub birth: Txg,
}

const LITTLE: u64 = match ByteOrder::NATIVE {
    ByteOrder::Little => 1 << 63,
    ByteOrder::Big => 0,
};

/// The bit of the word of properties that says that a block belongs to an encrypted objset.
const CRYPT: u64 = 1 << 61;
/// The bit of the word of properties that says that a block is in a dedup table.
const DEDUP: u64 = 1 << 62;

const fn kind(object_type: ObjectType, level: Level) -> u64 {
    (object_type.number() as u64) << 48 | ((level.0 & 0x1f) as u64) << 56
}

impl BlockPointer {
    /// A pointer to a stored block of this machine's byte order, with no fill.
    #[must_use]
    pub fn stored(block: &StoredBlock) -> Self {
        let mut pointer = Self::HOLE;
        let words = &mut pointer.words;
        for (pair, dva) in words.chunks_exact_mut(2).zip(block.dvas) {
            pair.copy_from_slice(&dva.0);
        }
        let sectors = |size: u64| (size >> SECTOR_SHIFT).wrapping_sub(1) & 0xffff;
        words[PROP] = sectors(block.logical_size)
            | sectors(block.physical_size) << 16
            | u64::from(block.compression.number()) << 32
            | u64::from(block.checksum_function.number()) << 40
            | kind(block.object_type, block.level)
            | LITTLE;
        words[LOGICAL_BIRTH] = block.birth.get();
        words[CHECKSUM..].copy_from_slice(&block.checksum.0);
        pointer
    }

    /// A pointer that has the block in itself: `payload`, compressed by `compression`.
    ///
    /// `None` when the payload is empty or longer than [`BlockPointer::EMBEDDED_CAPACITY`].
    #[must_use]
    pub fn embedded(
        object_type: ObjectType,
        logical_size: u64,
        compression: CompressionFunction,
        payload: &[u8],
        birth: Txg,
    ) -> Option<Self> {
        if payload.is_empty() || payload.len() > Self::EMBEDDED_CAPACITY {
            return None;
        }
        let mut pointer = Self::HOLE;
        let words = &mut pointer.words;
        for (chunk, index) in payload.chunks(8).zip(EMBEDDED_WORDS) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            words[index] = u64::from_le_bytes(bytes);
        }
        words[PROP] = (logical_size.wrapping_sub(1) & 0x1ff_ffff)
            | (payload.len() as u64 - 1) << 25
            | u64::from(compression.number()) << 32
            | 1 << 39
            | kind(object_type, Level::DATA)
            | LITTLE;
        words[LOGICAL_BIRTH] = birth.get();
        Some(pointer)
    }

    /// What is left in the place of a block that became a hole in `birth` (feature `hole_birth`).
    #[must_use]
    pub const fn born_hole(
        object_type: ObjectType,
        level: Level,
        logical_size: u64,
        birth: Txg,
    ) -> Self {
        let mut words = [0; 16];
        words[PROP] =
            (logical_size >> SECTOR_SHIFT).wrapping_sub(1) & 0xffff | kind(object_type, level);
        words[LOGICAL_BIRTH] = birth.get();
        Self { words }
    }

    /// Sets the fill of a plain pointer that is not encrypted.
    #[must_use]
    pub const fn with_fill(mut self, fill: u64) -> Self {
        self.words[FILL] = fill;
        self
    }

    /// Marks the block as belonging to an encrypted objset.
    #[must_use]
    pub const fn with_crypt_bit(mut self) -> Self {
        self.words[PROP] |= CRYPT;
        self
    }

    /// Salt and IV of an encrypted block, in the place of the third address and of the high half
    /// of the fill, which has to be set.
    #[must_use]
    pub fn with_salt_and_iv(mut self, salt: [u8; 8], iv: [u8; 12]) -> Self {
        let order = ByteOrder::NATIVE;
        let [a, b, c, d, e, f, g, h, rest @ ..] = iv;
        self.words[SALT] = order.u64(salt);
        self.words[SALT + 1] = order.u64([a, b, c, d, e, f, g, h]);
        self.words[FILL] =
            self.words[FILL] & u64::from(u32::MAX) | u64::from(order.u32(rest)) << 32;
        self
    }

    /// The MAC of a block of an encrypted objset, in the place of the last words of the checksum.
    #[must_use]
    pub fn with_mac(mut self, mac: [u8; 16]) -> Self {
        let (halves, _) = mac.as_chunks::<8>();
        for (word, half) in self.words.iter_mut().skip(CHECKSUM + 2).zip(halves) {
            *word = ByteOrder::NATIVE.u64(*half);
        }
        self
    }

    /// Marks the block as in the dedup table of its checksum.
    #[must_use]
    pub const fn with_dedup(mut self) -> Self {
        self.words[PROP] |= DEDUP;
        self
    }

    /// Marks the block as in no dedup table.
    #[must_use]
    pub const fn without_dedup(mut self) -> Self {
        self.words[PROP] &= !DEDUP;
        self
    }

    /// Sets both births. A block that is in its pointer has no physical one: the word is payload.
    #[must_use]
    pub const fn with_births(mut self, logical: Txg, physical: Txg) -> Self {
        self.words[LOGICAL_BIRTH] = logical.get();
        if !self.is_embedded_layout() {
            let is_same = logical.get() == physical.get();
            self.words[PHYSICAL_BIRTH] = if is_same { 0 } else { physical.get() };
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_pointer::PointerKind;
    use crate::units::VdevId;

    #[test]
    fn a_stored_block_is_described_as_openzfs_does() {
        // The plain pointer of the specification's first example.
        let pointer = BlockPointer::stored(&StoredBlock {
            object_type: ObjectType::UINT64_OTHER,
            level: Level::DATA,
            logical_size: 4096,
            physical_size: 512,
            compression: CompressionFunction::Lz4,
            checksum_function: ChecksumFunction::Fletcher4,
            checksum: ChecksumValue([1, 2, 3, 4]),
            dvas: [Dva::new(VdevId(0), 0x15_7400, 512, false), Dva::default(), Dva::default()],
            birth: Txg(108),
        });
        let expected = [0x01, 0xaba, 0, 0, 0, 0, 0x801a_070f_0000_0007, 0, 0, 0, 108, 1];
        assert_eq!(pointer.with_fill(1).words()[..12], expected);
        pointer.validate().unwrap();
        assert_eq!(pointer.checksum(), ChecksumValue([1, 2, 3, 4]));
        let older = pointer.with_births(Txg(9), Txg(7));
        assert_eq!((older.logical_birth(), older.physical_birth()), (Txg(9), Txg(7)));
    }

    #[test]
    fn crypt_params_come_back() {
        use crate::block_pointer::Protection;
        use crate::encryption::BlockCryptParams;

        let bytes: [u8; 16] = std::array::from_fn(|at| at as u8 + 1);
        let params = BlockCryptParams { salt: [7; 8], iv: [9; 12], mac: bytes };
        let params = BlockCryptParams { iv: bytes[..12].try_into().unwrap(), ..params };
        let pointer = BlockPointer::stored(&StoredBlock {
            object_type: ObjectType::PLAIN_FILE_CONTENTS,
            level: Level::DATA,
            logical_size: 4096,
            physical_size: 4096,
            compression: CompressionFunction::Off,
            checksum_function: ChecksumFunction::Fletcher4,
            checksum: ChecksumValue([1, 2, 3, 4]),
            dvas: [Dva::new(VdevId(0), 0x15_7400, 512, false), Dva::default(), Dva::default()],
            birth: Txg(108),
        });
        let pointer = pointer.with_fill(1).with_crypt_bit();
        let pointer = pointer.with_salt_and_iv(params.salt, params.iv).with_mac(params.mac);
        assert_eq!((pointer.protection(), pointer.crypt_params()), (Protection::Encrypted, params));
        assert_eq!((pointer.fill(), pointer.dvas().count()), (1, 1));
        assert_eq!(pointer.words()[12..14], [1, 2]);
    }

    #[test]
    fn embedded_payloads_come_back() {
        for len in [1, 8, 19, 111, 112] {
            let payload: Vec<u8> = (1..=len).collect();
            let compression = CompressionFunction::Lz4;
            let pointer =
                BlockPointer::embedded(ObjectType::SA, 1024, compression, &payload, Txg(5));
            let pointer = pointer.unwrap();
            pointer.validate().unwrap();
            assert_eq!((pointer.kind(), pointer.logical_size()), (PointerKind::Embedded, 1024));
            let (stored, stored_len) = pointer.embedded_payload();
            assert_eq!(&stored[..stored_len], payload);
            assert_eq!((pointer.logical_birth(), pointer.fill()), (Txg(5), 1));
            for physical in [Txg(5), Txg(9)] {
                let shared = pointer.with_births(Txg(9), physical);
                assert_eq!(shared.embedded_payload(), pointer.embedded_payload());
                assert_eq!((shared.logical_birth(), shared.physical_birth()), (Txg(9), Txg(0)));
            }
        }
        let none = |payload: &[u8]| {
            BlockPointer::embedded(ObjectType::SA, 512, CompressionFunction::Lz4, payload, Txg(5))
        };
        assert!(none(&[]).is_none() && none(&[1; 113]).is_none());
    }

    #[test]
    fn born_holes_are_those_of_the_spec() {
        let hole =
            BlockPointer::born_hole(ObjectType::PLAIN_FILE_CONTENTS, Level::DATA, 4096, Txg(24));
        let bytes = hole.encode(ByteOrder::Little);
        assert_eq!(bytes[0x30..0x38], [7, 0, 0, 0, 0, 0, 0x13, 0]);
        assert_eq!(bytes[0x50..0x58], [0x18, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes.iter().filter(|byte| **byte != 0).count(), 3);
        assert!(hole.is_hole());
    }
}
