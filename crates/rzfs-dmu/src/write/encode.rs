//! Encoding a block's contents into its stored form (spec 02, sections 5.3 and 6).

use super::error::EncodeError;
use super::policy::BlockPolicy;
use super::sealing::{Seal, Sealing};
use crate::contents::Contents;
use bytes::Bytes;
use rzfs_codec::checksum::{Salt, checksum};
use rzfs_codec::compress::compress;
use rzfs_format::checksum::{ChecksumFunction, ChecksumValue};
use rzfs_format::compression::CompressionFunction;
use rzfs_format::object_type::ObjectType;
use rzfs_format::{BlockPointer, ByteOrder, Level, Txg};
use std::cell::RefCell;
use std::io;

/// What encoding needs to know about the pool.
#[derive(Clone, Debug)]
pub struct EncodeOptions {
    /// The salt of keyed checksums.
    pub salt: Salt,
    /// Data bytes of the smallest allocation on any normal top-level vdev.
    pub min_allocation: u64,
    /// Common unit of all such smallest allocations.
    pub allocation_unit: u64,
    /// Whether small blocks are embedded in their pointers (feature `embedded_data`).
    pub embedded_data: bool,
}

/// Whether blocks are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effort {
    /// As the policy says.
    Compress,
    /// Not at all: in late sync passes, when block sizes must not change any more.
    Store,
}

/// The result of encoding a block.
#[derive(Debug)]
pub(super) enum Encoded {
    /// It is all zeros.
    Hole,
    /// It is embedded in its pointer.
    Embedded(BlockPointer),
    /// It needs space.
    Stored(Stored),
}

/// The stored form of a block.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) data: Bytes,
    pub(super) compression: CompressionFunction,
    pub(super) checksum: ChecksumValue,
    /// The encryption parameters in its pointer.
    pub(super) seal: Seal,
}

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Encodes `data`, whose length is a multiple of 512.
pub(super) fn encode(
    options: &EncodeOptions,
    policy: &BlockPolicy,
    sealing: Sealing<'_>,
    effort: Effort,
    birth: Txg,
    data: Bytes,
) -> Result<Encoded, EncodeError> {
    let function = policy.compression;
    // Tables do not contain zeros.
    if policy.dedup.is_some() && function == CompressionFunction::Off && is_zeros(&data) {
        return Ok(Encoded::Hole);
    }
    let plain = CompressionFunction::Off;
    if function != plain && effort == Effort::Compress {
        if is_zeros(&data) {
            return Ok(Encoded::Hole);
        }
        if function == CompressionFunction::Empty {
            return Ok(Encoded::Stored(store(options, policy, sealing, (&data, plain, None))?));
        }
        let has_own_fill = matches!(policy.object_type, ObjectType::DNODE | ObjectType::OBJSET);
        let may_embed = options.embedded_data
            && sealing.is_plain()
            && policy.level == Level::DATA
            && !has_own_fill;
        let embedded = may_embed.then_some(birth);
        let compressed = SCRATCH.with_borrow_mut(|scratch| {
            let room = compressed_limit(options, function, data.len() as u64) as usize;
            scratch.resize(room, 0);
            let len = compress(function, policy.zstd_level, &data, scratch)?;
            Some(compressed_form(options, policy, embedded, &data, scratch.get(..len)?))
        });
        match compressed {
            Some(Form::Embedded(pointer)) => return Ok(Encoded::Embedded(pointer)),
            Some(Form::Padded(buffer)) => {
                let form = (&data, function, Some(buffer?));
                return Ok(Encoded::Stored(store(options, policy, sealing, form)?));
            }
            Some(Form::TooBig) | None => {}
        }
    }
    Ok(Encoded::Stored(store(options, policy, sealing, (&data, plain, None))?))
}

/// How a compressed block is stored.
enum Form {
    Embedded(BlockPointer),
    Padded(io::Result<Contents>),
    TooBig,
}

/// The form of compressed contents, which may be embedded in a pointer born in `embedded`.
fn compressed_form(
    options: &EncodeOptions,
    policy: &BlockPolicy,
    embedded: Option<Txg>,
    data: &Bytes,
    compressed: &[u8],
) -> Form {
    let size = data.len() as u64;
    if let Some(birth) = embedded {
        let (kind, function) = (policy.object_type, policy.compression);
        let pointer = BlockPointer::embedded(kind, size, function, compressed, birth);
        if let Some(pointer) = pointer {
            return Form::Embedded(pointer);
        }
    }
    let padded = rounded_allocation(options, compressed.len() as u64);
    if padded >= size {
        return Form::TooBig;
    }
    Form::Padded(Contents::padded(compressed, padded as usize))
}

/// Maximum useful size of compressed data for a block of `size` bytes: it must save an eighth, and
/// whole allocation units.
fn compressed_limit(options: &EncodeOptions, function: CompressionFunction, size: u64) -> u64 {
    let limit = size - size / 8;
    if function == CompressionFunction::Zle {
        return limit;
    }
    let limit = limit - limit % options.allocation_unit;
    if limit < options.min_allocation { BlockPointer::EMBEDDED_CAPACITY as u64 } else { limit }
}

/// Stored size of `size` bytes of compressed data.
fn rounded_allocation(options: &EncodeOptions, size: u64) -> u64 {
    if size > options.min_allocation {
        size.next_multiple_of(options.allocation_unit)
    } else {
        options.min_allocation
    }
}

/// The stored form of `contents`, compressed with `function` if there is a buffer.
fn store(
    options: &EncodeOptions,
    policy: &BlockPolicy,
    sealing: Sealing<'_>,
    (contents, compression, compressed): (&Bytes, CompressionFunction, Option<Contents>),
) -> Result<Stored, EncodeError> {
    let (data, seal) = sealing.seal(policy, contents, compressed)?;
    let checksum = checksum(policy.checksum, ByteOrder::NATIVE, &data, &options.salt);
    Ok(Stored { data, compression, checksum, seal })
}

/// The checksum of a gang's member.
pub(super) fn member_checksum(
    options: &EncodeOptions,
    function: ChecksumFunction,
    data: &[u8],
) -> ChecksumValue {
    checksum(function, ByteOrder::NATIVE, data, &options.salt)
}

/// Whether all bytes are zero.
pub(crate) fn is_zeros(data: &[u8]) -> bool {
    const STRIDE: usize = 64;
    let chunks = data.chunks_exact(STRIDE);
    let rest = chunks.remainder();
    let any = |bytes: &[u8]| bytes.iter().fold(0, |bits, byte| bits | byte);
    chunks.into_iter().all(|chunk| any(chunk) == 0) && any(rest) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::policy::{ObjsetPolicy, Part};

    fn options(ashift: u32) -> EncodeOptions {
        EncodeOptions {
            salt: Salt::new([1; 32]),
            min_allocation: 1 << ashift,
            allocation_unit: 1 << ashift,
            embedded_data: true,
        }
    }

    fn encoded(ashift: u32, compression: CompressionFunction, data: Vec<u8>) -> Encoded {
        let mos = ObjsetPolicy::mos(CompressionFunction::Lz4);
        let policy = ObjsetPolicy { compression, ..mos };
        let policy = policy.block(ObjectType::PLAIN_FILE_CONTENTS, Level::DATA, Part::Contents);
        let (options, data) = (options(ashift), data.into());
        encode(&options, &policy, Sealing::Plain, Effort::Compress, Txg(4), data).unwrap()
    }

    #[test]
    fn limits_are_those_of_the_spec() {
        let limit =
            |ashift, size| compressed_limit(&options(ashift), CompressionFunction::Lz4, size);
        assert_eq!(
            [512, 1024, 4096, 131_072].map(|size| limit(9, size)),
            [112, 512, 3584, 114_688]
        );
        assert_eq!(
            [4096, 8192, 16384, 131_072].map(|size| limit(12, size)),
            [112, 4096, 12288, 114_688]
        );
    }

    #[test]
    fn zeros_are_a_hole_only_with_compression() {
        assert!(matches!(encoded(12, CompressionFunction::Lz4, vec![0; 4096]), Encoded::Hole));
        let Encoded::Stored(stored) = encoded(12, CompressionFunction::Off, vec![0; 4096]) else {
            panic!("not stored")
        };
        assert_eq!(stored.data.len(), 4096);
        assert!(!is_zeros(&[&[0; 100][..], &[1]].concat()) && is_zeros(&[0; 101]));
    }

    #[test]
    fn blocks_are_embedded_compressed_or_stored() {
        let small = encoded(12, CompressionFunction::Lz4, [7; 512].to_vec());
        assert!(matches!(small, Encoded::Embedded(_)));
        let text: Vec<u8> = (0..16384_u32).map(|n| (n / 64 * 7) as u8).collect();
        let Encoded::Stored(stored) = encoded(12, CompressionFunction::Lz4, text) else {
            panic!("not stored")
        };
        assert_eq!((stored.compression, stored.data.len()), (CompressionFunction::Lz4, 4096));
        let mut state = 1_u32;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .take(8192)
        .collect();
        let Encoded::Stored(stored) = encoded(12, CompressionFunction::Lz4, noise.clone()) else {
            panic!("not stored")
        };
        assert_eq!((stored.compression, &stored.data[..]), (CompressionFunction::Off, &noise[..]));
    }
}
