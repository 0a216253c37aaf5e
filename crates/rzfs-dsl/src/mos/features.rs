//! Feature flags: those enabled and active in a pool, and the counts of their users during sync
//! (spec 01, section 5).

use super::bpobj::{self, LIST_BLOCK};
use super::error::MosError;
use super::live::MosTx;
use super::{MosSource, OBJECT_DIRECTORY as DIRECTORY, text};
use crate::live::LiveError;
use rzfs_format::bpobj::BpobjVersion;
use rzfs_format::features::{self, Feature};
use rzfs_format::uberblock::FEATURES_VERSION;
use rzfs_format::{ObjectId, Txg};
use std::collections::BTreeMap;

const FOR_READ: &str = "features_for_read";
const FOR_WRITE: &str = "features_for_write";
const DESCRIPTIONS: &str = "feature_descriptions";
const ENABLED_TXG: &str = "feature_enabled_txg";
/// The names of all tables in the object directory.
pub(crate) const TABLES: [&str; 4] = [FOR_READ, FOR_WRITE, DESCRIPTIONS, ENABLED_TXG];
const EMPTY_LIST: &str = "empty_bpobj";
/// The version that added sums to lists, and the one that added sub-objects.
const LISTS_WITH_SUMS: u64 = 3;
const LISTS_WITH_SUBOBJECTS: u64 = 26;

/// Features newer than OpenZFS 2.3 that pools may have and this implementation does not read.
const NOT_READ: [Feature; 1] = [Feature::DraidFailureDomains];

/// Whether this implementation can read pools that use the feature.
#[must_use]
pub fn is_supported(feature: Feature) -> bool {
    !NOT_READ.contains(&feature)
}

/// State of a feature in a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FeatureState {
    /// Unusable until the pool is upgraded.
    Disabled,
    /// Usable, but unused.
    Enabled,
    /// In use, with the number of users.
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

    /// The number of users; `None` if it is disabled.
    #[must_use]
    pub const fn references(self) -> Option<u64> {
        match self {
            Self::Disabled => None,
            Self::Enabled => Some(0),
            Self::Active(count) => Some(count),
        }
    }

    /// Whether it is usable.
    #[must_use]
    pub const fn is_enabled(self) -> bool {
        !matches!(self, Self::Disabled)
    }

    /// Whether it is in use.
    #[must_use]
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Active(_))
    }

    /// The value shown by the pool property `feature@name`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::Enabled => "enabled",
            Self::Active(_) => "active",
        }
    }
}

/// What a pool needs a feature for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FeatureNeed {
    /// To read the pool.
    Reading,
    /// To write it.
    Writing,
}

/// A feature of a pool that this implementation does not support.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownFeature {
    /// Its guid.
    pub guid: String,
    /// The number of users.
    pub references: u64,
    /// What it is needed for.
    pub need: FeatureNeed,
    /// The pool's description of it; may be empty.
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
    pub(crate) fn read<M: MosSource>(mos: &M, version: u64) -> Result<Self, M::Error> {
        let Some(tables) = Tables::read(mos, version)? else { return Ok(Self::default()) };
        Ok(Self {
            for_read: counts(mos, tables.for_read)?,
            for_write: counts(mos, tables.for_write)?,
            descriptions: descriptions(mos, tables.descriptions)?,
        })
    }

    /// The state of a feature.
    #[must_use]
    pub fn state(&self, feature: Feature) -> FeatureState {
        let counts =
            if feature.is_read_only_compatible() { &self.for_write } else { &self.for_read };
        FeatureState::of_count(counts.get(feature.guid()).copied())
    }

    /// Whether a feature is in use.
    #[must_use]
    pub fn is_active(&self, feature: Feature) -> bool {
        self.state(feature).is_active()
    }

    /// Features that are unknown or cannot be read, those needed for reading first.
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

    /// Active features that are required for `need` and not supported here.
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

/// Where a pool's features are stored.
#[derive(Clone, Copy, Debug)]
struct Tables {
    for_read: ObjectId,
    for_write: ObjectId,
    descriptions: ObjectId,
    enabled_txg: Option<ObjectId>,
}

impl Tables {
    /// Finds them; pools before version 5000 have none.
    fn read<M: MosSource>(mos: &M, version: u64) -> Result<Option<Self>, M::Error> {
        if version < FEATURES_VERSION {
            return Ok(None);
        }
        Ok(Some(Self {
            for_read: mos.required_object(FOR_READ)?,
            for_write: mos.required_object(FOR_WRITE)?,
            descriptions: mos.required_object(DESCRIPTIONS)?,
            enabled_txg: mos.object_of(DIRECTORY, ENABLED_TXG)?,
        }))
    }

    const fn of(&self, feature: Feature) -> ObjectId {
        if feature.is_read_only_compatible() { self.for_write } else { self.for_read }
    }
}

fn counts<M: MosSource>(mos: &M, table: ObjectId) -> Result<BTreeMap<String, u64>, M::Error> {
    let mut counts = BTreeMap::new();
    for entry in mos.short_list(table)? {
        let Some(guid) = entry.key.as_name() else { continue };
        let bad = |problem| MosError::Entry { object: table, name: text(guid), problem };
        if !features::is_valid_guid(guid) {
            return Err(bad("it is not the guid of a feature").into());
        }
        let count = entry.value.first_u64();
        let count = count.ok_or_else(|| bad("the reference count is not a number"))?;
        counts.insert(text(guid), count);
    }
    Ok(counts)
}

fn descriptions<M: MosSource>(
    mos: &M,
    table: ObjectId,
) -> Result<BTreeMap<String, String>, M::Error> {
    let entries = mos.short_list(table)?.into_iter();
    let described = entries.filter_map(|entry| {
        let description = text(entry.value.as_bytes()?);
        Some((text(entry.key.as_name()?), description))
    });
    Ok(described.collect())
}

/// Reference counts of the enabled features, and the objects that depend on them.
#[derive(Debug)]
pub(crate) struct Features {
    version: u64,
    tables: Option<Tables>,
    counts: BTreeMap<Feature, u64>,
    empty_list: Option<ObjectId>,
    /// Features stored in labels have become active or inactive.
    has_new_label: bool,
}

impl Features {
    /// The features of a pool on disk.
    pub(crate) fn open<M: MosSource>(
        mos: &M,
        version: u64,
        states: &FeatureStates,
    ) -> Result<Self, M::Error> {
        let tables = Tables::read(mos, version)?;
        let counted = |feature: &Feature| Some((*feature, states.state(*feature).references()?));
        let counts = Feature::ALL.iter().filter_map(counted).collect();
        let empty_list = mos.object_of(DIRECTORY, EMPTY_LIST)?;
        Ok(Self { version, tables, counts, empty_list, has_new_label: false })
    }

    /// The features of a new pool: none.
    pub(crate) const fn new(version: u64) -> Self {
        let counts = BTreeMap::new();
        Self { version, tables: None, counts, empty_list: None, has_new_label: false }
    }

    /// Sets a later version of the pool.
    pub(crate) const fn set_version(&mut self, version: u64) {
        self.version = version;
    }

    /// Creates the feature tables of a pool, if its version has features.
    pub(crate) fn create_tables(&mut self, mos: &MosTx<'_>) -> Result<(), LiveError> {
        if self.version < FEATURES_VERSION {
            return Ok(());
        }
        let table = |name: &str| -> Result<ObjectId, LiveError> {
            let id = mos.create_held_zap()?;
            mos.insert(DIRECTORY, name, id.get())?;
            Ok(id)
        };
        self.tables = Some(Tables {
            for_read: table(FOR_READ)?,
            for_write: table(FOR_WRITE)?,
            descriptions: table(DESCRIPTIONS)?,
            enabled_txg: None,
        });
        Ok(())
    }

    pub(crate) fn is_enabled(&self, feature: Feature) -> bool {
        self.counts.contains_key(&feature)
    }

    pub(crate) fn is_active(&self, feature: Feature) -> bool {
        self.counts.get(&feature).is_some_and(|count| *count > 0)
    }

    /// The active features stored in labels, in the order of the table.
    pub(crate) fn in_labels(&self) -> impl Iterator<Item = Feature> + '_ {
        Feature::ALL.iter().copied().filter(|f| f.is_label_feature() && self.is_active(*f))
    }

    /// Whether features require labels to be written, since the last call.
    pub(crate) fn take_new_label(&mut self) -> bool {
        std::mem::take(&mut self.has_new_label)
    }

    /// Enables a feature and its dependencies.
    pub(crate) fn enable(
        &mut self,
        mos: &MosTx<'_>,
        feature: Feature,
        txg: Txg,
    ) -> Result<(), LiveError> {
        let Some(tables) = self.tables.filter(|_| !self.is_enabled(feature)) else {
            return Ok(());
        };
        for dependency in feature.dependencies() {
            self.enable(mos, *dependency, txg)?;
        }
        mos.insert(tables.descriptions, feature.guid(), feature.description())?;
        let count = u64::from(feature.is_active_on_enable());
        mos.insert(tables.of(feature), feature.guid(), count)?;
        self.counts.insert(feature, count);
        if count > 0 && feature.is_label_feature() {
            self.has_new_label = true;
        }
        if feature == Feature::EnabledTxg {
            let id = mos.create_held_zap()?;
            mos.insert(DIRECTORY, ENABLED_TXG, id.get())?;
            self.tables = Some(Tables { enabled_txg: Some(id), ..tables });
        }
        if self.is_enabled(Feature::EnabledTxg)
            && let Some(table) = self.tables.and_then(|tables| tables.enabled_txg)
        {
            mos.set(table, feature.guid(), txg.get())?;
            self.add(mos, Feature::EnabledTxg, 1)?;
        }
        Ok(())
    }

    /// Adds users of a feature, which must be enabled.
    pub(crate) fn add(
        &mut self,
        mos: &MosTx<'_>,
        feature: Feature,
        users: i64,
    ) -> Result<(), LiveError> {
        let (Some(tables), Some(count)) = (self.tables, self.counts.get_mut(&feature)) else {
            return Ok(());
        };
        let was_active = *count > 0;
        *count = count.saturating_add_signed(users);
        let count = *count;
        if feature.is_label_feature() && was_active != (count > 0) {
            self.has_new_label = true;
        }
        mos.set(tables.of(feature), feature.guid(), count)
    }

    /// Whether dead lists have keys, and directories list their clones.
    pub(crate) const fn has_deadlists(&self) -> bool {
        self.version >= LISTS_WITH_SUBOBJECTS
    }

    /// The format of new lists of block pointers.
    pub(crate) fn list_version(&self) -> BpobjVersion {
        if self.is_active(Feature::LiveList) {
            BpobjVersion::V3
        } else if self.version >= LISTS_WITH_SUBOBJECTS {
            BpobjVersion::V2
        } else if self.version >= LISTS_WITH_SUMS {
            BpobjVersion::V1
        } else {
            BpobjVersion::V0
        }
    }

    /// Adds a reference to an empty list: the shared one, if the pool supports it.
    pub(crate) fn empty_list(&mut self, mos: &MosTx<'_>) -> Result<ObjectId, LiveError> {
        if !self.is_enabled(Feature::EmptyBpobj) {
            return bpobj::create(mos, self.list_version(), LIST_BLOCK);
        }
        let id = match self.empty_list {
            Some(id) => id,
            None => {
                let id = bpobj::create(mos, self.list_version(), LIST_BLOCK)?;
                mos.insert(DIRECTORY, EMPTY_LIST, id.get())?;
                self.empty_list = Some(id);
                id
            }
        };
        self.add(mos, Feature::EmptyBpobj, 1)?;
        Ok(id)
    }

    /// Whether this is the shared empty list, which is never appended to.
    pub(crate) fn is_empty_list(&self, id: ObjectId) -> bool {
        self.empty_list == Some(id)
    }

    /// Releases a reference to the shared empty list.
    pub(crate) fn release_empty_list(&mut self, mos: &MosTx<'_>) -> Result<(), LiveError> {
        self.add(mos, Feature::EmptyBpobj, -1)?;
        if !self.is_active(Feature::EmptyBpobj)
            && let Some(id) = self.empty_list.take()
        {
            mos.remove(DIRECTORY, EMPTY_LIST)?;
            mos.destroy_or_leak(id)?;
        }
        Ok(())
    }
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
