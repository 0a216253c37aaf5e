//! Changes of datasets and their properties.

use super::super::mounted::Open;
use super::super::plan::Choice;
use super::super::table::MountTable;
use super::mounts::{in_use, mount_more};
use super::refusal;
use rzfs::protocol::{self, Pair, Refusal, Secret};
use rzfs::setting::{DatasetSetting, NewDatasetProperties, Occasion, OwnerProperty, SettingError};
use rzfs::{Pool, WritablePool};
use rzfs_dsl::PoolError;
use rzfs_dsl::dataset::{Dataset, DatasetError, DatasetKind, KeyStatus};
use rzfs_dsl::live::{
    ChangeError, EncryptionProblem, Environment, Inherit, NewDataset, SystemEnvironment,
};
use rzfs_format::features::Feature;
use rzfs_format::znode::Timestamp;
use rzfs_fuse::InUse;
use rzfs_zpl::MasterNode;
use rzfs_zpl::live::NewFileSystem;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Properties that a mounted file system has to be mounted again for.
const OF_MOUNTS: [&str; 8] =
    ["mountpoint", "canmount", "readonly", "devices", "exec", "setuid", "atime", "acltype"];

/// Those of them that a mount can follow while it is in use.
const FOLLOWED: [&str; 5] = ["readonly", "devices", "exec", "setuid", "atime"];

/// What the file system itself sees to, and the mount only tells.
const TOLD: &str = "atime";

/// What OpenZFS says of a property that is stored but not in force.
const NOT_REMOUNTED: &str = "property may be set but unable to remount filesystem";

/// `zfs create`.
pub(super) fn create(open: &Open, new: &protocol::NewFileSystem) -> Result<Vec<String>, Refusal> {
    let cannot = |error: &dyn std::fmt::Display| {
        refusal(format_args!("cannot create '{}'", new.name), error)
    };
    let pool = open.writable().map_err(|error| cannot(&error))?;
    let mut made = BTreeSet::new();
    if new.ancestors {
        let above = new.name.match_indices('/').map(|(end, _)| new.name.split_at(end).0);
        for name in above.skip(1) {
            match create_one(pool, name, &[], None) {
                Ok(()) => made.insert(name.to_owned()),
                Err(Problem::Change(ChangeError::Exists { .. })) => continue,
                Err(error) => return Err(cannot(&error)),
            };
        }
    }
    match create_one(pool, &new.name, &new.properties, new.key.as_ref()) {
        Ok(()) => {}
        Err(Problem::Change(ChangeError::Exists { .. })) if new.ancestors => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(cannot(&error)),
    }
    if !new.leave_unmounted {
        made.insert(new.name.clone());
    }
    let mut table = open.table();
    open.forget_finished(&mut table);
    let mut complaints = mount_more(open, &mut table, made, Choice::Automatic);
    if !complaints.is_empty() {
        complaints.push("filesystem successfully created, but not mounted".to_owned());
    }
    Ok(complaints)
}

/// Why something cannot be done.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error("{}", reason(.0))]
    Dataset(#[from] DatasetError),
    #[error(transparent)]
    Pool(#[from] PoolError),
    #[error(transparent)]
    Files(#[from] Box<rzfs_zpl::ZplError>),
}

/// OpenZFS's words, which do not name the dataset again.
fn reason(error: &DatasetError) -> String {
    match error {
        DatasetError::NotFound { .. } => "dataset does not exist".to_owned(),
        error => error.to_string(),
    }
}

fn create_one(
    pool: &WritablePool,
    name: &str,
    properties: &[Pair],
    key: Option<&Secret>,
) -> Result<(), Problem> {
    let pairs = properties.iter().map(|(name, word)| (&**name, &**word));
    let properties = NewDatasetProperties::parse(pairs)?;
    let view = pool.view()?;
    if properties.features().any(|feature| !is_enabled(&view, feature)) {
        return Err(SettingError::NeedsUpgrade.into());
    }
    let environment = SystemEnvironment::default();
    let now = i64::try_from(environment.now()).unwrap_or(i64::MAX);
    let now = Timestamp { seconds: now, nanoseconds: 0 };
    let parent = parent(&view, name)?;
    let contents = properties.contents(&parent, now, environment.random());
    let salt = environment.random_nonzero();
    let encryption = properties.encryption.encryption(key.map(Secret::bytes), salt)?;
    let stored = properties.stored.into_iter().map(|one| (one.name, one.value));
    let new = NewDataset::new(Arc::new(contents), stored.collect()).encrypted(encryption);
    pool.live().create_dataset(name, new)?;
    Ok(())
}

fn is_enabled(pool: &Pool, feature: Feature) -> bool {
    pool.features().state(feature).is_enabled()
}

/// How names are compared in the file system above a new one, and who owns its root.
fn parent(pool: &Pool, name: &str) -> Result<NewFileSystem, Problem> {
    let owner = NewFileSystem {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        ..NewFileSystem::new(Timestamp::default(), 0)
    };
    let Some((above, _)) = name.rsplit_once('/') else { return Ok(owner) };
    let dataset = match pool.datasets().open(above) {
        Ok(dataset) if dataset.kind()? == DatasetKind::FileSystem => dataset,
        // That is told when the dataset is to be made.
        Ok(_) | Err(DatasetError::NotFound { .. }) => return Ok(owner),
        Err(error) => return Err(error.into()),
    };
    if dataset.key_status()? == KeyStatus::Unavailable {
        return Err(ChangeError::from(EncryptionProblem::KeyNotLoaded).into());
    }
    let master = MasterNode::read(&dataset.open_objset()?, pool.version()).map_err(Box::new)?;
    let MasterNode { case, normalization, utf8_only, .. } = master;
    Ok(NewFileSystem { case, normalization, utf8_only, ..owner })
}

/// `zfs destroy`.
pub(super) fn destroy(open: &Open, names: &[String], force: bool) -> Result<Vec<String>, Refusal> {
    let pool = open.writable()?;
    let mut table = open.table();
    open.forget_finished(&mut table);
    for name in names {
        let ended = table.unmount(&[name.clone()].into(), in_use(force))?;
        open.close_file_systems(&ended);
        pool.close_file_system(name);
        let destroyed = pool.live().destroy_dataset(name);
        destroyed.map_err(|error| refusal(format_args!("cannot destroy '{name}'"), error))?;
        let others = ended.into_iter().filter(|one| !names.contains(one)).collect();
        mount_more(open, &mut table, others, Choice::All);
    }
    Ok(Vec::new())
}

/// What `zfs rename` is told.
pub(super) struct Renaming {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) ancestors: bool,
    pub(super) force: bool,
    pub(super) leave_mounted: bool,
}

/// `zfs rename`.
pub(super) fn rename(open: &Open, renaming: &Renaming) -> Result<Vec<String>, Refusal> {
    let Renaming { from, to, .. } = renaming;
    let pool = open.writable()?;
    if renaming.ancestors
        && let Some((above, _)) = to.rsplit_once('/')
    {
        let new = protocol::NewFileSystem {
            name: above.to_owned(),
            properties: Vec::new(),
            ancestors: true,
            leave_unmounted: false,
            key: None,
        };
        create(open, &new)?;
    }
    let mut table = open.table();
    open.forget_finished(&mut table);
    let below = |name: &str, above: &str| {
        name.strip_prefix(above)
            .filter(|rest| rest.is_empty() || rest.starts_with('/'))
            .map(str::to_owned)
    };
    let affected: BTreeSet<String> = match renaming.leave_mounted {
        true => BTreeSet::new(),
        false => {
            let mounted = table.reports().into_iter().map(|one| one.dataset);
            mounted.filter(|name| below(name, from).is_some()).collect()
        }
    };
    let ended = table.unmount(&affected, in_use(renaming.force))?;
    open.close_file_systems(&ended);
    let renamed = pool.live().rename_dataset(from, to);
    let is_renamed = renamed.is_ok();
    let names = ended.into_iter().map(|name| match below(&name, from) {
        Some(rest) if is_renamed => format!("{to}{rest}"),
        _ => name,
    });
    let complaints = mount_more(open, &mut table, names.collect(), Choice::All);
    if is_renamed && renaming.leave_mounted {
        table.rename(|name| below(name, from).map(|rest| format!("{to}{rest}")));
        pool.rename_file_systems(|name| below(name, from).map(|rest| format!("{to}{rest}")));
    }
    match renamed {
        Ok(()) => Ok(complaints),
        Err(error @ ChangeError::BelowItself { .. }) => {
            Err(refusal(format_args!("cannot rename to '{to}'"), error))
        }
        Err(error @ ChangeError::NotFound { .. }) => {
            Err(refusal(format_args!("cannot open '{from}'"), error))
        }
        Err(ChangeError::CrossesPools { .. }) => {
            let reason = "datasets must be within same pool";
            Err(refusal(format_args!("cannot rename to '{to}'"), reason))
        }
        Err(error @ (ChangeError::NoParent { .. } | ChangeError::WrongParent { .. })) => {
            Err(refusal(format_args!("cannot create '{to}'"), error))
        }
        Err(error) => Err(refusal(format_args!("cannot rename '{from}'"), error)),
    }
}

/// `zfs set`.
pub(super) fn set(
    open: &Open,
    name: &str,
    properties: &[Pair],
    leave_mounted: bool,
) -> Result<Vec<String>, Refusal> {
    let cannot = |error: &dyn std::fmt::Display| {
        refusal(format_args!("cannot set property for '{name}'"), error)
    };
    let pool = open.writable().map_err(|error| cannot(&error))?;
    let view = pool.view().map_err(|error| cannot(&error))?;
    let dataset = view.datasets().open(name);
    let dataset =
        dataset.map_err(|error| refusal(format_args!("cannot open '{name}'"), reason(&error)))?;
    let (quotas, others) = quotas(&dataset, properties).map_err(|error| cannot(&error))?;
    let settings = settings(&view, &dataset, &others).map_err(|error| cannot(&error))?;
    set_quotas(pool, name, &quotas).map_err(|error| cannot(&error))?;
    if settings.is_empty() {
        return Ok(Vec::new());
    }
    let changed: Vec<String> = settings.iter().map(|(name, _)| name.clone()).collect();
    let action = || pool.live().set_properties(name, &settings);
    remounted(open, name, &changed, leave_mounted, action, &cannot)
}

/// A quota, and who has it; `None` for none.
type Quota = (OwnerProperty, Option<u64>);

/// Takes the quotas of users, groups and projects out of properties.
fn quotas(dataset: &Dataset, properties: &[Pair]) -> Result<(Vec<Quota>, Vec<Pair>), Problem> {
    let (mut quotas, mut others) = (Vec::new(), Vec::new());
    for (name, word) in properties {
        match OwnerProperty::parse(name)? {
            Some(_) if dataset.kind()? != DatasetKind::FileSystem => {
                return Err(SettingError::NotApplicable(name.clone()).into());
            }
            Some(property) => quotas.push((property, property.parse_quota(name, word)?)),
            None => others.push((name.clone(), word.clone())),
        }
    }
    Ok((quotas, others))
}

/// Sets quotas; they are on disk when this returns.
fn set_quotas(
    pool: &WritablePool,
    name: &str,
    quotas: &[Quota],
) -> Result<(), Box<dyn std::error::Error>> {
    if quotas.is_empty() {
        return Ok(());
    }
    let file_system = pool.file_system(name)?;
    for (property, quota) in quotas {
        file_system.set_quota(property.owner, property.unit, property.id, *quota)?;
    }
    Ok(pool.sync()?)
}

fn settings(
    pool: &Pool,
    dataset: &Dataset,
    properties: &[Pair],
) -> Result<Vec<(String, rzfs::zap::ZapValue)>, Problem> {
    let kind = dataset.kind()?;
    let mut settings = Vec::with_capacity(properties.len());
    for (name, word) in properties {
        let setting = DatasetSetting::parse(name, word, kind, Occasion::Change)?;
        if setting.feature().is_some_and(|feature| !is_enabled(pool, feature)) {
            return Err(SettingError::NeedsUpgrade.into());
        }
        settings.push((setting.name, setting.value));
    }
    Ok(settings)
}

/// `zfs inherit`.
pub(super) fn inherit(
    open: &Open,
    name: &str,
    property: &str,
    received: bool,
) -> Result<Vec<String>, Refusal> {
    let cannot = |error: &dyn std::fmt::Display| {
        refusal(format_args!("cannot inherit {property} for '{name}'"), error)
    };
    let pool = open.writable().map_err(|error| cannot(&error))?;
    let inherit = if received { Inherit::Received } else { Inherit::Parent };
    let action = || pool.live().inherit_property(name, property, inherit);
    remounted(open, name, &[property.to_owned()], false, action, &cannot)
}

/// Changes properties, and mounts again what has to be mounted in another way then.
fn remounted(
    open: &Open,
    name: &str,
    changed: &[String],
    leave_mounted: bool,
    action: impl FnOnce() -> Result<(), ChangeError>,
    cannot: &dyn Fn(&dyn std::fmt::Display) -> Refusal,
) -> Result<Vec<String>, Refusal> {
    let is_of_mounts = changed.iter().any(|name| OF_MOUNTS.contains(&name.as_str()));
    if !is_of_mounts || leave_mounted {
        return action().map(|()| Vec::new()).map_err(|error| cannot(&error));
    }
    let mut table = open.table();
    open.forget_finished(&mut table);
    let is_below = |other: &str| {
        other.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let mounted = table.reports().into_iter().map(|one| one.dataset);
    let affected: BTreeSet<String> = mounted.filter(|other| is_below(other)).collect();
    let mut of_mounts = changed.iter().filter(|name| OF_MOUNTS.contains(&name.as_str()));
    if of_mounts.all(|name| FOLLOWED.contains(&name.as_str())) {
        action().map_err(|error| cannot(&error))?;
        let affected = not_followed(open, &table, affected);
        if changed.iter().all(|name| name == TOLD) {
            return Ok(Vec::new());
        }
        return Ok(mounted_again(open, &mut table, &affected));
    }
    let moves = changed.iter().any(|name| name == "mountpoint" || name == "canmount");
    let mut complaints = Vec::new();
    let ended = match table.unmount(&affected, InUse::Refuse) {
        Ok(ended) => ended,
        // A place to mount at does not change under those who are there.
        Err(refusal) if moves => {
            mount_more(open, &mut table, affected, Choice::All);
            return Err(refusal);
        }
        Err(_) => {
            complaints.push(NOT_REMOUNTED.to_owned());
            BTreeSet::new()
        }
    };
    open.close_file_systems(&ended);
    let result = action();
    let mut again = ended;
    if result.is_ok() && moves {
        // What had no place so far has one now.
        again.insert(name.to_owned());
    }
    let choice = if moves { Choice::Automatic } else { Choice::All };
    complaints.extend(mount_more(open, &mut table, again, choice));
    result.map(|()| complaints).map_err(|error| cannot(&error))
}

/// Has mounts follow the properties of their file systems; answers those that cannot.
fn not_followed(open: &Open, table: &MountTable, names: BTreeSet<String>) -> BTreeSet<String> {
    let follow = |name: &String| -> Option<()> {
        let dataset = open.view().ok()?.datasets().open(name).ok()?;
        let restrictions = open.mounter().restrictions(&dataset).ok()?;
        // Of several file systems in one mount the outermost decides; the others refuse changes
        // themselves.
        let mount = table.of_dataset(name).filter(|one| one.dataset == *name);
        mount.map_or(Ok(()), |one| one.mount.restrict(restrictions)).ok()
    };
    names.into_iter().filter(|name| follow(name).is_none()).collect()
}

/// Unmounts file systems and mounts them again, unless they are in use, which is told.
fn mounted_again(open: &Open, table: &mut MountTable, names: &BTreeSet<String>) -> Vec<String> {
    if names.is_empty() {
        return Vec::new();
    }
    match table.unmount(names, InUse::Refuse) {
        Ok(ended) => {
            open.close_file_systems(&ended);
            mount_more(open, table, ended, Choice::All)
        }
        Err(_) => vec![NOT_REMOUNTED.to_owned()],
    }
}
