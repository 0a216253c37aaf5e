//! How a dataset's blocks are written, from its properties (spec 02, sections 4.13 and 5.4).

use crate::dataset::property::DatasetProperty;
use crate::dataset::{Dataset, DatasetError};
use rzfs_codec::compress::ZstdLevel;
use rzfs_dmu::write::{DedupPolicy, DuplicateTest, ObjsetPolicy, RedundantMetadata};
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::compression::CompressionFunction;

/// Bits of the property `compression` for the function; the level is above.
const COMPRESSION_BITS: u32 = 7;

/// The compression of metadata, and of data when the property is just `on`.
pub(crate) const fn default_compression(has_lz4: bool) -> CompressionFunction {
    if has_lz4 { CompressionFunction::Lz4 } else { CompressionFunction::Lzjb }
}

/// The policy given by a dataset's properties.
pub(crate) fn of_dataset(dataset: &Dataset, has_lz4: bool) -> Result<ObjsetPolicy, DatasetError> {
    of_properties(has_lz4, |property| {
        dataset.stored_number(property).map(Option::unwrap_or_default)
    })
}

/// The policy given by stored numbers; invalid ones count as the default.
pub(crate) fn of_properties<E>(
    has_lz4: bool,
    mut number: impl FnMut(DatasetProperty) -> Result<u64, E>,
) -> Result<ObjsetPolicy, E> {
    let default = default_compression(has_lz4);
    let (compression, zstd_level) = compression(number(DatasetProperty::Compression)?, default);
    Ok(ObjsetPolicy {
        checksum: checksum(number(DatasetProperty::Checksum)?),
        compression,
        zstd_level,
        metadata_compression: default,
        copies: number(DatasetProperty::Copies)?.clamp(1, 3) as u8,
        redundant_metadata: match number(DatasetProperty::RedundantMetadata)? {
            1 => RedundantMetadata::Most,
            2 => RedundantMetadata::Some,
            3 => RedundantMetadata::None,
            _ => RedundantMetadata::All,
        },
        special_small_blocks: number(DatasetProperty::SpecialSmallBlocks)?,
        dedup: dedup(number(DatasetProperty::Dedup)?),
        // The object set knows.
        is_encrypted: false,
    })
}

/// The checksum functions of dedup tables, and whether they need verification.
fn dedup(stored: u64) -> Option<DedupPolicy> {
    use ChecksumFunction::{Blake3, EdonR, On, Sha256, Sha512, Skein};
    const VERIFY: u64 = 1 << 8;
    let function = ChecksumFunction::from_number((stored & (VERIFY - 1)) as u8).ok()?;
    let checksum = match function {
        On => Sha256,
        Sha256 | Sha512 | Skein | EdonR | Blake3 => function,
        _ => return None,
    };
    let sameness = match stored & VERIFY != 0 || checksum == EdonR {
        true => DuplicateTest::Contents,
        false => DuplicateTest::Checksum,
    };
    Some(DedupPolicy { checksum, sameness })
}

fn checksum(stored: u64) -> ChecksumFunction {
    use ChecksumFunction::{Blake3, EdonR, Fletcher2, Fletcher4, Off, Sha256, Sha512, Skein};
    let function = u8::try_from(stored).ok().and_then(|n| ChecksumFunction::from_number(n).ok());
    match function {
        Some(
            function @ (Off | Fletcher2 | Fletcher4 | Sha256 | Sha512 | Skein | EdonR | Blake3),
        ) => function,
        Some(ChecksumFunction::NoParity) => Off,
        _ => Fletcher4,
    }
}

fn compression(stored: u64, default: CompressionFunction) -> (CompressionFunction, ZstdLevel) {
    let number = stored & ((1 << COMPRESSION_BITS) - 1);
    let level = u8::try_from(stored >> COMPRESSION_BITS).ok().and_then(ZstdLevel::from_number);
    let function = match CompressionFunction::from_number(number as u8) {
        Ok(CompressionFunction::Inherit | CompressionFunction::On) | Err(_) => default,
        Ok(CompressionFunction::Empty) => CompressionFunction::Off,
        Ok(function) => function,
    };
    (function, level.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_numbers_are_functions() {
        let lz4 = CompressionFunction::Lz4;
        assert_eq!(compression(1, lz4).0, lz4);
        assert_eq!(compression(2, lz4).0, CompressionFunction::Off);
        let (function, level) = compression(16 | 19 << 7, lz4);
        assert_eq!((function, level.number()), (CompressionFunction::Zstd, 19));
        assert_eq!(compression(16, lz4).1, ZstdLevel::DEFAULT);
        assert_eq!(checksum(1), ChecksumFunction::Fletcher4);
        assert_eq!(checksum(14), ChecksumFunction::Blake3);
        assert_eq!(checksum(99), ChecksumFunction::Fletcher4);
        let strong = |checksum| Some(DedupPolicy { checksum, sameness: DuplicateTest::Checksum });
        let compared = |checksum| Some(DedupPolicy { checksum, sameness: DuplicateTest::Contents });
        assert_eq!((dedup(2), dedup(0), dedup(7)), (None, None, None));
        assert_eq!(dedup(1), strong(ChecksumFunction::Sha256));
        assert_eq!(dedup(0x101), compared(ChecksumFunction::Sha256));
        assert_eq!(dedup(14), strong(ChecksumFunction::Blake3));
        assert_eq!(dedup(13), compared(ChecksumFunction::EdonR));
    }
}
