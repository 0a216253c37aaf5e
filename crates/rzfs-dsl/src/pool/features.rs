//! Which features a pool has enabled and uses (spec 01, section 5).

use super::attributes::{Attributes, text};
use super::error::PoolError;
use rzfs_dmu::Objset;
use rzfs_format::features::{self, Feature};
use rzfs_format::uberblock::FEATURES_VERSION;
use std::collections::BTreeMap;

/// Features of newer software than OpenZFS 2.3 that pools can have and this software does not
/// read.
const NOT_READ: [Feature; 1] = [Feature::DraidFailureDomains];

/// Whether this software can read pools that use the feature.
#[must_use]
pub fn is_supported(feature: Feature) -> bool {
    !NOT_READ.contains(&feature)
}

/// State of a feature in a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FeatureState {
    /// It cannot be used before the pool is upgraded.
    Disabled,
    /// It can be used and is not.
    Enabled,
    /// It is used: the number of its users.
    Active(u64),
}

impl FeatureState {
    const fn of_count(count: Option<u64>) -> Self {
        match count {
            None => Self::Disabled,
            Some(0) => Self::Enabled,
            Some(count) => Self::Active(count),
        }
    }

    /// How many use it; `None` if nothing can.
    #[must_use]
    pub const fn references(self) -> Option<u64> {
        match self {
            Self::Disabled => None,
            Self::Enabled => Some(0),
            Self::Active(count) => Some(count),
        }
    }

    /// Whether it can be used.
    #[must_use]
    pub const fn is_enabled(self) -> bool {
        !matches!(self, Self::Disabled)
    }

    /// Whether it is used.
    #[must_use]
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Active(_))
    }

    /// The value that the pool property `feature@name` shows.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::Enabled => "enabled",
            Self::Active(_) => "active",
        }
    }
}

/// What a feature of a pool is needed for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FeatureNeed {
    /// To read the pool.
    Reading,
    /// To write it.
    Writing,
}

/// A feature that a pool has and this software does not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownFeature {
    /// Its guid.
    pub guid: String,
    /// How many use it.
    pub references: u64,
    /// What it is needed for.
    pub need: FeatureNeed,
    /// What the pool says about it; empty when it says nothing.
    pub description: String,
}

/// All features of a pool with their reference counts.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct FeatureStates {
    for_read: BTreeMap<String, u64>,
    for_write: BTreeMap<String, u64>,
    descriptions: BTreeMap<String, String>,
}

impl FeatureStates {
    /// Reads the features of a pool; pools before version 5000 have none.
    pub(crate) fn read(
        mos: &Objset,
        directory: &Attributes,
        version: u64,
    ) -> Result<Self, PoolError> {
        if version < FEATURES_VERSION {
            return Ok(Self::default());
        }
        let table = |name: &'static str| {
            let object = directory.object(name)?.ok_or(PoolError::NoEntry { name })?;
            Attributes::open(mos, object)
        };
        Ok(Self {
            for_read: counts(&table("features_for_read")?)?,
            for_write: counts(&table("features_for_write")?)?,
            descriptions: descriptions(&table("feature_descriptions")?)?,
        })
    }

    /// The state of a feature.
    #[must_use]
    pub fn state(&self, feature: Feature) -> FeatureState {
        let counts =
            if feature.is_read_only_compatible() { &self.for_write } else { &self.for_read };
        FeatureState::of_count(counts.get(feature.guid()).copied())
    }

    /// Whether a feature is used.
    #[must_use]
    pub fn is_active(&self, feature: Feature) -> bool {
        self.state(feature).is_active()
    }

    /// Features that this software does not have or cannot read, those needed for reading first.
    pub fn unknown(&self) -> impl Iterator<Item = UnknownFeature> + '_ {
        let list = |counts: &'_ BTreeMap<String, u64>, need| {
            let unknown = counts
                .iter()
                .filter(|(guid, _)| !Feature::from_guid(guid.as_bytes()).is_some_and(is_supported));
            unknown
                .map(|(guid, references)| UnknownFeature {
                    guid: guid.clone(),
                    references: *references,
                    need,
                    description: self.descriptions.get(guid).cloned().unwrap_or_default(),
                })
                .collect::<Vec<_>>()
        };
        let for_read = list(&self.for_read, FeatureNeed::Reading);
        for_read.into_iter().chain(list(&self.for_write, FeatureNeed::Writing))
    }

    /// Active features without which the pool cannot be used for `need`, and which this software
    /// does not have.
    pub fn unsupported(&self, need: FeatureNeed) -> impl Iterator<Item = UnknownFeature> + '_ {
        self.unknown().filter(move |feature| {
            feature.references > 0 && (feature.need == need || need == FeatureNeed::Writing)
        })
    }

    /// Reference counts by guid, with what the features are needed for.
    pub fn counts(&self) -> impl Iterator<Item = (&str, u64, FeatureNeed)> {
        let for_read =
            self.for_read.iter().map(|(guid, count)| (guid, count, FeatureNeed::Reading));
        let for_write =
            self.for_write.iter().map(|(guid, count)| (guid, count, FeatureNeed::Writing));
        for_read.chain(for_write).map(|(guid, count, need)| (guid.as_str(), *count, need))
    }
}

fn counts(table: &Attributes) -> Result<BTreeMap<String, u64>, PoolError> {
    let mut counts = BTreeMap::new();
    for entry in table.entries()? {
        let Some(guid) = entry.key.as_name() else { continue };
        let guid_text = text(guid);
        if !features::is_valid_guid(guid) {
            let problem = "it is not the guid of a feature";
            return Err(PoolError::Entry { object: table.id(), name: guid_text, problem });
        }
        let Some(count) = entry.value.first_u64() else {
            let problem = "the reference count is not a number";
            return Err(PoolError::Entry { object: table.id(), name: guid_text, problem });
        };
        counts.insert(guid_text, count);
    }
    Ok(counts)
}

fn descriptions(table: &Attributes) -> Result<BTreeMap<String, String>, PoolError> {
    let entries = table.entries()?.into_iter();
    let described = entries.filter_map(|entry| {
        let description = text(entry.value.as_bytes()?);
        Some((text(entry.key.as_name()?), description))
    });
    Ok(described.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(for_read: &[(&str, u64)], for_write: &[(&str, u64)]) -> FeatureStates {
        let map = |list: &[(&str, u64)]| {
            list.iter().map(|(guid, count)| ((*guid).to_owned(), *count)).collect()
        };
        FeatureStates {
            for_read: map(for_read),
            for_write: map(for_write),
            descriptions: [("org.example:w".to_owned(), "Writes".to_owned())].into(),
        }
    }

    #[test]
    fn counts_are_states() {
        let states = states(
            &[(Feature::HoleBirth.guid(), 1), (Feature::Skein.guid(), 0)],
            &[(Feature::LogSpaceMap.guid(), 2)],
        );
        assert_eq!(states.state(Feature::HoleBirth), FeatureState::Active(1));
        assert_eq!(states.state(Feature::Skein), FeatureState::Enabled);
        assert_eq!(states.state(Feature::LogSpaceMap), FeatureState::Active(2));
        assert_eq!(states.state(Feature::Draid), FeatureState::Disabled);
        assert_eq!(states.unknown().count(), 0);
    }

    #[test]
    fn only_active_unknown_features_hinder() {
        let states = states(
            &[("org.example:r", 1), ("org.example:idle", 0)],
            &[("org.example:w", 1), ("org.example:idle2", 0)],
        );
        assert_eq!(states.unknown().count(), 4);
        let guids = |need| states.unsupported(need).map(|f| f.guid).collect::<Vec<_>>();
        assert_eq!(guids(FeatureNeed::Reading), ["org.example:r"]);
        assert_eq!(guids(FeatureNeed::Writing), ["org.example:r", "org.example:w"]);
        let writing = states.unsupported(FeatureNeed::Writing).last().unwrap();
        assert_eq!(writing.description, "Writes");
    }
}
