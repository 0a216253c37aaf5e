//! Changes of the pool itself.

use crate::mount::deleted::DeletedImage;
use crate::mount::open::Open;
use crate::mount::own_file_systems::{Destination, OwnFileSystems};
use crate::mount::refusal::refusal;
use crate::protocol::{AddRequest, Layout, Pair, PruneLimit, Refusal};
use rzfs::setting::PoolSetting;
use rzfs::{AddError, AddedVdevs, Allowance, PlannedVdevs, WritablePool};
use rzfs_blockdev::{Access as BlockAccess, BlockDevice, FileDevice, OpenOptions};
use rzfs_dsl::live::{self, ChangeError};
use rzfs_dsl::pool::compatibility;
use rzfs_format::Guid;
use rzfs_format::features::{Feature, Release};
use rzfs_format::uberblock::FEATURES_VERSION;
use rzfs_vdev::create::LocalPools;
use rzfs_vdev::{AuxReason, LeafDevices, Vdev, VdevConfig};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// `zpool set`.
pub(super) fn set(open: &Open, (name, word): &Pair) -> Result<Vec<String>, Refusal> {
    let pool = open.writable_to("set property for")?;
    let cannot = |error: &dyn std::fmt::Display| {
        refusal(format_args!("cannot set property for '{}'", pool.name()), error)
    };
    let setting = PoolSetting::parse(name, word).map_err(|error| cannot(&error))?;
    match setting {
        PoolSetting::CacheFile(file) => open.set_cache_file(file),
        setting => set_on(pool, name, setting).map_err(|error| cannot(&error))?,
    }
    Ok(Vec::new())
}

/// Sets a property of the pool that is stored on disk.
pub(in crate::mount) fn set_on(
    pool: &WritablePool,
    name: &str,
    setting: PoolSetting,
) -> Result<(), ChangeError> {
    let live = pool.live();
    let text = |text: Option<String>| text.unwrap_or_default().as_str().into();
    match setting {
        PoolSetting::Stored { name, value } => live.set_pool_property(&name, value),
        PoolSetting::Comment(comment) => live.set_pool_property(name, text(comment)),
        PoolSetting::Compatibility(sets) => live.set_pool_property(name, text(sets)),
        PoolSetting::BootFileSystem(dataset) => {
            live.set_pool_property(name, dataset.as_str().into())
        }
        PoolSetting::Feature(feature) => live.enable_features(&[feature]),
        PoolSetting::Version(version) => live.upgrade_version(version),
        PoolSetting::WithoutFeature(_)
        | PoolSetting::AlternateRoot(_)
        | PoolSetting::CacheFile(_) => Ok(()),
    }
}

/// `zpool add`.
pub(super) fn add(open: &Open, request: &AddRequest) -> Result<Vec<String>, Refusal> {
    let pool = open.writable_to("add to")?;
    planned(pool, request)?.add_to(pool).map_err(not_added)?;
    open.events.note("vdev_add", []);
    Ok(Vec::new())
}

/// `zpool add -n`.
pub(in crate::mount) fn plan_add(open: &Open, request: &AddRequest) -> Result<Layout, Refusal> {
    let pool = open.writable_to("add to")?;
    let plan = planned(pool, request)?;
    let view = open.view().map_err(|error| not_added(error.into()))?;
    Ok(Layout::of_growth(&view, plan.devices()))
}

fn not_added(error: AddError) -> Refusal {
    Refusal::new(error.to_string())
}

/// Checks vdevs to be added, and opens their devices.
fn planned(pool: &WritablePool, request: &AddRequest) -> Result<PlannedVdevs, Refusal> {
    let own = OwnFileSystems::of(pool.name());
    let is_inside = |word: &&String| own.destination(Path::new(word)) == Destination::Inside;
    if let Some(path) = request.vdevs.iter().find(is_inside) {
        let what = format_args!("cannot add to '{}'", pool.name());
        return Err(refusal(what, format_args!("{path} is in a file system of this pool")));
    }
    let allowances = [
        (request.allow_in_use, Allowance::InUse),
        (request.allow_replication_mismatch, Allowance::ReplicationMismatch),
        (request.allow_ashift_mismatch, Allowance::AshiftMismatch),
    ];
    let mut added = AddedVdevs::new()
        .vdevs(&request.vdevs)
        .allow(allowances.into_iter().filter(|(allowed, _)| *allowed).map(|(_, one)| one))
        .local_pools(LocalPools {
            imported: request.imported.iter().map(|guid| Guid(*guid)).collect(),
            auxiliary: request
                .auxiliary
                .iter()
                .map(|(guid, one)| (Guid(*guid), one.clone()))
                .collect(),
        });
    if let Some(ashift) = request.ashift {
        added = added.ashift(ashift);
    }
    if let Some(size) = request.missing_file_size {
        added = added.missing_file_size(size);
    }
    added.plan(pool).map_err(not_added)
}

/// `zpool upgrade`; returns the enabled features line by line.
pub(super) fn upgrade(open: &Open) -> Result<Vec<String>, Refusal> {
    let pool = open.writable_to("upgrade")?;
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

/// `zpool clear`.
pub(super) fn clear(open: &Open, vdev: Option<&str>) -> Result<Vec<String>, Refusal> {
    let name = open.name();
    let cannot = |error: &dyn std::fmt::Display| {
        refusal(format_args!("cannot clear errors for {}", vdev.unwrap_or(&name)), error)
    };
    let pool = open.writable().map_err(|error| cannot(&error))?;
    // A user who copies an image to a larger device expects the copy to be used.
    if let Some(deleted) = DeletedImage::of(pool) {
        return Err(cannot(&deleted));
    }
    let guid = vdev.map(|name| {
        let vdevs = pool.live().vdevs();
        let found = vdevs.vdevs().find(|vdev| is_named(*vdev, name)).map(Vdev::guid);
        found.ok_or_else(|| cannot(&"no such device in pool"))
    });
    let cleared = pool.live().clear_with(guid.transpose()?, &ByPath::outside_of(open));
    cleared.map_err(|error| match error {
        ChangeError::Suspended { .. } => cannot(&"I/O error"),
        error => cannot(&error),
    })?;
    open.events.note("vdev_clear", []);
    Ok(Vec::new())
}

/// Opens devices at their last paths, unless these are in a file system of the pool itself.
#[derive(Debug)]
pub(in crate::mount) struct ByPath(OwnFileSystems);

impl ByPath {
    pub(in crate::mount) fn outside_of(open: &Open) -> Self {
        Self(OwnFileSystems::of(&open.name()))
    }

    /// The last path of a device, and whether it exists.
    fn place<'l>(&self, leaf: &'l VdevConfig) -> Option<(&'l Path, Destination)> {
        let path = Path::new(OsStr::from_bytes(leaf.hints.path.as_ref()?.as_bytes()));
        let destination = self.0.destination(path);
        (destination != Destination::Inside).then_some((path, destination))
    }
}

impl LeafDevices for ByPath {
    fn device(&self, leaf: &VdevConfig) -> Result<Arc<dyn BlockDevice>, AuxReason> {
        let (path, _) = self.place(leaf).ok_or(AuxReason::OpenFailed)?;
        let options = OpenOptions::new().access(BlockAccess::ReadWrite);
        match FileDevice::open(path, &options) {
            Ok(device) => Ok(Arc::new(device)),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "a device cannot be opened again");
                Err(AuxReason::OpenFailed)
            }
        }
    }

    fn has_candidate(&self, leaf: &VdevConfig) -> bool {
        self.place(leaf).is_some_and(|(_, destination)| destination == Destination::Elsewhere)
    }
}

/// Whether a name means this vdev: a guid, path, or name from `zpool status`.
pub(super) fn is_named(vdev: Vdev<'_>, name: &str) -> bool {
    let is_path = |path: &str| path == name || path.strip_prefix("/dev/") == Some(name);
    is_path(vdev.name()) || vdev.guid().to_string() == name
}

/// `zpool reguid`.
pub(super) fn reguid(open: &Open) -> Result<Vec<String>, Refusal> {
    let pool = open.writable_to("reguid")?;
    let cannot = |error: &dyn std::fmt::Display| {
        refusal(format_args!("cannot reguid '{}'", pool.name()), error)
    };
    pool.live().change_guid().map(|_| Vec::new()).map_err(|error: ChangeError| cannot(&error))
}

/// `zpool ddtprune`.
pub(super) fn prune_dedup(open: &Open, limit: PruneLimit) -> Result<Vec<String>, Refusal> {
    let pool = open.writable_to("prune dedup table on")?;
    let limit = match limit {
        PruneLimit::Age(seconds) => live::PruneLimit::Age(seconds),
        PruneLimit::Percent(percent) => live::PruneLimit::Percent(percent),
    };
    let cannot =
        |error| refusal(format_args!("cannot prune dedup table on '{}'", pool.name()), error);
    pool.live().prune_dedup(limit).map(|_| Vec::new()).map_err(cannot)
}

/// `zpool prefetch -t ddt`.
pub(super) fn prefetch_dedup(open: &Open) -> Result<Vec<String>, Refusal> {
    let pool = open.writable_to("prefetch ddt in")?;
    let cannot = |error| refusal(format_args!("cannot prefetch ddt in '{}'", pool.name()), error);
    let fetched = pool.view().and_then(|view| view.prefetch_dedup_tables());
    fetched.map(|()| Vec::new()).map_err(cannot)
}

/// `zpool sync`.
pub(super) fn sync(open: &Open) -> Result<Vec<String>, Refusal> {
    let pool = open.writable_to("sync")?;
    let cannot = |error| refusal(format_args!("cannot sync '{}'", pool.name()), error);
    pool.sync().map(|()| Vec::new()).map_err(cannot)
}
