//! From typed values to the numbers that are stored.

use super::{SettingError, row};
use crate::quantity::{nicebytes, parse_size};
use rzfs_dsl::dataset::property::{Form, NativeProperty};
use rzfs_zap::ZapValue;
use std::borrow::Cow;

/// Longest value of a property, in bytes.
pub(super) const MAX_VALUE: usize = 8191;
/// Largest record, and so the largest small block.
const MAX_BLOCK: u64 = 16 << 20;
const MIN_BLOCK: u64 = 512;

/// The level of zstd is kept above the number of the function.
const LEVEL_SHIFT: u32 = 7;
const GZIP_1: u64 = 5;
const GZIP: u64 = 10;
const ZSTD: u64 = 16;
/// The levels of `zstd-fast`: `-1` to `-10`, then tens to 100, then 500 and 1000.
const FAST_ONES: u64 = 102;
const FAST_TENS: u64 = 111;
const FAST_500: u64 = 122;
const FAST_1000: u64 = 123;

/// Words that mean the same as words of the tables.
const SYNONYMS: [(&str, &str, u64); 4] = [
    ("xattr", "sa", 2),
    ("acltype", "posixacl", 1),
    ("acltype", "noacl", 0),
    ("volmode", "geom", 1),
];

/// What is stored for a value of a property of datasets.
pub(super) fn stored(
    table: &str,
    property: &NativeProperty,
    word: &str,
) -> Result<ZapValue, SettingError> {
    let name = property.name;
    let not_a_word = || {
        let values = row(table, name).map_or_else(String::new, |row| row.values.to_owned());
        SettingError::Word { name: name.to_owned(), values }
    };
    let number = match property.form {
        Form::Text => return text(name, word).map(|text| ZapValue::from(&*text)),
        Form::Words(words) => {
            let synonym = SYNONYMS.iter().find(|(of, synonym, _)| *of == name && *synonym == word);
            let known = words.iter().find(|(_, known)| *known == word);
            // The checksum that is off by another name is not for users.
            let known = known.filter(|(_, known)| *known != "noparity");
            let number = synonym.map(|(_, _, number)| *number);
            number.or(known.map(|(number, _)| *number)).ok_or_else(not_a_word)?
        }
        Form::Compression => compression(word).ok_or_else(not_a_word)?,
        Form::Limit if word == "none" => u64::MAX,
        Form::Limit => parse_size(word)?,
        Form::Number => count(name, word)?,
    };
    Ok(number.into())
}

/// Bytes or a count.
fn count(name: &str, word: &str) -> Result<u64, SettingError> {
    let is_limit = matches!(name, "quota" | "refquota" | "reservation" | "refreservation");
    if is_limit && word == "none" {
        return Ok(0);
    }
    let number = parse_size(word)?;
    match name {
        "quota" | "refquota" if number == 0 => {
            return Err(SettingError::UseNone("quota/refquota".to_owned()));
        }
        "recordsize" | "volblocksize" if !is_block_size(number) => {
            return Err(SettingError::PowerOfTwo {
                name: name.to_owned(),
                min: nicebytes(MIN_BLOCK),
                max: nicebytes(MAX_BLOCK),
            });
        }
        "special_small_blocks" if number != 0 && !is_block_size(number) => {
            return Err(SettingError::SmallBlocks { name: name.to_owned(), value: number });
        }
        _ => {}
    }
    Ok(number)
}

const fn is_block_size(number: u64) -> bool {
    number.is_power_of_two() && number >= MIN_BLOCK && number <= MAX_BLOCK
}

/// Texts are stored as they are; some have rules.
fn text<'w>(name: &str, word: &'w str) -> Result<Cow<'w, str>, SettingError> {
    match name {
        _ if word.len() > MAX_VALUE => Err(SettingError::ValueTooLong),
        "mountpoint" => mount_point(word).ok_or_else(|| SettingError::MountPoint(name.to_owned())),
        "keylocation" => super::encryption::check_location(word).map(|()| word.into()),
        _ => Ok(word.into()),
    }
}

/// A place to mount at, with one slash in front of each name and none behind the last: the same
/// directory has one name, and that of a child is below it.
fn mount_point(word: &str) -> Option<Cow<'_, str>> {
    if matches!(word, "none" | "legacy") {
        return Some(word.into());
    }
    let names = word.strip_prefix('/')?.split('/').filter(|name| !name.is_empty());
    let path: String = names.flat_map(|name| ["/", name]).collect();
    Some(if path.is_empty() { "/".into() } else { path.into() })
}

/// The number of a compression function with its level.
fn compression(word: &str) -> Option<u64> {
    let number = |text: &str| text.parse::<u64>().ok().filter(|_| !text.starts_with(['+', '0']));
    let zstd = |level: u64| ZSTD | level << LEVEL_SHIFT;
    Some(match word {
        "on" => 1,
        "off" => 2,
        "lzjb" => 3,
        "gzip" => GZIP,
        "zle" => 14,
        "lz4" => 15,
        "zstd" => ZSTD,
        "zstd-fast" => zstd(FAST_ONES + 1),
        _ => {
            if let Some(level) = word.strip_prefix("gzip-") {
                GZIP_1 - 1 + number(level).filter(|level| (1..=9).contains(level))?
            } else if let Some(level) = word.strip_prefix("zstd-fast-") {
                match number(level)? {
                    level @ 1..=10 => zstd(FAST_ONES + level),
                    tens if tens <= 100 && tens.is_multiple_of(10) => zstd(FAST_TENS + tens / 10),
                    500 => zstd(FAST_500),
                    1000 => zstd(FAST_1000),
                    _ => return None,
                }
            } else {
                let level = number(word.strip_prefix("zstd-")?)?;
                zstd(Some(level).filter(|level| (1..=19).contains(level))?)
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::DATASET_PROPERTIES;
    use rzfs_dsl::dataset::property::{PropertyValue, SETTABLE};

    fn parse(name: &str, word: &str) -> Result<ZapValue, SettingError> {
        let property = SETTABLE.iter().find(|property| property.name == name).unwrap();
        stored(DATASET_PROPERTIES, property, word)
    }

    #[test]
    fn what_is_shown_can_be_typed() {
        for property in SETTABLE {
            let words: Vec<&str> = match property.form {
                Form::Words(words) => words.iter().map(|(_, word)| *word).collect(),
                Form::Compression => "on off lzjb gzip-1 gzip gzip-9 zle lz4 zstd zstd-1 zstd-19 \
                    zstd-fast zstd-fast-2 zstd-fast-10 zstd-fast-20 zstd-fast-100 zstd-fast-500 \
                    zstd-fast-1000"
                    .split_whitespace()
                    .collect(),
                _ => continue,
            };
            for word in words.into_iter().filter(|word| *word != "noparity") {
                let number = parse(property.name, word).unwrap().first_u64().unwrap();
                let shown = property.form.show_number(number);
                assert_eq!(shown, PropertyValue::Text(word.to_owned()), "{}", property.name);
            }
        }
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
