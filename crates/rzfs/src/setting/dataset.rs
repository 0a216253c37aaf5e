//! Settings of datasets.

use super::SettingError;
use super::encryption::EncryptionProperties;
use super::rules::{MAX_VALUE, stored};
use rzfs_dsl::dataset::DatasetKind;
use rzfs_format::features::Feature;
use rzfs_format::property::{DatasetProperty, Editing, Storage};
use rzfs_format::znode::Timestamp;
use rzfs_zap::{Normalization, ZapValue};
use rzfs_zpl::CaseSensitivity;
use rzfs_zpl::live::NewFileSystem;

/// Longest name of a property, in bytes.
const MAX_NAME: usize = 255;

/// When a property is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Occasion {
    /// With a new dataset.
    Creation,
    /// Later.
    Change,
}

/// A property of a dataset and its new value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DatasetSetting {
    /// Its full name.
    pub name: String,
    /// Its value in the ZAP of the dataset's directory.
    pub value: ZapValue,
}

impl DatasetSetting {
    /// Parses the value of a property for a dataset of this kind.
    ///
    /// # Errors
    /// [`SettingError`] with OpenZFS's message.
    pub fn parse(
        name: &str,
        word: &str,
        kind: DatasetKind,
        occasion: Occasion,
    ) -> Result<Self, SettingError> {
        let setting = |value| Self { name: name.to_owned(), value };
        if name.contains(':') {
            return user(name, word).map(|()| setting(word.into()));
        }
        let property = DatasetProperty::all_but_name().find(|property| property.name() == name);
        let property = property.ok_or_else(|| SettingError::Unknown(name.to_owned()))?;
        let is_possible = match property.description().editing {
            Editing::Never => false,
            Editing::AtCreation => occasion == Occasion::Creation,
            // The version of a file system changes only by an upgrade.
            Editing::Always => {
                property != DatasetProperty::Version || occasion == Occasion::Creation
            }
        };
        if !is_possible {
            return Err(SettingError::ReadOnly(name.to_owned()));
        }
        if !property.datasets().include(kind) {
            return Err(SettingError::NotApplicable(name.to_owned()));
        }
        let value = match (property, word) {
            // A new file system has the newest version.
            (DatasetProperty::Version, "5" | "current") => 5.into(),
            _ => stored(property, word)?,
        };
        if property == DatasetProperty::Version && value.first_u64() != Some(5) {
            let (name, value) = (name.to_owned(), word.to_owned());
            return Err(SettingError::NotWritten { name, value });
        }
        Ok(setting(value))
    }

    /// Converts a property's value in on-disk form, as in send streams.
    ///
    /// # Errors
    /// [`SettingError`] with OpenZFS's message.
    pub fn of_number(name: &str, number: u64, kind: DatasetKind) -> Result<Self, SettingError> {
        let property = DatasetProperty::from_name(name);
        let property = property.ok_or_else(|| SettingError::Unknown(name.to_owned()))?;
        if property.description().editing != Editing::Always
            || property.storage() != Storage::Properties
        {
            return Err(SettingError::ReadOnly(name.to_owned()));
        }
        if !property.datasets().include(kind) {
            return Err(SettingError::NotApplicable(name.to_owned()));
        }
        if property.values().is_text() {
            let (name, problem) = (name.to_owned(), "must be a string");
            return Err(SettingError::Value { name, problem });
        }
        let invalid = |problem| SettingError::Value { name: name.to_owned(), problem };
        property.values().check(number).map_err(invalid)?;
        Ok(Self { name: name.to_owned(), value: number.into() })
    }

    /// The feature that the value requires.
    #[must_use]
    pub fn feature(&self) -> Option<Feature> {
        DatasetProperty::from_name(&self.name)?.feature(self.value.first_u64()?)
    }
}

/// Checks the name and the value of a user property.
pub(super) fn user(name: &str, word: &str) -> Result<(), SettingError> {
    let is_possible =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b":+-._".contains(&byte);
    if name.len() > MAX_NAME {
        Err(SettingError::NameTooLong(name.to_owned()))
    } else if !name.bytes().all(is_possible) || name.starts_with('-') {
        Err(SettingError::UserName(name.to_owned()))
    } else if word.len() > MAX_VALUE {
        Err(SettingError::ValueTooLong)
    } else {
        Ok(())
    }
}

/// The properties of a new file system.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NewDatasetProperties {
    /// Those stored in its directory.
    pub stored: Vec<DatasetSetting>,
    /// The comparison of names; by default the parent's.
    pub case: Option<CaseSensitivity>,
    /// The normalisation of names; by default the parent's.
    pub normalization: Option<Normalization>,
    /// Whether names must be UTF-8; by default the parent's setting.
    pub utf8_only: Option<bool>,
    /// Its encryption.
    pub encryption: EncryptionProperties,
}

impl NewDatasetProperties {
    /// Parses properties and values.
    ///
    /// # Errors
    /// [`SettingError`] with OpenZFS's message.
    pub fn parse<'p>(
        pairs: impl IntoIterator<Item = (&'p str, &'p str)>,
    ) -> Result<Self, SettingError> {
        let mut properties = Self::default();
        for (name, word) in pairs {
            let kind = DatasetKind::FileSystem;
            let setting = DatasetSetting::parse(name, word, kind, Occasion::Creation)?;
            properties.take(setting)?;
        }
        if properties.utf8_only == Some(false)
            && properties.normalization.is_some_and(|form| form != Normalization::default())
        {
            return Err(SettingError::NotNormalizable);
        }
        properties.encryption.key()?;
        Ok(properties)
    }

    fn take(&mut self, setting: DatasetSetting) -> Result<(), SettingError> {
        let number = setting.value.first_u64().unwrap_or(0);
        match DatasetProperty::from_name(&setting.name) {
            Some(DatasetProperty::CaseSensitivity) => {
                self.case = Some(match number {
                    1 => CaseSensitivity::Insensitive,
                    2 => CaseSensitivity::Mixed,
                    _ => CaseSensitivity::Sensitive,
                });
            }
            Some(DatasetProperty::Normalization) => {
                self.normalization = Normalization::from_flags(number).ok();
            }
            Some(DatasetProperty::Utf8Only) => self.utf8_only = Some(number != 0),
            Some(DatasetProperty::Version) => {}
            Some(property) if EncryptionProperties::ALL.contains(&property) => {
                self.encryption.take(property, &setting.value)?;
            }
            _ => self.stored.push(setting),
        }
        Ok(())
    }

    /// The first objects of the file system. `parent` provides the defaults.
    #[must_use]
    pub fn contents(&self, parent: &NewFileSystem, now: Timestamp, seed: u64) -> NewFileSystem {
        NewFileSystem {
            case: self.case.unwrap_or(parent.case),
            normalization: self.normalization.unwrap_or(parent.normalization),
            utf8_only: self.utf8_only.unwrap_or(parent.utf8_only),
            now,
            seed,
            ..*parent
        }
    }

    /// The features that they require.
    pub fn features(&self) -> impl Iterator<Item = Feature> {
        self.stored.iter().filter_map(DatasetSetting::feature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(name: &str, word: &str) -> Result<DatasetSetting, SettingError> {
        DatasetSetting::parse(name, word, DatasetKind::FileSystem, Occasion::Change)
    }

    #[test]
    fn only_what_can_be_set_is_set() {
        let message = |name: &str, word: &str| change(name, word).unwrap_err().to_string();
        assert_eq!(message("bogus", "1"), "invalid property 'bogus'");
        assert_eq!(message("used", "1"), "'used' is readonly");
        assert_eq!(message("casesensitivity", "mixed"), "'casesensitivity' is readonly");
        assert_eq!(message("volsize", "1G"), "'volsize' does not apply to datasets of this type");
        assert_eq!(message("Has:Capitals", ""), "invalid property 'Has:Capitals'");
        let (kind, when) = (DatasetKind::FileSystem, Occasion::Creation);
        assert!(DatasetSetting::parse("encryption", "on", kind, when).is_ok());
        assert_eq!(message("encryption", "on"), "'encryption' is readonly");
        assert_eq!(message("keylocation", "file:key"), "invalid keylocation");
        assert_eq!(change("dedup", "off").unwrap().value, 2.into());
        assert_eq!(change("dedup", "blake3,verify").unwrap().value, 0x10e.into());
        assert_eq!(change("org.example:note", "a b").unwrap().value, "a b".into());
        let long = "x".repeat(MAX_VALUE + 1);
        assert_eq!(change("a:b", &long), Err(SettingError::ValueTooLong));
    }

    #[test]
    fn names_are_normalized_only_if_all_are_utf8() {
        let parse = |utf8, form| {
            NewDatasetProperties::parse([("utf8only", utf8), ("normalization", form)]).map(drop)
        };
        assert_eq!(parse("off", "formC"), Err(SettingError::NotNormalizable));
        assert_eq!([parse("on", "formC"), parse("off", "none")], [Ok(()), Ok(())]);
    }

    #[test]
    fn a_new_file_system_has_properties_of_two_sorts() {
        let pairs = [("normalization", "formD"), ("casesensitivity", "mixed"), ("atime", "off")];
        let properties = NewDatasetProperties::parse(pairs).unwrap();
        assert_eq!(properties.stored.len(), 1);
        assert_eq!(properties.case, Some(CaseSensitivity::Mixed));
        let parent = NewFileSystem::new(Timestamp::default(), 1);
        let contents = properties.contents(&parent, Timestamp::default(), 2);
        assert_eq!(contents.normalization.flags(), 0x10);
        assert!(!contents.utf8_only);
    }

    #[test]
    fn some_values_need_features() {
        let feature = |name, word| change(name, word).unwrap().feature();
        assert_eq!(feature("recordsize", "128K"), None);
        assert_eq!(feature("recordsize", "1M"), Some(Feature::LargeBlocks));
        assert_eq!(feature("compression", "zstd-fast-10"), Some(Feature::ZstdCompress));
        assert_eq!(feature("dnodesize", "legacy"), None);
        assert_eq!(feature("dnodesize", "auto"), Some(Feature::LargeDnode));
    }
}
