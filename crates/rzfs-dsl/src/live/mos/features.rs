//! Feature flags as syncing changes them (spec 01, section 5).

use crate::PoolError;
use crate::live::LiveError;
use crate::live::mos::MosTx;
use crate::live::mos::bpobj::{self, LIST_BLOCK};
use crate::pool::{Attributes, FeatureStates, OBJECT_DIRECTORY as DIRECTORY};
use rzfs_format::bpobj::BpobjVersion;
use rzfs_format::features::Feature;
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
/// The version in which lists got sums, and in which they got sub-objects.
const LISTS_WITH_SUMS: u64 = 3;
const LISTS_WITH_SUBOBJECTS: u64 = 26;

/// Reference counts of the features that are enabled, and the objects that depend on them.
#[derive(Debug)]
pub(crate) struct Features {
    version: u64,
    tables: Option<Tables>,
    counts: BTreeMap<Feature, u64>,
    empty_list: Option<ObjectId>,
    /// Features that the labels name have become active, or are not any more.
    has_new_label: bool,
}

#[derive(Clone, Copy, Debug)]
struct Tables {
    for_read: ObjectId,
    for_write: ObjectId,
    descriptions: ObjectId,
    enabled_txg: Option<ObjectId>,
}

impl Features {
    /// The features of a pool that is on disk.
    pub(crate) fn open(
        directory: &Attributes,
        version: u64,
        states: &FeatureStates,
    ) -> Result<Self, PoolError> {
        let table = |name: &'static str| directory.object(name)?.ok_or(PoolError::NoEntry { name });
        let tables = if version < FEATURES_VERSION {
            None
        } else {
            Some(Tables {
                for_read: table(FOR_READ)?,
                for_write: table(FOR_WRITE)?,
                descriptions: table(DESCRIPTIONS)?,
                enabled_txg: directory.object(ENABLED_TXG)?,
            })
        };
        let counted = |feature: &Feature| Some((*feature, states.state(*feature).references()?));
        let counts = Feature::ALL.iter().filter_map(counted).collect();
        let empty_list = directory.object(EMPTY_LIST)?;
        Ok(Self { version, tables, counts, empty_list, has_new_label: false })
    }

    /// The features of a new pool: none.
    pub(crate) const fn new(version: u64) -> Self {
        let counts = BTreeMap::new();
        Self { version, tables: None, counts, empty_list: None, has_new_label: false }
    }

    /// The pool has a later version now.
    pub(crate) const fn set_version(&mut self, version: u64) {
        self.version = version;
    }

    /// Makes the tables of a pool's features, if its version has features.
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

    /// The active features that labels name, in the order of the table.
    pub(crate) fn in_labels(&self) -> impl Iterator<Item = Feature> + '_ {
        Feature::ALL.iter().copied().filter(|f| f.is_label_feature() && self.is_active(*f))
    }

    /// Whether labels have to be written because of features, since this was last asked.
    pub(crate) fn take_new_label(&mut self) -> bool {
        std::mem::take(&mut self.has_new_label)
    }

    /// Enables a feature and those that it depends on.
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
        mos.insert(self.table(tables, feature), feature.guid(), count)?;
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

    fn table(&self, tables: Tables, feature: Feature) -> ObjectId {
        if feature.is_read_only_compatible() { tables.for_write } else { tables.for_read }
    }

    /// Counts users of a feature, which has to be enabled.
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
        mos.set(self.table(tables, feature), feature.guid(), count)
    }

    /// Whether dead lists have keys, and directories know their clones.
    pub(crate) const fn has_deadlists(&self) -> bool {
        self.version >= LISTS_WITH_SUBOBJECTS
    }

    /// The form of new lists of block pointers.
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

    /// One more reference to an empty list: the shared one, if the pool can have it.
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

    /// Whether this is the shared empty list, to which nothing is appended.
    pub(crate) fn is_empty_list(&self, id: ObjectId) -> bool {
        self.empty_list == Some(id)
    }

    /// One reference to the shared empty list less.
    pub(crate) fn release_empty_list(&mut self, mos: &MosTx<'_>) -> Result<(), LiveError> {
        self.add(mos, Feature::EmptyBpobj, -1)?;
        if !self.is_active(Feature::EmptyBpobj)
            && let Some(id) = self.empty_list.take()
        {
            mos.remove(DIRECTORY, EMPTY_LIST)?;
            mos.destroy(id)?;
        }
        Ok(())
    }
}
