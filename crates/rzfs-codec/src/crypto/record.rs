//! The portable record of a block pointer, what the MACs of its parents are made of
//! (spec 04, section 19.8).
//!
//! ```text
//! 0               8          24            32
//! | masked PROP, LE | MAC     | zeros       |     the last word from version 1 on
//! ```
//! PROP is masked because a raw send may change checksum, deduplication and, above level 0, byte
//! order and compression.

use super::{CryptoError, MAC_SIZE};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use rzfs_format::block_pointer::Protection;
use rzfs_format::object_type::ObjectType;
use rzfs_format::{BlockPointer, ByteOrder, FormatError};
use sha2::{Digest, Sha512};

/// The version of a dataset's MACs (`DSL_CRYPTO_VERSION`; spec 04, section 19.13).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CryptoVersion {
    /// From before the first release: the key object has no version. Read-only in OpenZFS.
    Zero,
    /// The current one.
    One,
}

impl CryptoVersion {
    /// The version with this number; a key object without one has version 0.
    ///
    /// # Errors
    /// There is no such version.
    pub fn from_number(number: u64) -> Result<Self, FormatError> {
        match number {
            0 => Ok(Self::Zero),
            1 => Ok(Self::One),
            _ => Err(FormatError::field("crypto key", "version", number)),
        }
    }

    /// The on-disk number.
    #[must_use]
    pub const fn number(self) -> u64 {
        match self {
            Self::Zero => 0,
            Self::One => 1,
        }
    }
}

const SIZE: usize = 32;
/// Size in version 0.
const OLD_SIZE: usize = 24;

/// The record of one pointer.
pub(super) struct PointerRecord {
    bytes: [u8; SIZE],
    length: usize,
}

impl PointerRecord {
    pub(super) fn new(version: CryptoVersion, pointer: &BlockPointer) -> Self {
        let mut bytes = [0; SIZE];
        bytes[..8].copy_from_slice(&masked_prop(version, pointer).to_le_bytes());
        let is_objset = pointer.object_type_number() == ObjectType::OBJSET.number();
        if !pointer.is_hole() && !is_objset {
            bytes[8..OLD_SIZE].copy_from_slice(&pointer.crypt_params().mac);
        }
        let length = match version {
            CryptoVersion::Zero => OLD_SIZE,
            CryptoVersion::One => SIZE,
        };
        Self { bytes, length }
    }

    /// Decodes the pointer at the start of `bytes` and makes its record.
    pub(super) fn decode(
        version: CryptoVersion,
        bytes: &[u8],
        order: ByteOrder,
    ) -> Result<Self, FormatError> {
        Ok(Self::new(version, &BlockPointer::decode(bytes, order)?))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// A field of the PROP word.
const fn field(first_bit: u32, bits: u32) -> u64 {
    ((1 << bits) - 1) << first_bit
}

fn masked_prop(version: CryptoVersion, pointer: &BlockPointer) -> u64 {
    const PSIZE: u64 = field(16, 16);
    const COMPRESSION: u64 = field(32, 7);
    const CHECKSUM: u64 = field(40, 8);
    const DEDUP: u64 = field(62, 1);
    const BYTE_ORDER: u64 = field(63, 1);

    let prop = pointer.words()[6];
    let mask = match version {
        CryptoVersion::Zero => DEDUP | CHECKSUM | PSIZE,
        CryptoVersion::One if pointer.is_hole() => u64::MAX,
        CryptoVersion::One if pointer.level().0 > 0 => {
            DEDUP | CHECKSUM | BYTE_ORDER | COMPRESSION | PSIZE
        }
        CryptoVersion::One => DEDUP | CHECKSUM,
    };
    prop & !mask
}

/// The MAC of an indirect block: a digest of the records of all its pointers. `block` is the
/// uncompressed block.
///
/// # Errors
/// [`FormatError`] when the block is not whole pointers.
pub fn indirect_mac(
    version: CryptoVersion,
    block: &[u8],
    order: ByteOrder,
) -> Result<[u8; MAC_SIZE], FormatError> {
    if !block.len().is_multiple_of(BlockPointer::SIZE) {
        return Err(FormatError::field("indirect block", "size", block.len() as u64));
    }
    let mut digest = Sha512::new();
    for pointer in block.chunks_exact(BlockPointer::SIZE) {
        digest.update(PointerRecord::decode(version, pointer, order)?.bytes());
    }
    let mut mac = [0; MAC_SIZE];
    mac.copy_from_slice(&digest.finalize()[..MAC_SIZE]);
    Ok(mac)
}

/// Verifies an indirect block of an encrypted objset against its pointer; no key is needed.
/// `block` is the uncompressed block.
///
/// # Errors
/// [`CryptoError::BadMac`], or [`CryptoError::Protection`] when the pointer is not one to an
/// indirect block of an encrypted objset.
pub fn verify_indirect(pointer: &BlockPointer, block: &[u8]) -> Result<(), CryptoError> {
    if pointer.protection() != Protection::IndirectMac {
        return Err(CryptoError::Protection { wanted: "an indirect block of an encrypted objset" });
    }
    let stored = pointer.crypt_params().mac;
    for version in [CryptoVersion::One, CryptoVersion::Zero] {
        let mac = indirect_mac(version, block, pointer.order())?;
        if verify_slices_are_equal(&mac, &stored).is_ok() {
            return Ok(());
        }
    }
    Err(CryptoError::BadMac { what: "indirect block" })
}
