//! Checksums of blocks (spec 02, section 4).
//!
//! A checksum is 256 bits, four 64-bit words. [`checksum`] computes it over the stored bytes of a
//! block (compressed, padded, encrypted: exactly PSIZE bytes); [`verify`] compares with what a
//! block pointer says, also when two of its words are a MAC. Blocks that nothing with room for a
//! checksum points to (labels, gang headers, the intent log) carry theirs in a trailer:
//! [`verify_embedded`].

mod comparison;
mod digest;
mod edonr;
mod embedded;
pub mod fletcher;
mod salt;
mod skein;

pub use comparison::{ChecksumMismatch, fold};
pub use embedded::{EmbeddedVerifier, generate_embedded, verify_embedded};
pub use fletcher::{Fletcher2, Fletcher4, fletcher2, fletcher4};
pub use salt::Salt;

use comparison::{compare, compare_folded, shares_words_with_mac};
use digest::{sha256_words, words};
use rzfs_format::checksum::{ChecksumFunction, ChecksumValue};
use rzfs_format::{BlockPointer, ByteOrder};
use sha2::{Digest, Sha256, Sha512_256};

/// The checksum of `data`, a block in byte order `order`.
///
/// Functions that are embedded in a block give the hash that they are made of; `On` means
/// fletcher4; `Off`, `NoParity` and `Inherit` give zeros.
#[must_use]
pub fn checksum(
    function: ChecksumFunction,
    order: ByteOrder,
    data: &[u8],
    salt: &Salt,
) -> ChecksumValue {
    match function {
        ChecksumFunction::Inherit | ChecksumFunction::Off | ChecksumFunction::NoParity => {
            ChecksumValue::default()
        }
        ChecksumFunction::Fletcher2 | ChecksumFunction::Zilog => fletcher2(data, order),
        ChecksumFunction::On | ChecksumFunction::Fletcher4 | ChecksumFunction::Zilog2 => {
            fletcher4(data, order)
        }
        ChecksumFunction::Label | ChecksumFunction::GangHeader | ChecksumFunction::Sha256 => {
            sha256_words(Sha256::digest(data).as_ref())
        }
        ChecksumFunction::Sha512 => words(Sha512_256::digest(data).as_ref(), order),
        ChecksumFunction::Skein => words(&salt.skein(data), order),
        ChecksumFunction::EdonR => words(&salt.edonr(data), order),
        ChecksumFunction::Blake3 => words(&salt.blake3(data), order),
    }
}

/// Verifies the stored bytes of the block that `pointer` points to, PSIZE of them.
///
/// A block of the intent log is verified by its embedded checksum. The members of a gang are
/// assembled first: the leader's checksum is over the whole.
///
/// # Errors
/// [`ChecksumMismatch`]: these are not the bytes that were written. Blocks without a checksum
/// (off, noparity) always verify.
pub fn verify(pointer: &BlockPointer, data: &[u8], salt: &Salt) -> Result<(), ChecksumMismatch> {
    let function =
        pointer.checksum_function().unwrap_or(ChecksumFunction::Inherit /* never verifies */);
    let stored = pointer.checksum();
    let with_mac = shares_words_with_mac(pointer.protection());
    match function {
        ChecksumFunction::Off | ChecksumFunction::NoParity => return Ok(()),
        ChecksumFunction::Zilog | ChecksumFunction::Zilog2 => {
            let chain = stored.0;
            let verifier = if with_mac {
                EmbeddedVerifier::EncryptedZil(chain)
            } else {
                EmbeddedVerifier::Zil(chain)
            };
            return verify_embedded(function, data, verifier).map(drop);
        }
        ChecksumFunction::Inherit
        | ChecksumFunction::On
        | ChecksumFunction::Label
        | ChecksumFunction::GangHeader => return Err(ChecksumMismatch::Misplaced { function }),
        _ => {}
    }
    let computed = checksum(function, pointer.order(), data, salt);
    if with_mac {
        compare_folded(function, stored, computed)
    } else {
        compare(function, stored, computed)
    }
}

#[cfg(test)]
mod tests;
