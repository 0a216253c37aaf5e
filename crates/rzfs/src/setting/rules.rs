//! Conversion of typed values to stored numbers.

use super::SettingError;
use crate::quantity::{nicebytes, parse_size};
use rzfs_format::property::{DatasetProperty, MAX_BLOCK_SIZE, MIN_BLOCK_SIZE, Values};
use rzfs_zap::ZapValue;
use std::borrow::Cow;

/// Longest value of a property, in bytes.
pub(super) const MAX_VALUE: usize = 8191;

/// Converts a dataset property's value to its stored form.
pub(super) fn stored(property: DatasetProperty, word: &str) -> Result<ZapValue, SettingError> {
    let values = property.values();
    if values.is_text() {
        return text(property, word).map(|text| ZapValue::from(&*text));
    }
    let number = match (values.number(word), values) {
        (Some(number), _) => number,
        (None, Values::Words(_) | Values::Compression) => {
            let description = property.description();
            let (name, values) = (description.name.to_owned(), description.usage().into_owned());
            return Err(SettingError::Word { name, values });
        }
        (None, _) => count(property, word)?,
    };
    Ok(number.into())
}

/// Parses bytes or a count.
fn count(property: DatasetProperty, word: &str) -> Result<u64, SettingError> {
    let number = parse_size(word)?;
    if number == 0 && matches!(property, DatasetProperty::Quota | DatasetProperty::RefQuota) {
        return Err(SettingError::ZeroLimit("quota/refquota".to_owned()));
    }
    let name = property.name().to_owned();
    match (property.values().check(number), property.values()) {
        (Err(_), Values::BlockSizeOrZero) => Err(SettingError::SmallBlocks { name, value: number }),
        (Err(_), _) => Err(SettingError::PowerOfTwo {
            name,
            min: nicebytes(MIN_BLOCK_SIZE),
            max: nicebytes(MAX_BLOCK_SIZE),
        }),
        (Ok(()), _) => Ok(number),
    }
}

/// Parses a text: most are stored unchanged, some have rules.
fn text(property: DatasetProperty, word: &str) -> Result<Cow<'_, str>, SettingError> {
    match property {
        _ if word.len() > MAX_VALUE => Err(SettingError::ValueTooLong),
        DatasetProperty::MountPoint => {
            mount_point(word).ok_or_else(|| SettingError::MountPoint(property.name().to_owned()))
        }
        DatasetProperty::KeyLocation => {
            super::encryption::check_location(word).map(|()| word.into())
        }
        _ => Ok(word.into()),
    }
}

/// Normalises a mount point, with one slash before each name and none at the end: the same
/// directory has one name, and a child's starts with its parent's.
fn mount_point(word: &str) -> Option<Cow<'_, str>> {
    if matches!(word, "none" | "legacy") {
        return Some(word.into());
    }
    let names = word.strip_prefix('/')?.split('/').filter(|name| !name.is_empty());
    let path: String = names.flat_map(|name| ["/", name]).collect();
    Some(if path.is_empty() { "/".into() } else { path.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str, word: &str) -> Result<ZapValue, SettingError> {
        stored(DatasetProperty::from_name(name).unwrap(), word)
    }

    #[test]
    fn mistakes_have_the_texts_of_openzfs() {
        let message = |name: &str, word: &str| parse(name, word).unwrap_err().to_string();
        assert_eq!(message("atime", "maybe"), "'atime' must be one of 'on | off'");
        assert_eq!(message("quota", "abc"), "bad numeric value 'abc'");
        assert_eq!(message("quota", "1Q"), "invalid numeric suffix 'Q'");
        assert_eq!(message("quota", "0"), "use 'none' to disable quota/refquota");
        let size = "'recordsize' must be power of 2 from 512B to 16M";
        assert_eq!(message("recordsize", "1000"), size);
        assert_eq!(message("recordsize", "32M"), size);
        let mountpoint = "'mountpoint' must be an absolute path, 'none', or 'legacy'";
        assert_eq!(message("mountpoint", "mnt"), mountpoint);
        assert_eq!(
            message("special_small_blocks", "3"),
            "invalid 'special_small_blocks=3' property: must be zero or a power of 2 from 512B to 16M"
        );
        let words = message("compression", "zstd-20");
        assert!(words.starts_with("'compression' must be one of 'on | off | lzjb | "), "{words}");
        assert!(parse("checksum", "noparity").is_err());
    }

    #[test]
    fn values_are_stored_as_numbers_or_texts() {
        assert_eq!(parse("quota", "none").unwrap(), 0.into());
        assert_eq!(parse("quota", "1.5G").unwrap(), (3 << 29).into());
        assert_eq!(parse("filesystem_limit", "none").unwrap(), u64::MAX.into());
        assert_eq!(parse("mountpoint", "/srv/").unwrap(), "/srv".into());
        for (typed, kept) in [
            ("/", "/"),
            ("//", "/"),
            ("///", "/"),
            ("/a//b/", "/a/b"),
            ("//a", "/a"),
            ("/a/./../b//", "/a/./../b"),
            ("none", "none"),
            ("legacy", "legacy"),
        ] {
            assert_eq!(parse("mountpoint", typed).unwrap(), kept.into(), "{typed}");
        }
        for wrong in ["", "a//", "none/"] {
            let refused = parse("mountpoint", wrong).unwrap_err();
            assert_eq!(refused, SettingError::MountPoint("mountpoint".to_owned()), "{wrong}");
        }
        let long = format!("/{}", "n".repeat(9000));
        assert_eq!(parse("mountpoint", &long).unwrap_err(), SettingError::ValueTooLong);
        assert_eq!(parse("xattr", "sa").unwrap(), 2.into());
    }
}
