//! Checksums in a trailer of the block itself (spec 02, section 4.11).
//!
//! ```text
//!            0       8                    40
//! trailer    | magic | four checksum words |
//!
//! label, gang header, zilog    the last 40 bytes of the block; the whole block is covered
//! zilog2                       at 144, inside of the chain header; covered is what the chain
//!                              header says is used (word at 136), rounded up to 4096
//! ```
//!
//! While the hash is computed, the checksum words hold a verifier that tells where the block
//! belongs, so that a valid block at a wrong place does not verify.

use super::comparison::{ChecksumMismatch, compare, compare_folded, fold, shares_words_with_mac};
use super::digest::sha256_words;
use super::fletcher::{Fletcher2, Fletcher4};
use rzfs_format::block_pointer::Protection;
use rzfs_format::checksum::{ChecksumFunction, ChecksumValue};
use rzfs_format::{ByteOrder, Dva, Txg};
use sha2::{Digest, Sha256};

const MAGIC: u64 = 0x0210_da7a_b10c_7a11;
const TRAILER: usize = 40;
const WORDS: usize = 32;

/// Offset of the used length in the chain header of a log block.
const CHAIN_USED: usize = 136;
/// Offset of the trailer in the chain header.
const CHAIN_TRAILER: usize = 144;
/// Bytes of the chain header.
const CHAIN_HEADER: usize = 184;
/// What the used length is rounded up to.
const CHAIN_UNIT: u64 = 4096;

/// What the checksum words hold while a block is hashed: where the block belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EmbeddedVerifier {
    /// A part of a label.
    Label {
        /// Byte offset of this I/O on the leaf device.
        offset: u64,
    },
    /// A gang header.
    Gang {
        /// Top-level vdev of the pointer's first DVA.
        vdev: u64,
        /// Byte offset of the pointer's first DVA.
        offset: u64,
        /// Physical birth of the pointer.
        birth: u64,
    },
    /// The header of a gang whose pointer shares its checksum words with a MAC: words 0 and 1 are the
    /// folded checksum, the others nothing.
    EncryptedGang {
        /// As for [`EmbeddedVerifier::Gang`].
        vdev: u64,
        /// As for [`EmbeddedVerifier::Gang`].
        offset: u64,
        /// As for [`EmbeddedVerifier::Gang`].
        birth: u64,
    },
    /// A block of the intent log: the checksum words of the pointer to it (the chain's identity
    /// and the block's sequence number).
    Zil([u64; 4]),
    /// The same in an encrypted dataset: words 2 and 3 of the trailer are the MAC, words 0 and 1
    /// the folded checksum.
    EncryptedZil([u64; 4]),
}

impl EmbeddedVerifier {
    /// Of the header at the first address of a pointer that is protected in this way.
    #[must_use]
    pub const fn of_gang(first: Dva, birth: Txg, protection: Protection) -> Self {
        let (vdev, offset, birth) = (first.vdev().get() as u64, first.offset(), birth.get());
        match shares_words_with_mac(protection) {
            true => Self::EncryptedGang { vdev, offset, birth },
            false => Self::Gang { vdev, offset, birth },
        }
    }

    const fn words(self) -> [u64; 4] {
        match self {
            Self::Label { offset } => [offset, 0, 0, 0],
            Self::Gang { vdev, offset, birth } | Self::EncryptedGang { vdev, offset, birth } => {
                [vdev, offset, birth, 0]
            }
            Self::Zil(chain) | Self::EncryptedZil(chain) => chain,
        }
    }

    /// Whether words 2 and 3 of the trailer are no part of the checksum.
    const fn is_folded(self) -> bool {
        matches!(self, Self::EncryptedZil(_) | Self::EncryptedGang { .. })
    }
}

/// A block taken apart around the words of its trailer.
struct Parts<'a> {
    before: &'a [u8],
    words: [u8; WORDS],
    after: &'a [u8],
    order: ByteOrder,
}

impl<'a> Parts<'a> {
    fn of(function: ChecksumFunction, block: &'a [u8]) -> Result<Self, ChecksumMismatch> {
        let extent = |used: usize| ChecksumMismatch::Extent {
            function,
            used: used as u64,
            size: block.len(),
        };
        let trailer = match function {
            ChecksumFunction::Label | ChecksumFunction::GangHeader | ChecksumFunction::Zilog => {
                block.len().checked_sub(TRAILER).ok_or(extent(TRAILER))?
            }
            ChecksumFunction::Zilog2 => CHAIN_TRAILER,
            _ => return Err(ChecksumMismatch::Misplaced { function }),
        };
        let word = |offset: usize| {
            let bytes = block.get(offset..).and_then(|rest| rest.first_chunk::<8>());
            bytes.copied().ok_or(extent(offset + 8))
        };
        let magic = word(trailer)?;
        let order = if u64::from_le_bytes(magic) == MAGIC {
            ByteOrder::Little
        } else if u64::from_be_bytes(magic) == MAGIC {
            ByteOrder::Big
        } else {
            return Err(ChecksumMismatch::NoTrailer { function });
        };
        let covered = match function {
            ChecksumFunction::Zilog2 => covered_by_chain(block, order.u64(word(CHAIN_USED)?))?,
            _ => block,
        };
        let (before, rest) =
            covered.split_at_checked(trailer + 8).ok_or(extent(trailer + TRAILER))?;
        let (words, after) = rest.split_first_chunk().ok_or(extent(trailer + TRAILER))?;
        Ok(Self { before, words: *words, after, order })
    }

    fn stored(&self) -> ChecksumValue {
        super::words(&self.words, self.order)
    }

    /// The hash with `verifier` in place of the stored words.
    fn hash(&self, function: ChecksumFunction, verifier: [u64; 4]) -> ChecksumValue {
        let mut words = [0; WORDS];
        for (bytes, word) in words.as_chunks_mut::<8>().0.iter_mut().zip(verifier) {
            *bytes = self.order.bytes64(word);
        }
        let parts = [self.before, &words, self.after];
        match function {
            ChecksumFunction::Zilog => {
                let mut sums = Fletcher2::new(self.order);
                parts.iter().for_each(|part| sums.update(part));
                sums.value()
            }
            ChecksumFunction::Zilog2 => {
                let mut sums = Fletcher4::new(self.order);
                parts.iter().for_each(|part| sums.update(part));
                sums.value()
            }
            _ => {
                let mut hash = Sha256::new();
                parts.iter().for_each(|part| hash.update(part));
                sha256_words(hash.finalize().as_ref())
            }
        }
    }
}

/// The bytes of a log block that its checksum covers, given its used length.
fn covered_by_chain(block: &[u8], used: u64) -> Result<&[u8], ChecksumMismatch> {
    let error =
        ChecksumMismatch::Extent { function: ChecksumFunction::Zilog2, used, size: block.len() };
    if used < CHAIN_HEADER as u64 {
        return Err(error);
    }
    used.checked_next_multiple_of(CHAIN_UNIT)
        .and_then(|covered| usize::try_from(covered).ok())
        .and_then(|covered| block.get(..covered))
        .ok_or(error)
}

/// Verifies a block with an embedded checksum, and tells its byte order.
///
/// # Errors
/// [`ChecksumMismatch`] when the block is not what was written at this place.
pub fn verify_embedded(
    function: ChecksumFunction,
    block: &[u8],
    verifier: EmbeddedVerifier,
) -> Result<ByteOrder, ChecksumMismatch> {
    let parts = Parts::of(function, block)?;
    let computed = parts.hash(function, verifier.words());
    match verifier.is_folded() {
        true => compare_folded(function, parts.stored(), computed)?,
        false => compare(function, parts.stored(), computed)?,
    }
    Ok(parts.order)
}

/// Writes magic and checksum into the trailer of `block`, all of whose other bytes are final.
///
/// With [`EmbeddedVerifier::EncryptedZil`] the MAC in words 2 and 3 is left in place, and so is what
/// is there with [`EmbeddedVerifier::EncryptedGang`].
///
/// # Errors
/// [`ChecksumMismatch::Extent`] when the block has no room for the trailer or for what its chain
/// header says is used, [`ChecksumMismatch::Misplaced`] when the function is not an embedded one.
pub fn generate_embedded(
    function: ChecksumFunction,
    block: &mut [u8],
    verifier: EmbeddedVerifier,
    order: ByteOrder,
) -> Result<(), ChecksumMismatch> {
    let size = block.len();
    let trailer = match function {
        ChecksumFunction::Zilog2 => CHAIN_TRAILER,
        _ => size.saturating_sub(TRAILER),
    };
    let end = trailer + TRAILER;
    let extent = ChecksumMismatch::Extent { function, used: end as u64, size };
    let field = block.get_mut(trailer..end).ok_or(extent)?;
    field[..8].copy_from_slice(&order.bytes64(MAGIC));
    let computed = Parts::of(function, block)?.hash(function, verifier.words());
    let folded = fold(function, computed);
    let words: &[u64] = if verifier.is_folded() { &folded } else { &computed.0 };
    for (bytes, word) in block[trailer + 8..end].as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *bytes = order.bytes64(*word);
    }
    Ok(())
}
