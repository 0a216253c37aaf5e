//! Which values properties can have (spec 04, sections 13 and 14.1).

use crate::dataset::DatasetKind;
use crate::dataset::property::{Form, NativeProperty};
use crate::live::change_error::ChangeError;
use rzfs_codec::compress::ZstdLevel;
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::compression::CompressionFunction;
use rzfs_format::features::Feature;
use rzfs_zap::{IntegerSize, ZapValue};

/// Most bytes of a property's name, and of its value with the NUL.
const MAX_NAME: usize = 255;
const MAX_VALUE: usize = 8192;
/// Blocks of files, in bytes.
const BLOCK_SIZES: std::ops::RangeInclusive<u64> = 512..=16 << 20;
/// The largest block that needs no feature, and the largest dnode.
const OLD_MAX_BLOCK: u64 = 128 << 10;
const OLD_DNODE: u64 = 0;

/// Properties that are kept in other structures, and so are not in property ZAPs.
const KEPT_ELSEWHERE: [&str; 9] = [
    "volsize",
    "volblocksize",
    "version",
    "utf8only",
    "normalization",
    "casesensitivity",
    "encryption",
    "keyformat",
    "pbkdf2iters",
];

/// A property that can be kept in a ZAP of properties.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Known {
    /// One that a user made up.
    User,
    /// One of OpenZFS.
    Native(&'static NativeProperty),
}

/// Looks a property up that is to be set on a dataset of this kind.
pub(super) fn known(kind: DatasetKind, name: &str) -> Result<Known, ChangeError> {
    let property = || name.to_owned();
    if name.contains(':') {
        let is_valid = name.bytes().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.:".contains(&byte)
        });
        return match (name.len() <= MAX_NAME, is_valid) {
            (false, _) => Err(ChangeError::PropertyNameTooLong { property: property() }),
            (true, true) => Ok(Known::User),
            (true, false) => Err(ChangeError::UnknownProperty { property: property() }),
        };
    }
    let native = NativeProperty::find(name).filter(|native| native.applies.to(kind));
    let native = native.ok_or_else(|| ChangeError::UnknownProperty { property: property() })?;
    if KEPT_ELSEWHERE.contains(&name) {
        return Err(ChangeError::ReadOnlyProperty { property: property() });
    }
    Ok(Known::Native(native))
}

/// Checks a value, whatever the pool and the dataset are.
pub(super) fn check_value(known: Known, name: &str, value: &ZapValue) -> Result<(), ChangeError> {
    let invalid = |problem| ChangeError::InvalidValue { property: name.to_owned(), problem };
    let is_text = match known {
        Known::User => true,
        Known::Native(native) => native.form == Form::Text,
    };
    if is_text {
        let bytes = match value.as_bytes() {
            Some(bytes) if value.integer_size() == IntegerSize::One => bytes,
            _ => return Err(invalid("must be a string")),
        };
        return match bytes.split_last() {
            _ if bytes.len() > MAX_VALUE => {
                Err(ChangeError::ValueTooLong { property: name.to_owned() })
            }
            Some((0, text)) if !text.contains(&0) => Ok(()),
            _ => Err(invalid("must be a string")),
        };
    }
    let number = value.first_u64().filter(|_| value.len() == 1);
    let number = number.ok_or_else(|| invalid("must be a number"))?;
    let Known::Native(native) = known else { return Ok(()) };
    let is_valid = match native.form {
        Form::Words(words) => words.iter().any(|(known, _)| *known == number),
        Form::Compression => is_compression(number),
        Form::Number | Form::Limit | Form::Text => true,
    };
    match name {
        _ if !is_valid => Err(invalid("has no such value")),
        "recordsize" if !number.is_power_of_two() || !BLOCK_SIZES.contains(&number) => {
            Err(invalid("must be power of 2 from 512B to 16M"))
        }
        "special_small_blocks" if number > *BLOCK_SIZES.end() => {
            Err(invalid("must be from 0 to 16M"))
        }
        _ => Ok(()),
    }
}

/// Whether a number stands for a compression function and a level that it has.
fn is_compression(number: u64) -> bool {
    let function = CompressionFunction::from_number((number & 0x7f) as u8);
    match (function, number >> 7) {
        (Ok(CompressionFunction::Inherit | CompressionFunction::Empty) | Err(_), _) => false,
        (Ok(_), 0) => true,
        (Ok(CompressionFunction::Zstd), level) => {
            u8::try_from(level).ok().and_then(ZstdLevel::from_number).is_some()
        }
        (Ok(_), _) => false,
    }
}

/// The feature that has to be enabled before a property can have a number.
pub(super) fn needed_feature(name: &str, number: u64) -> Option<Feature> {
    match name {
        "recordsize" if number > OLD_MAX_BLOCK => Some(Feature::LargeBlocks),
        "dnodesize" if number != OLD_DNODE => Some(Feature::LargeDnode),
        "longname" if number != 0 => Some(Feature::LongName),
        "filesystem_limit" | "snapshot_limit" => Some(Feature::FilesystemLimits),
        "compression" => match CompressionFunction::from_number((number & 0x7f) as u8) {
            Ok(CompressionFunction::Lz4) => Some(Feature::Lz4Compress),
            Ok(CompressionFunction::Zstd) => Some(Feature::ZstdCompress),
            _ => None,
        },
        "checksum" | "dedup" => match ChecksumFunction::from_number((number & 0xff) as u8) {
            Ok(ChecksumFunction::Sha512) => Some(Feature::Sha512),
            Ok(ChecksumFunction::Skein) => Some(Feature::Skein),
            Ok(ChecksumFunction::EdonR) => Some(Feature::EdonR),
            Ok(ChecksumFunction::Blake3) => Some(Feature::Blake3),
            _ => None,
        },
        _ => None,
    }
}

/// The number under the property's own name when the real one would mean nothing to software of
/// older pools: that goes under `NAME$iuv` (spec 04, section 13.1).
pub(super) fn shown_to_old_software(name: &str, number: u64) -> Option<u64> {
    match (name, number) {
        ("redundant_metadata", 2 | 3) | ("snapdir", 2) => Some(0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, value: impl Into<ZapValue>) -> Result<(), ChangeError> {
        let known = known(DatasetKind::FileSystem, name)?;
        check_value(known, name, &value.into())
    }

    #[test]
    fn values_are_checked() {
        for (name, number) in
            [("recordsize", 512), ("compression", 16 | 19 << 7), ("copies", 3), ("quota", 5)]
        {
            check(name, number).unwrap();
        }
        for (name, number) in [
            ("recordsize", 3000),
            ("recordsize", 32 << 20),
            ("compression", 15 | 3 << 7),
            ("compression", 16 | 50 << 7),
            ("copies", 4),
            ("atime", 2),
            ("mountpoint", 1),
        ] {
            assert_eq!(check(name, number).unwrap_err().errno(), 22, "{name}={number}");
        }
        check("mountpoint", "/x").unwrap();
        check("com.example:a", "").unwrap();
        assert!(check("com.example:a", 1).is_err());
        assert!(check("Com.example:a", "x").is_err());
        assert_eq!(check("a:b", "x".repeat(8192).as_str()).unwrap_err().errno(), 7);
        check("a:b", "x".repeat(8191).as_str()).unwrap();
    }

    #[test]
    fn properties_that_cannot_be_set_are_refused() {
        for name in ["volsize", "used", "casesensitivity", "nonsense", "encryption"] {
            assert!(known(DatasetKind::FileSystem, name).is_err(), "{name}");
        }
        assert!(known(DatasetKind::Volume, "recordsize").is_err());
        assert!(known(DatasetKind::Snapshot, "compression").is_err());
        assert!(known(DatasetKind::Snapshot, "exec").is_ok());
    }

    #[test]
    fn features_follow_from_values() {
        assert_eq!(needed_feature("recordsize", 131_072), None);
        assert_eq!(needed_feature("recordsize", 1 << 20), Some(Feature::LargeBlocks));
        assert_eq!(needed_feature("compression", 16 | 3 << 7), Some(Feature::ZstdCompress));
        assert_eq!(needed_feature("checksum", 14), Some(Feature::Blake3));
        assert_eq!(needed_feature("checksum", 1), None);
    }
}
