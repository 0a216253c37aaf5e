//! Checks the reference counts of a pool's features.

use super::order::Place;
use crate::error::ZdbError;
use crate::session::{Session, Verdict};
use rzfs_dsl::pool::{Attributes, Pool};
use rzfs_format::ObjectId;
use rzfs_format::bookmark::BookmarkRecord;
use rzfs_format::features::Feature;
use rzfs_format::indirect::{MappingHeader, RemovalStatus};
use std::collections::BTreeMap;

/// Features counted not by datasets, but shown among those.
const COUNTED: [Feature; 4] = [
    Feature::RedactionBookmarks,
    Feature::BookmarkWritten,
    Feature::LiveList,
    Feature::RedactionListSpill,
];

/// The attribute of a removed vdev whose obsolete space is counted completely.
const PRECISE: &str = "com.delphix:obsolete_counts_are_precise";

/// Users of features by name.
#[derive(Default)]
pub(super) struct Consumers {
    by_name: BTreeMap<&'static str, u64>,
    removed: u64,
    obsolete: u64,
}

impl Consumers {
    fn count(&mut self, feature: Feature) {
        *self.by_name.entry(feature.name()).or_default() += 1;
    }

    /// Adds the features used by a dataset, its bookmarks and its livelist.
    pub(super) fn add(&mut self, pool: &Pool, place: &Place) -> Result<(), ZdbError> {
        let dataset = pool.mos().object(place.object)?;
        let mut bookmarks = None;
        if dataset.object_type().is_zap() {
            let fields = Attributes::open(pool.mos(), place.object)?;
            for feature in Feature::ALL.iter().filter(|feature| feature.is_per_dataset()) {
                if fields.value(feature.guid())?.is_some() {
                    self.count(*feature);
                }
            }
            bookmarks = fields.object("com.delphix:bookmarks")?;
        }
        if place.dataset.is_snapshot() {
            return Ok(());
        }
        if let Some(bookmarks) = bookmarks {
            self.add_bookmarks(pool, bookmarks)?;
        }
        if place.livelist(pool)?.is_some() {
            self.count(Feature::LiveList);
        }
        Ok(())
    }

    fn add_bookmarks(&mut self, pool: &Pool, id: ObjectId) -> Result<(), ZdbError> {
        let object = pool.mos().object(id)?;
        for entry in object.zap()?.entries() {
            let entry = entry.map_err(|source| object.zap_error(source))?;
            let words: Vec<u64> = entry.value.integers().collect();
            let record = BookmarkRecord::decode(words).map_err(ZdbError::corrupt(id))?;
            if let Some(list) = record.redaction {
                self.count(Feature::RedactionBookmarks);
                if pool.mos().object(list)?.dnode().spill.is_some() {
                    self.count(Feature::RedactionListSpill);
                }
            }
            if record.has_sums() {
                self.count(Feature::BookmarkWritten);
            }
        }
        Ok(())
    }

    /// Adds the features used by removed vdevs and by livelists being deleted.
    pub(super) fn add_pool(&mut self, pool: &Pool) -> Result<(), ZdbError> {
        for vdev in pool.vdevs().top_levels() {
            self.removed += u64::from(vdev.mapping().is_some());
            self.add_counts(pool, vdev.own_config().indirect.mapping)?;
            let Some(attributes) = pool.top_attributes(vdev)? else { continue };
            for name in ["com.delphix:indirect_obsolete_sm", PRECISE] {
                self.obsolete += u64::from(attributes.value(name)?.is_some());
            }
        }
        if pool.removal().is_some_and(|removal| removal.status == RemovalStatus::Active) {
            self.removed += 1;
        }
        let directory = pool.directory();
        self.obsolete += u64::from(directory.object("com.delphix:obsolete_bpobj")?.is_some());
        let condensing = directory.words("com.delphix:condensing_indirect")?;
        if let Some([_, obsolete_map, next_mapping]) = condensing.as_deref() {
            self.obsolete += u64::from(*obsolete_map != 0);
            self.add_counts(pool, Some(ObjectId(*next_mapping)))?;
        }
        self.add_deleted_livelists(pool)
    }

    /// Adds the counts of obsolete bytes of a mapping.
    fn add_counts(&mut self, pool: &Pool, mapping: Option<ObjectId>) -> Result<(), ZdbError> {
        let Some(id) = mapping.and_then(ObjectId::non_zero) else { return Ok(()) };
        let object = pool.mos().object(id)?;
        let header = MappingHeader::decode(object.bonus(), object.order());
        let header = header.map_err(ZdbError::corrupt(id))?;
        self.obsolete += u64::from(header.counts.is_some());
        Ok(())
    }

    fn add_deleted_livelists(&mut self, pool: &Pool) -> Result<(), ZdbError> {
        let directory = pool.directory();
        if let Some(deleted) = directory.object("com.delphix:deleted_clones")? {
            let object = pool.mos().object(deleted)?;
            for entry in object.zap()?.entries() {
                entry.map_err(|source| object.zap_error(source))?;
                self.count(Feature::LiveList);
            }
        }
        Ok(())
    }

    /// Compares with the counts recorded in the pool.
    pub(super) fn print(
        &self,
        session: &mut Session<'_>,
        pool: &Pool,
    ) -> Result<Verdict, ZdbError> {
        let recorded: BTreeMap<&str, u64> =
            pool.features().counts().map(|(guid, count, _)| (guid, count)).collect();
        let mut verdict = Verdict::Clean;
        let mut compare = |name: &str, found: u64, recorded: u64| {
            if found == recorded {
                return writeln!(
                    session.out,
                    "Verified {name} feature refcount of {recorded} is correct"
                );
            }
            verdict = Verdict::Damaged;
            writeln!(
                session.out,
                "{name} feature refcount mismatch: {found} consumers != {recorded} refcount"
            )
        };
        for feature in Feature::ALL {
            if !feature.is_per_dataset() && !COUNTED.contains(feature) {
                continue;
            }
            let found = self.by_name.get(feature.name()).copied().unwrap_or(0);
            if let Some(recorded) = recorded.get(feature.guid()) {
                compare(feature.name(), found, *recorded)?;
            }
        }
        for (name, feature, found) in [
            ("device_removal", Feature::DeviceRemoval, self.removed),
            ("indirect_refcount", Feature::ObsoleteCounts, self.obsolete),
        ] {
            compare(name, found, recorded.get(feature.guid()).copied().unwrap_or(0))?;
        }
        Ok(verdict)
    }
}
