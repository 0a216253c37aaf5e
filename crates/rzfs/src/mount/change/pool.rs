//! Changes of the pool itself.

use super::super::mounted::Open;
use super::refusal;
use rzfs::protocol::{Pair, Refusal};
use rzfs::setting::PoolSetting;
use rzfs_dsl::live::ChangeError;
use rzfs_dsl::pool::compatibility;
use rzfs_format::features::{Feature, Release};
use rzfs_format::uberblock::FEATURES_VERSION;

/// `zpool set`.
pub(super) fn set(open: &Open, (name, word): &Pair) -> Result<Vec<String>, Refusal> {
    let pool = open.writable()?;
    let cannot = |error: &dyn std::fmt::Display| {
        refusal(format_args!("cannot set property for '{}'", pool.name()), error)
    };
    let setting = PoolSetting::parse(name, word).map_err(|error| cannot(&error))?;
    let live = pool.live();
    let text = |text: Option<String>| text.unwrap_or_default().as_str().into();
    let changed = match setting {
        PoolSetting::Stored { name, value } => live.set_pool_property(&name, value),
        PoolSetting::Comment(comment) => live.set_pool_property(name, text(comment)),
        PoolSetting::Compatibility(sets) => live.set_pool_property(name, text(sets)),
        PoolSetting::BootFileSystem(dataset) => {
            live.set_pool_property(name, dataset.as_str().into())
        }
        PoolSetting::Feature(feature) => live.enable_features(&[feature]),
        PoolSetting::Version(version) => live.upgrade_version(version),
        PoolSetting::WithoutFeature(_) | PoolSetting::AlternateRoot(_) | PoolSetting::CacheFile => {
            Ok(())
        }
    };
    changed.map(|()| Vec::new()).map_err(|error| cannot(&error))
}

/// `zpool upgrade`; what was enabled is told line by line.
pub(super) fn upgrade(open: &Open) -> Result<Vec<String>, Refusal> {
    let pool = open.writable()?;
    let cannot = |error: &dyn std::fmt::Display| {
        refusal(format_args!("cannot upgrade '{}'", pool.name()), error)
    };
    let view = pool.view().map_err(|error| cannot(&error))?;
    if view.version() < FEATURES_VERSION {
        let upgraded = pool.live().upgrade_version(FEATURES_VERSION);
        upgraded.map_err(|error| cannot(&error))?;
    }
    let sets = view.pool_config().compatibility.clone();
    let allowed = compatibility::requested(sets.as_deref()).map_err(|error| cannot(&error))?;
    let is_missing = |feature: &Feature| {
        feature.is_enabled_by_upgrade()
            && feature.since() <= Release::V2_3
            && allowed.contains(feature)
            && !view.features().state(*feature).is_enabled()
    };
    let missing: Vec<Feature> = Feature::ALL.iter().copied().filter(is_missing).collect();
    pool.live().enable_features(&missing).map_err(|error| cannot(&error))?;
    Ok(missing.iter().map(|feature| feature.name().to_owned()).collect())
}

/// `zpool reguid`.
pub(super) fn reguid(open: &Open) -> Result<Vec<String>, Refusal> {
    let pool = open.writable()?;
    let cannot = |error: &dyn std::fmt::Display| {
        refusal(format_args!("cannot reguid '{}'", pool.name()), error)
    };
    pool.live().change_guid().map(|_| Vec::new()).map_err(|error: ChangeError| cannot(&error))
}

/// `zpool sync`.
pub(super) fn sync(open: &Open) -> Result<Vec<String>, Refusal> {
    let pool = open.writable()?;
    let cannot = |error| refusal(format_args!("cannot sync '{}'", pool.name()), error);
    pool.sync().map(|()| Vec::new()).map_err(cannot)
}
