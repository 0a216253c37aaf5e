//! Settings of pools.

use super::{SettingError, dataset};
use crate::quantity::parse_size;
use rzfs_dsl::pool::compatibility;
use rzfs_format::features::{Feature, Release};
use rzfs_format::property::{Editing, PoolProperty};
use rzfs_format::uberblock::FEATURES_VERSION;
use rzfs_zap::ZapValue;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The newest versions before feature flags whose file systems this software writes: all have
/// system attributes.
const OLD_VERSIONS: std::ops::RangeInclusive<u64> = 26..=28;
const MAX_COMMENT: usize = 32;
/// A dedup table quota: as large as its vdevs.
const AUTOMATIC: u64 = u64::MAX;

/// A property of a pool and its new value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PoolSetting {
    /// A property stored in the MOS.
    Stored {
        /// The property.
        name: String,
        /// Its value.
        value: ZapValue,
    },
    /// The text that listings show.
    Comment(Option<String>),
    /// The feature sets to which the pool is restricted.
    Compatibility(Option<String>),
    /// Enables a feature.
    Feature(Feature),
    /// Excludes a feature from a new pool.
    WithoutFeature(Feature),
    /// The version.
    Version(u64),
    /// The boot file system.
    BootFileSystem(String),
    /// The directory below which everything is mounted.
    AlternateRoot(PathBuf),
    /// OpenZFS's cache file of imported pools.
    CacheFile(CacheFile),
}

/// Property `cachefile`. It names OpenZFS's cache of imported pools; there is none here, so it is
/// only reported while the pool is imported.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum CacheFile {
    /// The usual file.
    #[default]
    Usual,
    /// None.
    Nowhere,
    /// This file.
    At(String),
}

impl CacheFile {
    fn parse(name: &str, word: &str) -> Result<Self, SettingError> {
        match word {
            "" => Ok(Self::Usual),
            "none" => Ok(Self::Nowhere),
            path if !path.starts_with('/') => Err(SettingError::Path { name: name.to_owned() }),
            path if path.ends_with('/') || path.ends_with("/.") || path.ends_with("/..") => {
                Err(SettingError::NoFile(path.to_owned()))
            }
            path => Ok(Self::At(path.to_owned())),
        }
    }

    /// Checks that there is a directory for the file. The command does this, not the process of the
    /// pool: the directory may be in a file system that this process serves.
    ///
    /// # Errors
    /// [`SettingError::NoDirectory`] if there is none.
    pub fn check_directory(&self) -> Result<(), SettingError> {
        let Self::At(path) = self else { return Ok(()) };
        match path.rsplit_once('/') {
            Some((directory, _)) if !directory.is_empty() && !Path::new(directory).is_dir() => {
                Err(SettingError::NoDirectory(directory.to_owned()))
            }
            _ => Ok(()),
        }
    }
}

impl PoolSetting {
    /// Parses the value of a property for an existing pool.
    ///
    /// # Errors
    /// [`SettingError`] with OpenZFS's message.
    pub fn parse(name: &str, word: &str) -> Result<Self, SettingError> {
        match Self::of_words(name, word)? {
            Self::WithoutFeature(_) => Err(SettingError::FeatureDisabled(name.to_owned())),
            Self::AlternateRoot(_) => Err(SettingError::CreationOrImport(name.to_owned())),
            setting => Ok(setting),
        }
    }

    fn of_words(name: &str, word: &str) -> Result<Self, SettingError> {
        let text = |word: &str| Some(word.to_owned()).filter(|word| !word.is_empty());
        let stored = |value: ZapValue| Self::Stored { name: name.to_owned(), value };
        if name.contains(':') {
            return dataset::user(name, word).map(|()| stored(word.into()));
        }
        if let Some(feature) = name.strip_prefix("feature@") {
            return of_feature(name, feature, word);
        }
        let property = PoolProperty::all_but_name().find(|property| property.name() == name);
        let property = property.ok_or_else(|| SettingError::Unknown(name.to_owned()))?;
        if property.description().editing == Editing::Never {
            return Err(SettingError::ReadOnly(name.to_owned()));
        }
        Ok(match property {
            PoolProperty::Ashift => stored(ashift(word)?.into()),
            PoolProperty::Version => Self::Version(version(word)?),
            PoolProperty::Comment => Self::Comment(text(comment(word)?)),
            PoolProperty::Compatibility => {
                compatibility::requested(Some(word))?;
                Self::Compatibility(text(word).filter(|word| word != "off"))
            }
            PoolProperty::AltRoot if word.starts_with('/') => Self::AlternateRoot(word.into()),
            PoolProperty::AltRoot => return Err(SettingError::AlternateRoot(word.to_owned())),
            PoolProperty::CacheFile => Self::CacheFile(CacheFile::parse(name, word)?),
            PoolProperty::BootFs => Self::BootFileSystem(word.to_owned()),
            PoolProperty::ReadOnly => return Err(SettingError::ImportTime(name.to_owned())),
            PoolProperty::DedupTableQuota => match word {
                "auto" => stored(AUTOMATIC.into()),
                "none" => stored(0.into()),
                _ => stored(parse_size(word)?.into()),
            },
            PoolProperty::Multihost if word == "on" => {
                let (name, value) = (name.to_owned(), word.to_owned());
                return Err(SettingError::NotWritten { name, value });
            }
            _ => stored(number_of_word(property, word)?.into()),
        })
    }
}

fn of_feature(name: &str, feature: &str, word: &str) -> Result<PoolSetting, SettingError> {
    let unknown = || SettingError::UnknownFeature(feature.to_owned());
    let feature = Feature::from_name(feature).ok_or_else(unknown)?;
    match word {
        "enabled" => Ok(PoolSetting::Feature(feature)),
        "disabled" => Ok(PoolSetting::WithoutFeature(feature)),
        _ => Err(SettingError::FeatureWord(name.to_owned())),
    }
}

fn ashift(word: &str) -> Result<u64, SettingError> {
    let number = parse_size(word)?;
    match PoolProperty::Ashift.values().check(number) {
        Ok(()) => Ok(number),
        Err(_) => Err(invalid_number(PoolProperty::Ashift, word)),
    }
}

fn version(word: &str) -> Result<u64, SettingError> {
    match parse_size(word)? {
        number if number == FEATURES_VERSION || OLD_VERSIONS.contains(&number) => Ok(number),
        _ => Err(invalid_number(PoolProperty::Version, word)),
    }
}

fn invalid_number(property: PoolProperty, word: &str) -> SettingError {
    SettingError::PoolNumber { name: property.to_string(), value: word.to_owned() }
}

fn comment(word: &str) -> Result<&str, SettingError> {
    if !word.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        Err(SettingError::Unprintable)
    } else if word.len() > MAX_COMMENT {
        Err(SettingError::CommentTooLong)
    } else {
        Ok(word)
    }
}

fn number_of_word(property: PoolProperty, word: &str) -> Result<u64, SettingError> {
    let values = || property.description().usage().into_owned();
    let unknown = || SettingError::Word { name: property.to_string(), values: values() };
    property.values().number(word).ok_or_else(unknown)
}

/// The properties of a new pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewPoolProperties {
    /// log2 of the smallest block; 0 leaves it to the devices.
    pub ashift: u64,
    /// Its version.
    pub version: u64,
    /// Its features.
    pub features: Vec<Feature>,
    /// Requested features that property `compatibility` excludes.
    pub incompatible: Vec<Feature>,
    /// Properties stored in the MOS.
    pub stored: Vec<(String, ZapValue)>,
    /// The text that listings show.
    pub comment: Option<String>,
    /// The feature sets to which the pool is restricted.
    pub compatibility: Option<String>,
    /// The directory below which everything is mounted.
    pub alternate_root: Option<PathBuf>,
    /// Property `cachefile` while the pool stays imported.
    pub cache_file: Option<CacheFile>,
}

/// The default features of a new pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DefaultFeatures {
    /// Those that OpenZFS 2.3 enables, as far as the property `compatibility` allows.
    #[default]
    All,
    /// None.
    None,
}

impl NewPoolProperties {
    /// Parses properties and values.
    ///
    /// # Errors
    /// [`SettingError`] with OpenZFS's message.
    pub fn parse<'p>(
        pairs: impl IntoIterator<Item = (&'p str, &'p str)>,
        defaults: DefaultFeatures,
    ) -> Result<Self, SettingError> {
        let mut new = Self {
            ashift: 0,
            version: FEATURES_VERSION,
            features: Vec::new(),
            incompatible: Vec::new(),
            stored: Vec::new(),
            comment: None,
            compatibility: None,
            alternate_root: None,
            cache_file: None,
        };
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for (name, word) in pairs {
            match PoolSetting::of_words(name, word)? {
                PoolSetting::Stored { name, value } => {
                    if name == PoolProperty::Ashift.name() {
                        new.ashift = value.first_u64().unwrap_or(0);
                    }
                    new.stored.push((name, value));
                }
                PoolSetting::Comment(comment) => new.comment = comment,
                PoolSetting::Compatibility(sets) => new.compatibility = sets,
                PoolSetting::Feature(feature) => with.push(feature),
                PoolSetting::WithoutFeature(feature) => without.push(feature),
                PoolSetting::Version(version) => new.version = version,
                PoolSetting::BootFileSystem(_) => {
                    return Err(SettingError::NotAtCreation(name.to_owned()));
                }
                PoolSetting::AlternateRoot(path) => new.alternate_root = Some(path),
                PoolSetting::CacheFile(file) => {
                    file.check_directory()?;
                    new.cache_file = Some(file);
                }
            }
        }
        let allowed = compatibility::requested(new.compatibility.as_deref())?;
        let has_features = new.version == FEATURES_VERSION;
        let is_default = |feature: &Feature| {
            feature.since() <= Release::V2_3
                && feature.is_enabled_by_upgrade()
                && allowed.contains(feature)
                && defaults == DefaultFeatures::All
        };
        let is_chosen = |feature: &Feature| {
            (with.contains(feature) || is_default(feature)) && !without.contains(feature)
        };
        let chosen = Feature::ALL.iter().copied().filter(is_chosen);
        new.features = chosen.filter(|_| has_features).collect();
        new.incompatible = with.into_iter().filter(|feature| !allowed.contains(feature)).collect();
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(pairs: &[(&str, &str)], defaults: DefaultFeatures) -> NewPoolProperties {
        NewPoolProperties::parse(pairs.iter().copied(), defaults).unwrap()
    }

    #[test]
    fn a_pool_has_the_features_of_the_release_unless_told_otherwise() {
        assert_eq!(new(&[], DefaultFeatures::All).features.len(), 44);
        assert_eq!(new(&[], DefaultFeatures::None).features, []);
        let one = new(&[("feature@lz4_compress", "enabled")], DefaultFeatures::None);
        assert_eq!(one.features, [Feature::Lz4Compress]);
        let without = new(&[("feature@draid", "disabled")], DefaultFeatures::All);
        assert_eq!(without.features.len(), 43);
        let old = new(&[("compatibility", "zol-0.6.1")], DefaultFeatures::All);
        assert_eq!(old.features.len(), 3);
        assert_eq!(new(&[("version", "28")], DefaultFeatures::All).features, []);
        assert_eq!(new(&[("compatibility", "legacy")], DefaultFeatures::All).features, []);
        let pairs = [("compatibility", "zol-0.6.1"), ("feature@draid", "enabled")];
        assert_eq!(new(&pairs, DefaultFeatures::All).incompatible, [Feature::Draid]);
    }

    #[test]
    fn mistakes_have_the_texts_of_openzfs() {
        let message =
            |name: &str, word: &str| PoolSetting::parse(name, word).unwrap_err().to_string();
        assert_eq!(message("bogus", "1"), "invalid property 'bogus'");
        assert_eq!(message("size", "1"), "'size' is readonly");
        assert_eq!(
            message("ashift", "99"),
            "property 'ashift' number 99 is invalid, only values between 9 and 16 are allowed."
        );
        assert_eq!(message("feature@bogus", "enabled"), "feature 'bogus' unsupported by kernel");
        assert_eq!(
            message("feature@lz4_compress", "disabled"),
            "property 'feature@lz4_compress' can only be set to 'disabled' at creation time"
        );
        assert_eq!(message("readonly", "on"), "property 'readonly' can only be set at import time");
        assert_eq!(message("autotrim", "yes"), "'autotrim' must be one of 'on | off'");
        assert_eq!(message("cachefile", "/etc/"), "'/etc/' is not a valid file");
        let relative = "property 'cachefile' must be empty, an absolute path, or 'none'";
        assert_eq!(message("cachefile", "x"), relative);
        let failmode = "'failmode' must be one of 'wait | continue | panic'";
        assert_eq!(message("failmode", "x"), failmode);
        assert_eq!(message("comment", &"x".repeat(33)), "comment must not exceed 32 characters");
        assert_eq!(message("version", "29"), "property 'version' number 29 is invalid.");
    }
}
