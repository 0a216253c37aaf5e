//! Properties of pools (spec 09, section 5.2).

use super::{Access, Opening};
use crate::protocol::{PoolReport, PropertyReport, PropertySource, PropertyValue};
use PropertyValue::{Number, Text, Unset};
use rzfs::setting::CacheFile;
use rzfs_dsl::pool::{FeatureNeed, FeatureState, PropertySource as Origin, Stored};
use rzfs_dsl::{Pool, PoolError};
use rzfs_format::ddt::DdtStats;
use rzfs_format::features::{Feature, Release};
use rzfs_format::property::PoolProperty;

/// Collects properties in order.
#[derive(Debug, Default)]
struct Properties(Vec<PropertyReport>);

impl Properties {
    fn push(&mut self, property: PoolProperty, value: PropertyValue, source: PropertySource) {
        self.push_named(property.name(), value, source);
    }

    fn push_named(&mut self, name: &str, value: PropertyValue, source: PropertySource) {
        let name = name.to_owned();
        self.0.push(PropertyReport { name, value, source, received: None });
    }

    fn computed(&mut self, property: PoolProperty, value: PropertyValue) {
        self.push(property, value, PropertySource::None);
    }

    fn fallback(&mut self, property: PoolProperty, value: PropertyValue) {
        self.push(property, value, PropertySource::Default);
    }

    fn stored<T>(&mut self, property: PoolProperty, stored: &Stored<T>, value: PropertyValue) {
        let source = match stored.source {
            Origin::Default => PropertySource::Default,
            Origin::Local => PropertySource::Local,
        };
        self.push(property, value, source);
    }

    fn switch(&mut self, property: PoolProperty, stored: &Stored<bool>) {
        self.stored(property, stored, text(if stored.value { "on" } else { "off" }));
    }
}

fn text(text: &str) -> PropertyValue {
    Text(text.to_owned())
}

/// Hundredths of a ratio; 1 if there is nothing to compare.
fn ratio(part: u64, whole: u64) -> PropertyValue {
    let hundredths = (u128::from(part) * 100).checked_div(u128::from(whole)).unwrap_or(100);
    Number(u64::try_from(hundredths).unwrap_or(u64::MAX))
}

/// The properties of a pool in the order of `zpool get all`.
pub(super) fn of(
    pool: &Pool,
    report: &PoolReport,
    opening: &Opening,
) -> Result<Vec<PropertyReport>, PoolError> {
    let stored = pool.properties()?;
    let space = &report.root.statistics;
    let mut all = Properties::default();
    let percent = space.allocated.saturating_mul(100).checked_div(space.space).unwrap_or(0);
    all.computed(PoolProperty::Size, Number(space.space));
    all.computed(PoolProperty::Capacity, Number(percent));
    match &opening.alternate_root {
        Some(root) => {
            all.push(PoolProperty::AltRoot, text(&root.to_string_lossy()), PropertySource::Local)
        }
        None => all.fallback(PoolProperty::AltRoot, Unset),
    }
    all.computed(PoolProperty::Health, health(report));
    all.computed(PoolProperty::Guid, Number(report.guid));
    let version = match stored.version.source {
        Origin::Default => Unset,
        Origin::Local => Number(stored.version.value),
    };
    all.stored(PoolProperty::Version, &stored.version, version);
    let bootfs = stored.bootfs.value.and_then(|object| pool.datasets().by_object(object).ok());
    all.stored(
        PoolProperty::BootFs,
        &stored.bootfs,
        bootfs.map_or(Unset, |dataset| text(dataset.name())),
    );
    all.switch(PoolProperty::Delegation, &stored.delegation);
    all.switch(PoolProperty::AutoReplace, &stored.autoreplace);
    let default = match opening.alternate_root {
        Some(_) => CacheFile::Nowhere,
        None => CacheFile::Usual,
    };
    match opening.cache_file.as_ref().unwrap_or(&default) {
        CacheFile::Usual => all.fallback(PoolProperty::CacheFile, Unset),
        CacheFile::Nowhere => {
            all.push(PoolProperty::CacheFile, text("none"), PropertySource::Local)
        }
        CacheFile::At(path) => all.push(PoolProperty::CacheFile, text(path), PropertySource::Local),
    }
    all.stored(PoolProperty::FailMode, &stored.failmode, text(stored.failmode.value.name()));
    all.switch(PoolProperty::ListSnapshots, &stored.listsnapshots);
    all.switch(PoolProperty::AutoExpand, &stored.autoexpand);
    let mut dedup = DdtStats::default();
    let tables = pool.dedup_tables()?;
    tables.iter().for_each(|table| dedup.add(&table.histogram.total()));
    all.computed(PoolProperty::DedupRatio, ratio(dedup.ref_dsize, dedup.dsize));
    all.computed(PoolProperty::Free, Number(space.space.saturating_sub(space.allocated)));
    all.computed(PoolProperty::Allocated, Number(space.allocated));
    let read_only = if opening.access == Access::ReadOnly { "on" } else { "off" };
    all.computed(PoolProperty::ReadOnly, text(read_only));
    all.stored(PoolProperty::Ashift, &stored.ashift, Number(stored.ashift.value));
    let comment = stored.comment.value.as_deref().map_or(Unset, text);
    all.stored(PoolProperty::Comment, &stored.comment, comment);
    all.computed(PoolProperty::ExpandSize, some(space.expandable_size));
    all.computed(PoolProperty::Freeing, Number(pool.freeing()?));
    all.computed(PoolProperty::Fragmentation, space.fragmentation.map_or(Unset, Number));
    all.computed(PoolProperty::Leaked, Number(pool.leaked()?));
    all.switch(PoolProperty::Multihost, &stored.multihost);
    all.computed(PoolProperty::Checkpoint, some(space.checkpoint_space));
    all.computed(PoolProperty::LoadGuid, Number(opening.load_guid));
    all.switch(PoolProperty::Autotrim, &stored.autotrim);
    let compatibility = stored.compatibility.value.as_deref().unwrap_or("off");
    all.stored(PoolProperty::Compatibility, &stored.compatibility, text(compatibility));
    let clones = pool.clone_savings()?;
    all.computed(PoolProperty::BcloneUsed, Number(clones.used));
    all.computed(PoolProperty::BcloneSaved, Number(clones.saved));
    all.computed(
        PoolProperty::BcloneRatio,
        ratio(clones.used.saturating_add(clones.saved), clones.used),
    );
    let table_size = tables.iter().map(|table| table.size_on_disk).sum();
    all.computed(PoolProperty::DedupTableSize, Number(table_size));
    let quota = stored.dedup_table_quota.value.map_or_else(|| text("auto"), Number);
    all.stored(PoolProperty::DedupTableQuota, &stored.dedup_table_quota, quota);
    let scrubbed = pool.last_scrubbed_txg()?.map_or(0, |txg| txg.get());
    all.computed(PoolProperty::LastScrubbedTxg, Number(scrubbed));
    features(pool, &mut all);
    for (name, value) in &stored.user {
        all.push_named(name, text(value), PropertySource::Local);
    }
    Ok(all.0)
}

fn some(bytes: u64) -> PropertyValue {
    if bytes > 0 { Number(bytes) } else { Unset }
}

/// The value of property `health`.
pub(super) fn health(report: &PoolReport) -> PropertyValue {
    if report.status.is_suspended() {
        return Text("SUSPENDED".to_owned());
    }
    Text(report.root.health.to_string())
}

/// All features of OpenZFS 2.3, and newer ones only if the pool has them.
fn features(pool: &Pool, all: &mut Properties) {
    for feature in Feature::ALL {
        let state = pool.features().state(*feature);
        if feature.since() <= Release::V2_3 || state != FeatureState::Disabled {
            let name = format!("feature@{}", feature.name());
            all.push_named(&name, text(state.name()), PropertySource::Local);
        }
    }
    for unknown in pool.features().unknown() {
        let state = match (unknown.references, unknown.need) {
            (0, _) => "inactive",
            (_, FeatureNeed::Writing) => "readonly",
            (_, FeatureNeed::Reading) => "unsupported",
        };
        let name = format!("unsupported@{}", unknown.guid);
        all.push_named(&name, text(state), PropertySource::None);
    }
}
