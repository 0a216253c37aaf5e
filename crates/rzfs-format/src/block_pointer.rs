//! Block pointers and the device addresses in them (spec 02, sections 1 and 2).
//!
//! ```text
//! word   0 ..  5   three DVAs (encrypted: DVA 2 is salt and IV)
//! word   6         PROP: sizes, compression, E, checksum, type, level, X, D, B
//! word   7 ..  8   PROP2, pad
//! word   9         physical birth, 0 = same as logical
//! word  10         logical birth
//! word  11         fill (encrypted: the high half is IV)
//! word  12 .. 15   checksum (encrypted: words 14 and 15 are the MAC)
//! ```
//!
//! An embedded pointer keeps up to 112 bytes of data in words 0-5, 7-9 and 11-15 instead.

mod build;

pub use build::StoredBlock;

use crate::checksum::{ChecksumFunction, ChecksumValue};
use crate::compression::CompressionFunction;
use crate::encryption::BlockCryptParams;
use crate::endian::{ByteOrder, Fields};
use crate::object_type::ObjectType;
use crate::units::{MAX_BLOCK_SIZE, SECTOR_SHIFT, SECTOR_SIZE, Txg, VdevId};
use crate::{FormatError, Level};
use std::fmt;

/// A data virtual address: a place on a top-level vdev and the space taken there.
///
/// In memory it is the two words of the format; all accessors take them apart.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dva(pub [u64; 2]);

impl Dva {
    /// Largest byte offset that a DVA can address.
    pub const MAX_OFFSET: u64 = ((1 << 55) - 1) * SECTOR_SIZE;

    /// The address of `asize` bytes at byte `offset` of `vdev`; both are multiples of 512.
    #[must_use]
    pub const fn new(vdev: VdevId, offset: u64, asize: u64, gang: bool) -> Self {
        Self([
            (asize >> SECTOR_SHIFT) & 0xff_ffff | (vdev.0 as u64 & 0xff_ffff) << 32,
            (offset >> SECTOR_SHIFT) & !(1 << 63) | (gang as u64) << 63,
        ])
    }

    /// Allocated bytes, parity and padding included; 0 = this slot is unused.
    #[must_use]
    pub const fn asize(self) -> u64 {
        (self.0[0] & 0xff_ffff) << SECTOR_SHIFT
    }

    /// The top-level vdev.
    #[must_use]
    pub const fn vdev(self) -> VdevId {
        VdevId((self.0[0] >> 32 & 0xff_ffff) as u32)
    }

    /// Byte offset in the vdev's allocatable area. The field has 63 bits of sectors, more than
    /// bytes fit; what does not fit reads as `u64::MAX`, an offset that no vdev has.
    #[must_use]
    pub const fn offset(self) -> u64 {
        let sectors = self.0[1] & !(1 << 63);
        if sectors >> (63 - SECTOR_SHIFT) != 0 { u64::MAX } else { sectors << SECTOR_SHIFT }
    }

    /// Whether a gang header is at this address instead of data.
    #[must_use]
    pub const fn is_gang(self) -> bool {
        self.0[1] >> 63 != 0
    }

    /// Whether the slot counts as a copy.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.0[0] & 0xff_ffff != 0
    }

    /// Whether both words are zero.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0[0] == 0 && self.0[1] == 0
    }
}

impl fmt::Display for Dva {
    /// zdb's notation: `vdev:offset:asize`, vdev in decimal, the rest in hex.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:x}:{:x}", self.vdev(), self.offset(), self.asize())
    }
}

impl fmt::Debug for Dva {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dva({self})")
    }
}

/// What a block pointer points to (spec 02, section 2.6).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PointerKind {
    /// No data: reads as zeros.
    Hole,
    /// The data is in the pointer itself.
    Embedded,
    /// Data that a redacted send withheld.
    Redacted,
    /// Data at the DVAs.
    Plain,
    /// A gang header at the DVAs.
    Gang,
}

/// How a block is protected in an encrypted objset (spec 02, section 2.6).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Protection {
    /// Not part of an encrypted objset.
    None,
    /// Level 0 of an encrypted type: ciphertext with salt, IV and MAC in the pointer.
    Encrypted,
    /// Level 0 of another type: plaintext with a MAC in the pointer.
    Authenticated,
    /// The objset block: plaintext with two MACs inside.
    Objset,
    /// An indirect block: plaintext with a digest of its children's MACs in the pointer.
    IndirectMac,
}

impl Protection {
    /// How an encrypted objset protects its blocks of a type; `None` for an unknown type.
    #[must_use]
    pub fn in_encrypted_objset(object_type: Option<ObjectType>, level: Level) -> Self {
        match object_type {
            _ if level.0 > 0 => Self::IndirectMac,
            Some(ObjectType::OBJSET) => Self::Objset,
            Some(kind) if kind.is_encrypted() => Self::Encrypted,
            _ => Self::Authenticated,
        }
    }
}

/// A pointer to a block: where its copies are, how big it is, how to check and decode it.
///
/// In memory it is the sixteen words of the format in host order; all accessors take them apart.
/// Nothing about its fields is guaranteed before [`BlockPointer::validate`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct BlockPointer {
    words: [u64; 16],
}

/// Of an encrypted block; the first part of the IV follows.
const SALT: usize = 4;
const PROP: usize = 6;
const PHYSICAL_BIRTH: usize = 9;
const LOGICAL_BIRTH: usize = 10;
const FILL: usize = 11;
const CHECKSUM: usize = 12;
const EMBEDDED_WORDS: [usize; 14] = [0, 1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 14, 15];

impl BlockPointer {
    /// On-disk size in bytes.
    pub const SIZE: usize = 128;
    /// log2 of the on-disk size.
    pub const SHIFT: u32 = 7;
    /// Most bytes that an embedded pointer can hold.
    pub const EMBEDDED_CAPACITY: usize = 112;
    /// A hole that was never written.
    pub const HOLE: Self = Self { words: [0; 16] };

    /// A pointer of these words.
    #[must_use]
    pub const fn from_words(words: [u64; 16]) -> Self {
        Self { words }
    }

    /// The words.
    #[must_use]
    pub const fn words(&self) -> &[u64; 16] {
        &self.words
    }

    /// The words, to build a pointer.
    pub const fn words_mut(&mut self) -> &mut [u64; 16] {
        &mut self.words
    }

    /// Decodes the first 128 bytes of `bytes`. Every bit pattern is a pointer, valid or not.
    pub fn decode(bytes: &[u8], order: ByteOrder) -> Result<Self, FormatError> {
        let words = Fields::new("block pointer", bytes, order).u64s(0)?;
        Ok(Self { words })
    }

    /// The on-disk bytes.
    #[must_use]
    pub fn encode(&self, order: ByteOrder) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(self.words) {
            chunk.copy_from_slice(&order.bytes64(word));
        }
        bytes
    }

    const fn prop(&self, shift: u32, bits: u32) -> u64 {
        (self.words[PROP] >> shift) & ((1 << bits) - 1)
    }

    const fn is_embedded_layout(&self) -> bool {
        self.prop(39, 1) != 0
    }

    /// What the pointer points to.
    #[must_use]
    pub const fn kind(&self) -> PointerKind {
        if self.is_embedded_layout() {
            if self.prop(40, 8) == 2 { PointerKind::Redacted } else { PointerKind::Embedded }
        } else if self.words[0] == 0 && self.words[1] == 0 {
            PointerKind::Hole
        } else if self.dva_slot(0).is_gang() {
            PointerKind::Gang
        } else {
            PointerKind::Plain
        }
    }

    /// Whether it is a hole.
    #[must_use]
    pub const fn is_hole(&self) -> bool {
        matches!(self.kind(), PointerKind::Hole)
    }

    /// Whether the data is in the pointer itself.
    #[must_use]
    pub const fn is_embedded(&self) -> bool {
        matches!(self.kind(), PointerKind::Embedded)
    }

    /// Whether the DVAs address gang headers.
    #[must_use]
    pub const fn is_gang(&self) -> bool {
        matches!(self.kind(), PointerKind::Gang)
    }

    /// Whether the data was withheld by a redacted send.
    #[must_use]
    pub const fn is_redacted(&self) -> bool {
        matches!(self.kind(), PointerKind::Redacted)
    }

    const fn dva_slot(&self, index: usize) -> Dva {
        Dva([self.words[index * 2], self.words[index * 2 + 1]])
    }

    /// The addresses of the copies, best first; empty for holes and embedded data. The third slot
    /// of an encrypted pointer is not an address.
    pub fn dvas(&self) -> impl Iterator<Item = Dva> + Clone + '_ {
        let slots = match (self.is_embedded_layout(), self.protection()) {
            (true, _) => 0,
            (false, Protection::Encrypted) => 2,
            (false, _) => 3,
        };
        (0..slots).map(|index| self.dva_slot(index)).filter(|dva| dva.is_valid())
    }

    /// Bytes of the block once decompressed; 512 for a hole that was never written (ask the dnode
    /// instead), 0 for redacted data.
    #[must_use]
    pub const fn logical_size(&self) -> u64 {
        match self.kind() {
            PointerKind::Redacted => 0,
            PointerKind::Embedded => self.prop(0, 25) + 1,
            _ => (self.prop(0, 16) + 1) << SECTOR_SHIFT,
        }
    }

    /// Bytes of the block as stored; 0 for holes and embedded data.
    #[must_use]
    pub const fn physical_size(&self) -> u64 {
        if self.is_embedded_layout() || self.is_hole() {
            0
        } else {
            (self.prop(16, 16) + 1) << SECTOR_SHIFT
        }
    }

    /// Bytes of an embedded pointer's payload.
    #[must_use]
    pub const fn embedded_size(&self) -> usize {
        (self.prop(25, 7) + 1) as usize
    }

    /// The payload of an embedded pointer and its length, still compressed.
    #[must_use]
    pub fn embedded_payload(&self) -> ([u8; Self::EMBEDDED_CAPACITY], usize) {
        let mut payload = [0; Self::EMBEDDED_CAPACITY];
        for (chunk, index) in payload.chunks_exact_mut(8).zip(EMBEDDED_WORDS) {
            chunk.copy_from_slice(&self.words[index].to_le_bytes());
        }
        (payload, self.embedded_size().min(Self::EMBEDDED_CAPACITY))
    }

    /// Bytes allocated for all copies.
    #[must_use]
    pub fn allocated_size(&self) -> u64 {
        self.dvas().map(Dva::asize).sum()
    }

    /// The compression function.
    pub fn compression(&self) -> Result<CompressionFunction, FormatError> {
        CompressionFunction::from_number(self.prop(32, 7) as u8)
    }

    /// The checksum function; an embedded pointer's is off.
    pub fn checksum_function(&self) -> Result<ChecksumFunction, FormatError> {
        if self.is_embedded_layout() {
            return Ok(ChecksumFunction::Off);
        }
        ChecksumFunction::from_number(self.prop(40, 8) as u8)
    }

    /// The checksum words.
    #[must_use]
    pub const fn checksum(&self) -> ChecksumValue {
        let w = &self.words;
        ChecksumValue([w[CHECKSUM], w[CHECKSUM + 1], w[CHECKSUM + 2], w[CHECKSUM + 3]])
    }

    /// The type of the object that the block belongs to.
    pub fn object_type(&self) -> Result<ObjectType, FormatError> {
        ObjectType::from_number(self.prop(48, 8) as u8)
    }

    /// The type's number, valid or not.
    #[must_use]
    pub const fn object_type_number(&self) -> u8 {
        self.prop(48, 8) as u8
    }

    /// The level in the object's tree.
    #[must_use]
    pub const fn level(&self) -> Level {
        Level(self.prop(56, 5) as i8)
    }

    /// Whether the block is in the dedup table of its checksum function.
    #[must_use]
    pub const fn is_dedup(&self) -> bool {
        !self.is_embedded_layout() && self.prop(62, 1) != 0
    }

    /// Whether the block belongs to an encrypted objset.
    #[must_use]
    pub const fn has_crypt_bit(&self) -> bool {
        self.prop(61, 1) != 0
    }

    /// The byte order of the block's contents.
    #[must_use]
    pub const fn order(&self) -> ByteOrder {
        if self.prop(63, 1) != 0 { ByteOrder::Little } else { ByteOrder::Big }
    }

    /// The txg in which the block became part of its dataset.
    #[must_use]
    pub const fn logical_birth(&self) -> Txg {
        Txg(self.words[LOGICAL_BIRTH])
    }

    /// The txg in which the block was allocated and written; 0 for embedded data.
    #[must_use]
    pub const fn physical_birth(&self) -> Txg {
        if self.is_embedded_layout() {
            Txg(0)
        } else if self.words[PHYSICAL_BIRTH] != 0 {
            Txg(self.words[PHYSICAL_BIRTH])
        } else {
            Txg(self.words[LOGICAL_BIRTH])
        }
    }

    /// Whether the block was reallocated while its logical birth stayed (PROP2.R).
    #[must_use]
    pub const fn is_rewritten(&self) -> bool {
        !self.is_embedded_layout() && self.words[7] >> 63 != 0
    }

    /// The number of non-empty level-0 blocks (or dnodes) below and including this block.
    #[must_use]
    pub fn fill(&self) -> u64 {
        match self.kind() {
            PointerKind::Hole | PointerKind::Redacted => 0,
            PointerKind::Embedded => 1,
            _ if self.protection() == Protection::Encrypted => self.words[FILL] & 0xffff_ffff,
            _ => self.words[FILL],
        }
    }

    /// How the block is protected when its objset is encrypted.
    #[must_use]
    pub fn protection(&self) -> Protection {
        if !self.has_crypt_bit() || self.is_embedded_layout() {
            return Protection::None;
        }
        Protection::in_encrypted_objset(self.object_type().ok(), self.level())
    }

    /// Salt, IV and MAC as byte strings (spec 02, section 2.9).
    ///
    /// The words were decoded in the order of the containing block; the strings are the memory
    /// of a host of the *block's* order, so they come out of the words in that order.
    #[must_use]
    pub fn crypt_params(&self) -> BlockCryptParams {
        let order = self.order();
        let mut params =
            BlockCryptParams { salt: order.bytes64(self.words[4]), ..Default::default() };
        params.iv[..8].copy_from_slice(&order.bytes64(self.words[5]));
        params.iv[8..].copy_from_slice(&order.bytes32((self.words[FILL] >> 32) as u32));
        params.mac[..8].copy_from_slice(&order.bytes64(self.words[14]));
        params.mac[8..].copy_from_slice(&order.bytes64(self.words[15]));
        params
    }

    /// Whether both pointers name the same block: births and all three address slots are equal.
    #[must_use]
    pub fn is_same_block(&self, other: &Self) -> bool {
        self.words[..6] == other.words[..6]
            && self.logical_birth() == other.logical_birth()
            && self.physical_birth() == other.physical_birth()
    }

    /// Checks everything about the pointer that needs no knowledge of the pool
    /// (spec 02, section 2.12, checks 1 to 8 and 12).
    pub fn validate(&self) -> Result<(), FormatError> {
        const WHAT: &str = "block pointer";
        self.object_type()?;
        let compression = self.compression()?;
        match self.kind() {
            PointerKind::Hole => return Ok(()),
            PointerKind::Redacted => return Ok(()),
            PointerKind::Embedded => return self.validate_embedded(compression),
            PointerKind::Plain | PointerKind::Gang => {}
        }
        if !self.dva_slot(0).is_valid() {
            return Err(FormatError::invalid(WHAT, "the first address has no size"));
        }
        if matches!(
            compression,
            CompressionFunction::Inherit | CompressionFunction::On | CompressionFunction::Empty
        ) {
            return Err(FormatError::field(WHAT, "compression function", compression.number()));
        }
        let checksum = self.checksum_function()?;
        if matches!(checksum, ChecksumFunction::Inherit | ChecksumFunction::On) {
            return Err(FormatError::field(WHAT, "checksum function", checksum.number()));
        }
        let (lsize, psize) = (self.logical_size(), self.physical_size());
        if lsize > MAX_BLOCK_SIZE {
            return Err(FormatError::field(WHAT, "logical size", lsize));
        }
        if psize > lsize {
            return Err(FormatError::field(WHAT, "physical size", psize));
        }
        let gang = self.is_gang();
        if self.dvas().any(|dva| dva.is_gang() != gang) {
            return Err(FormatError::invalid(WHAT, "only some addresses are gang headers"));
        }
        Ok(())
    }

    fn validate_embedded(&self, compression: CompressionFunction) -> Result<(), FormatError> {
        const WHAT: &str = "embedded block pointer";
        let etype = self.prop(40, 8);
        if etype != 0 {
            return Err(FormatError::field(WHAT, "embedded type", etype));
        }
        let size = self.embedded_size();
        if size > Self::EMBEDDED_CAPACITY {
            return Err(FormatError::field(WHAT, "payload size", size as u64));
        }
        if self.logical_size() > MAX_BLOCK_SIZE {
            return Err(FormatError::field(WHAT, "logical size", self.logical_size()));
        }
        if compression == CompressionFunction::Off && size as u64 != self.logical_size() {
            return Err(FormatError::invalid(WHAT, "uncompressed payload of another size"));
        }
        if self.level() != Level::DATA {
            return Err(FormatError::invalid(WHAT, "level is not 0"));
        }
        Ok(())
    }
}

impl fmt::Debug for BlockPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockPointer({:?}", self.kind())?;
        for dva in self.dvas() {
            write!(f, " {dva}")?;
        }
        write!(
            f,
            " L{} type {} {:x}L/{:x}P F={} B={}/{})",
            self.level(),
            self.object_type_number(),
            self.logical_size(),
            self.physical_size(),
            self.fill(),
            self.logical_birth(),
            self.physical_birth()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(lines: &[(usize, &str)]) -> BlockPointer {
        let mut bytes = [0; 128];
        for (offset, hex) in lines {
            let hex: Vec<u8> = hex.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
            for (index, pair) in hex.chunks(2).enumerate() {
                bytes[offset + index] =
                    u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
            }
        }
        BlockPointer::decode(&bytes, ByteOrder::Little).unwrap()
    }

    #[test]
    fn plain_pointer_of_the_spec_decodes() {
        let bp = pointer(&[
            (0x00, "0100000000000000 ba0a000000000000"),
            (0x30, "070000000f071a80 0000000000000000"),
            (0x50, "6c00000000000000 0100000000000000"),
            (0x60, "3ebe28702d000000 b4108f14c40d0000 a12b7b407e780200 fe43a58034ee5200"),
        ]);
        bp.validate().unwrap();
        assert_eq!(bp.kind(), PointerKind::Plain);
        assert_eq!(bp.dvas().map(|d| d.to_string()).collect::<Vec<_>>(), ["0:157400:200"]);
        assert_eq!((bp.logical_size(), bp.physical_size()), (4096, 512));
        assert_eq!(bp.compression(), Ok(CompressionFunction::Lz4));
        assert_eq!(bp.checksum_function(), Ok(ChecksumFunction::Fletcher4));
        assert_eq!(bp.object_type(), Ok(ObjectType::UINT64_OTHER));
        assert_eq!((bp.logical_birth(), bp.physical_birth()), (Txg(108), Txg(108)));
        assert_eq!(bp.order(), ByteOrder::Little);
        assert_eq!(
            bp.checksum().to_string(),
            "0000002d7028be3e:00000dc4148f10b4:0002787e407b2ba1:0052ee3480a543fe"
        );
    }

    #[test]
    fn embedded_pointer_of_the_spec_decodes() {
        let bp = pointer(&[
            (0x00, "0000000f4f616263 640400ffe5506461 6263640000000000"),
            (0x30, "ff0100248f001a80"),
            (0x50, "4b00000000000000"),
        ]);
        bp.validate().unwrap();
        assert_eq!(bp.kind(), PointerKind::Embedded);
        assert_eq!((bp.logical_size(), bp.embedded_size()), (512, 19));
        let (payload, len) = bp.embedded_payload();
        assert_eq!(&payload[..8], &[0, 0, 0, 0x0f, 0x4f, b'a', b'b', b'c']);
        assert_eq!(len, 19);
        assert_eq!(bp.fill(), 1);
        assert_eq!(bp.dvas().count(), 0);
    }

    #[test]
    fn encrypted_pointer_of_the_spec_decodes() {
        let bp = pointer(&[
            (0x00, "0800000000000000 a006000000000000"),
            (0x20, "f1a918c259fb011a 61afd68a602a63ce"),
            (0x30, "0f0007000f071aa0"),
            (0x50, "1b00000000000000 01000000e32268cb"),
            (0x60, "89d3ea3f41236d05 d01c113e36724b87 dc39520bdfc4af7f 157ea1bd204f0118"),
        ]);
        bp.validate().unwrap();
        assert_eq!(bp.protection(), Protection::Encrypted);
        assert_eq!(bp.dvas().map(|d| d.to_string()).collect::<Vec<_>>(), ["0:d4000:1000"]);
        assert_eq!(bp.fill(), 1);
        let params = bp.crypt_params();
        assert_eq!(params.salt, [0xf1, 0xa9, 0x18, 0xc2, 0x59, 0xfb, 0x01, 0x1a]);
        assert_eq!(params.iv[8..], [0xe3, 0x22, 0x68, 0xcb]);
        assert_eq!(params.mac[..4], [0xdc, 0x39, 0x52, 0x0b]);
    }

    #[test]
    fn holes_are_holes_with_and_without_birth() {
        assert!(BlockPointer::HOLE.is_hole());
        let born = pointer(&[(0x30, "0700000000001a00"), (0x50, "6f00000000000000")]);
        assert!(born.is_hole());
        born.validate().unwrap();
        assert_eq!((born.logical_birth(), born.fill()), (Txg(111), 0));
    }

    #[test]
    fn dva_words_round_trip() {
        let dva = Dva::new(VdevId(5), 0x3f_1000, 0x2000, true);
        assert_eq!((dva.vdev(), dva.offset(), dva.asize()), (VdevId(5), 0x3f_1000, 0x2000));
        assert!(dva.is_gang() && dva.is_valid());
        assert_eq!(Dva([1, u64::MAX >> 1]).offset(), u64::MAX);
    }

    #[test]
    fn gang_leader_of_the_spec_decodes() {
        let mut bp = BlockPointer::HOLE;
        bp.words_mut()[..4].copy_from_slice(&[
            0x104,
            0x8000_0000_0000_1f88,
            4,
            0x8000_0000_0000_8cd3,
        ]);
        bp.words_mut()[6] = 0x801a_0702_00ff_00ff;
        bp.validate().unwrap();
        assert_eq!(bp.kind(), PointerKind::Gang);
        assert_eq!(bp.allocated_size(), 0x108 * 512);
        bp.words_mut()[3] &= u64::MAX >> 1;
        assert!(bp.validate().is_err(), "mixed gang bits");
    }
}
