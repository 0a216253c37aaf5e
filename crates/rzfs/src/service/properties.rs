//! Properties of pools (spec 09, section 5.2).

use super::{Access, Opening};
use crate::protocol::{PoolReport, PropertyReport, PropertySource, PropertyValue};
use crate::setting::CacheFile;
use PropertyValue::{Number, Text, Unset};
use rzfs_dsl::pool::{FeatureNeed, FeatureState, PropertySource as Origin, Stored};
use rzfs_dsl::{Pool, PoolError};
use rzfs_format::ddt::DdtStats;
use rzfs_format::features::{Feature, Release};
use rzfs_vdev::{AuxReason, Health, VdevState};

/// Collects properties in their order.
#[derive(Debug, Default)]
struct Properties(Vec<PropertyReport>);

impl Properties {
    fn push(&mut self, name: &str, value: PropertyValue, source: PropertySource) {
        let name = name.to_owned();
        self.0.push(PropertyReport { name, value, source, received: None });
    }

    fn computed(&mut self, name: &str, value: PropertyValue) {
        self.push(name, value, PropertySource::None);
    }

    fn fallback(&mut self, name: &str, value: PropertyValue) {
        self.push(name, value, PropertySource::Default);
    }

    fn stored<T>(&mut self, name: &str, stored: &Stored<T>, value: PropertyValue) {
        let source = match stored.source {
            Origin::Default => PropertySource::Default,
            Origin::Local => PropertySource::Local,
        };
        self.push(name, value, source);
    }

    fn switch(&mut self, name: &str, stored: &Stored<bool>) {
        self.stored(name, stored, text(if stored.value { "on" } else { "off" }));
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
    all.computed("size", Number(space.space));
    all.computed("capacity", Number(percent));
    match &opening.alternate_root {
        Some(root) => all.push("altroot", text(&root.to_string_lossy()), PropertySource::Local),
        None => all.fallback("altroot", Unset),
    }
    all.computed("health", health(report));
    all.computed("guid", Number(report.guid));
    let version = match stored.version.source {
        Origin::Default => Unset,
        Origin::Local => Number(stored.version.value),
    };
    all.stored("version", &stored.version, version);
    let bootfs = stored.bootfs.value.and_then(|object| pool.datasets().by_object(object).ok());
    all.stored("bootfs", &stored.bootfs, bootfs.map_or(Unset, |dataset| text(dataset.name())));
    all.switch("delegation", &stored.delegation);
    all.switch("autoreplace", &stored.autoreplace);
    let default = match opening.alternate_root {
        Some(_) => CacheFile::Nowhere,
        None => CacheFile::Usual,
    };
    match opening.cache_file.as_ref().unwrap_or(&default) {
        CacheFile::Usual => all.fallback("cachefile", Unset),
        CacheFile::Nowhere => all.push("cachefile", text("none"), PropertySource::Local),
        CacheFile::At(path) => all.push("cachefile", text(path), PropertySource::Local),
    }
    all.stored("failmode", &stored.failmode, text(stored.failmode.value.name()));
    all.switch("listsnapshots", &stored.listsnapshots);
    all.switch("autoexpand", &stored.autoexpand);
    let mut dedup = DdtStats::default();
    let tables = pool.dedup_tables()?;
    tables.iter().for_each(|table| dedup.add(&table.histogram.total()));
    all.computed("dedupratio", ratio(dedup.ref_dsize, dedup.dsize));
    all.computed("free", Number(space.space.saturating_sub(space.allocated)));
    all.computed("allocated", Number(space.allocated));
    let read_only = if opening.access == Access::ReadOnly { "on" } else { "off" };
    all.computed("readonly", text(read_only));
    all.stored("ashift", &stored.ashift, Number(stored.ashift.value));
    let comment = stored.comment.value.as_deref().map_or(Unset, text);
    all.stored("comment", &stored.comment, comment);
    all.computed("expandsize", some(space.expandable_size));
    all.computed("freeing", Number(pool.freeing()?));
    all.computed("fragmentation", space.fragmentation.map_or(Unset, Number));
    all.computed("leaked", Number(pool.leaked()?));
    all.switch("multihost", &stored.multihost);
    all.computed("checkpoint", some(space.checkpoint_space));
    all.computed("load_guid", Number(opening.load_guid));
    all.switch("autotrim", &stored.autotrim);
    let compatibility = stored.compatibility.value.as_deref().unwrap_or("off");
    all.stored("compatibility", &stored.compatibility, text(compatibility));
    let clones = pool.clone_savings()?;
    all.computed("bcloneused", Number(clones.used));
    all.computed("bclonesaved", Number(clones.saved));
    all.computed("bcloneratio", ratio(clones.used.saturating_add(clones.saved), clones.used));
    let table_size = tables.iter().map(|table| table.size_on_disk).sum();
    all.computed("dedup_table_size", Number(table_size));
    let quota = stored.dedup_table_quota.value.map_or_else(|| text("auto"), Number);
    all.stored("dedup_table_quota", &stored.dedup_table_quota, quota);
    let scrubbed = pool.last_scrubbed_txg()?.map_or(0, |txg| txg.get());
    all.computed("last_scrubbed_txg", Number(scrubbed));
    features(pool, &mut all);
    for (name, value) in &stored.user {
        all.push(name, text(value), PropertySource::Local);
    }
    Ok(all.0)
}

fn some(bytes: u64) -> PropertyValue {
    if bytes > 0 { Number(bytes) } else { Unset }
}

/// What `health` says of a pool.
pub(super) fn health(report: &PoolReport) -> PropertyValue {
    if report.condition.is_suspended() {
        return Text("SUSPENDED".to_owned());
    }
    let state = VdevState::ALL.get(usize::from(report.root.state)).copied();
    let aux = AuxReason::ALL.get(usize::from(report.root.aux)).copied();
    let health =
        Health { state: state.unwrap_or(VdevState::Unknown), aux: aux.unwrap_or(AuxReason::None) };
    Text(health.to_string())
}

/// The features of OpenZFS 2.3 whatever their state, younger ones only where the pool has them.
fn features(pool: &Pool, all: &mut Properties) {
    for feature in Feature::ALL {
        let state = pool.features().state(*feature);
        if feature.since() <= Release::V2_3 || state != FeatureState::Disabled {
            let name = format!("feature@{}", feature.name());
            all.push(&name, text(state.name()), PropertySource::Local);
        }
    }
    for unknown in pool.features().unknown() {
        let state = match (unknown.references, unknown.need) {
            (0, _) => "inactive",
            (_, FeatureNeed::Writing) => "readonly",
            (_, FeatureNeed::Reading) => "unsupported",
        };
        let name = format!("unsupported@{}", unknown.guid);
        all.push(&name, text(state), PropertySource::None);
    }
}
