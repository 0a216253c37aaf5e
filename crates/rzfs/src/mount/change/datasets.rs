//! Changes of datasets and their properties.

use super::super::mounter::OPEN_PROPERTY;
use super::super::plan::Choice;
use super::super::table::{DatasetMount, MountTable};
use super::mounts::{end, in_use, mount_again, mount_more, settle, taken_back};
use crate::mount::open::Open;
use crate::mount::refusal::refusal;
use rzfs::protocol::{self, Pair, Refusal, Secret};
use rzfs::setting::{DatasetSetting, NewDatasetProperties, Occasion, OwnerProperty, SettingError};
use rzfs::{Pool, WritablePool};
use rzfs_dsl::PoolError;
use rzfs_dsl::dataset::property::PropertySource;
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

/// What OpenZFS says of a property that is stored but not in force.
const NOT_REMOUNTED: &str = "property may be set but unable to remount filesystem";

/// `zfs create`.
pub(super) fn create(open: &Open, new: &protocol::NewFileSystem) -> Result<Vec<String>, Refusal> {
    let cannot = |error: &dyn std::fmt::Display| {
        refusal(format_args!("cannot create '{}'", new.name), error)
    };
    let pool = open.writable().map_err(|error| cannot(&error))?;
    let mut made = Vec::new();
    if new.ancestors {
        create_above(pool, &new.name, &mut made).map_err(|error| cannot(&error))?;
    }
    let mut made: BTreeSet<_> = made.into_iter().collect();
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
    let mut table = open.table()?;
    open.forget_finished(&mut table);
    let mut complaints = mount_more(open, &mut table, &made, Choice::Automatic);
    if !complaints.is_empty() {
        complaints.push("filesystem successfully created, but not mounted".to_owned());
    }
    Ok(complaints)
}

/// Makes what is missing above a file system, and adds it to `made`.
fn create_above(pool: &WritablePool, name: &str, made: &mut Vec<String>) -> Result<(), Problem> {
    for name in name.match_indices('/').map(|(end, _)| name.split_at(end).0).skip(1) {
        match create_one(pool, name, &[], None) {
            Ok(()) => made.push(name.to_owned()),
            Err(Problem::Change(ChangeError::Exists { .. })) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Destroys what was made for something that is refused; what is above comes first in `made`.
fn destroy_again(pool: &WritablePool, made: &[String]) {
    for name in made.iter().rev() {
        if let Err(error) = pool.live().destroy_dataset(name) {
            tracing::warn!(%error, name, "what was made for a rename stays");
        }
    }
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

/// `zfs destroy`: what is mounted of all of them ends first, or nothing is destroyed. Nor is
/// anything if somebody still has one of them, unless it can be taken away by force.
pub(super) fn destroy(open: &Open, names: &[String], force: bool) -> Result<Vec<String>, Refusal> {
    let cannot = |name: &str, error: &dyn std::fmt::Display| {
        refusal(format_args!("cannot destroy '{name}'"), error)
    };
    let first = names.first().map_or("", String::as_str);
    let pool = open.writable().map_err(|error| cannot(first, &error))?;
    let mut table = open.table()?;
    open.forget_finished(&mut table);
    let mut ended = end(open, &mut table, &names.iter().cloned().collect(), in_use(force))?;
    if force {
        let files = names.iter().filter_map(|name| pool.files_in_use(name));
        files.for_each(|files| table.cut_off(&files));
    }
    wait_for_last_users(open, &table, names);
    open.forget_finished(&mut table);
    if let Some(name) = left_with(pool, &table, names) {
        let busy = ChangeError::Busy { name: name.to_owned() };
        return Err(taken_back(open, &mut table, ended, cannot(name, &busy)));
    }
    for name in names {
        pool.close_file_system(name);
        if let Err(error) = pool.live().destroy_dataset(name) {
            return Err(taken_back(open, &mut table, ended, cannot(name, &error)));
        }
        ended.retain(|one| one.dataset != *name);
    }
    Ok(mount_again(open, &mut table, ended))
}

/// Waits for the last answers of mounts that have ended, and that nobody has any more.
fn wait_for_last_users(open: &Open, table: &MountTable, names: &[String]) {
    let Ok(pool) = open.writable() else { return };
    let files: Vec<_> = names.iter().filter_map(|name| pool.files_in_use(name)).collect();
    table.wait_for_last_users(&files, || !open.is_suspended());
}

/// The first of these file systems that somebody has though it is not mounted here.
fn left_with<'a>(
    pool: &WritablePool,
    table: &MountTable,
    names: &'a [String],
) -> Option<&'a String> {
    let is_left =
        |name: &&String| pool.files_in_use(name).is_some_and(|files| table.is_left_with(&files));
    names.iter().find(is_left)
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
    let failed =
        |error: &dyn std::fmt::Display| refusal(format_args!("cannot rename '{from}'"), error);
    let pool = open.writable().map_err(|error| failed(&error))?;
    if from == to {
        let view =
            pool.view().map_err(|error| refusal(format_args!("cannot open '{from}'"), error))?;
        let found = view.datasets().open(from);
        let missing = |error| refusal(format_args!("cannot open '{from}'"), reason(&error));
        return found.map(|_| Vec::new()).map_err(missing);
    }
    let mut table = open.table()?;
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
    let before = open.candidates().map_err(|error| failed(&error))?;
    let ended = end(open, &mut table, &affected, in_use(renaming.force))?;
    // They are mounted with what is renamed: nothing has them if that is refused.
    let mut made = Vec::new();
    if renaming.ancestors
        && let Err(error) = create_above(pool, to, &mut made)
    {
        destroy_again(pool, &made);
        let above = to.rsplit_once('/').map_or("", |(above, _)| above);
        let refused = refusal(format_args!("cannot create '{above}'"), error);
        return Err(taken_back(open, &mut table, ended, refused));
    }
    if let Err(error) = pool.live().rename_dataset(from, to) {
        let refused = match error {
            error @ ChangeError::BelowItself { .. } => {
                refusal(format_args!("cannot rename to '{to}'"), error)
            }
            error @ ChangeError::NotFound { .. } => {
                refusal(format_args!("cannot open '{from}'"), error)
            }
            ChangeError::CrossesPools { .. } => {
                let reason = "datasets must be within same pool";
                refusal(format_args!("cannot rename to '{to}'"), reason)
            }
            error @ (ChangeError::NoParent { .. } | ChangeError::WrongParent { .. }) => {
                refusal(format_args!("cannot create '{to}'"), error)
            }
            error => failed(&error),
        };
        destroy_again(pool, &made);
        return Err(taken_back(open, &mut table, ended, refused));
    }
    let renamed = |name: &str| below(name, from).map(|rest| format!("{to}{rest}"));
    if renaming.leave_mounted {
        table.rename(renamed);
        let made = made.into_iter().collect();
        return Ok(mount_more(open, &mut table, &made, Choice::Automatic));
    }
    let name_now = |name: &str| renamed(name).unwrap_or_else(|| name.to_owned());
    Ok(settle(open, &mut table, &before, ended, name_now))
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
    let pairs = others.iter().map(|(name, word)| (name.as_str(), word.as_str()));
    let effect = match (leave_mounted, Effect::of(pairs)) {
        (true, Effect { lists, .. }) => Effect { lists, ..Effect::default() },
        (false, effect) => effect,
    };
    let action = || pool.live().set_properties(name, &settings);
    changed(open, name, effect, action, &cannot)
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
    changed(open, name, Effect::of([(property, "")]), action, &cannot)
}

/// What a change of properties means for mounts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Effect {
    /// The mount point may be another one for whoever inherits it.
    moves: bool,
    /// The file system may not be mounted any more.
    goes: bool,
    /// Mounts have to be made anew.
    anew: bool,
    /// Mounts can follow, or have to be made anew.
    follows: bool,
    /// What the file system sees to itself is to be shown by the mount.
    shows: bool,
    /// Root directories may have a `.zfs` or not.
    lists: bool,
}

impl Effect {
    /// Of setting these properties to these values.
    fn of<'a>(changes: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut effect = Self::default();
        for (name, value) in changes {
            match (name, value) {
                ("mountpoint", _) => effect.moves = true,
                ("canmount", "off") => effect.goes = true,
                ("acltype" | OPEN_PROPERTY, _) => effect.anew = true,
                ("readonly" | "devices" | "exec" | "setuid", _) => effect.follows = true,
                ("atime", _) => effect.shows = true,
                ("snapdir", _) => effect.lists = true,
                _ => {}
            }
        }
        effect
    }
}

/// Changes properties, and what is mounted with them. What is in use does not move: then nothing
/// is changed. What only has to be mounted in another way is told when it is in use.
fn changed(
    open: &Open,
    name: &str,
    effect: Effect,
    action: impl FnOnce() -> Result<(), ChangeError>,
    cannot: &dyn Fn(&dyn std::fmt::Display) -> Refusal,
) -> Result<Vec<String>, Refusal> {
    if effect == Effect::default() {
        return action().map(|()| Vec::new()).map_err(|error| cannot(&error));
    }
    let mut table = open.table()?;
    open.forget_finished(&mut table);
    let before = open.candidates().map_err(|error| cannot(&error))?;
    let mut moving = BTreeSet::new();
    if effect.moves {
        moving = inheriting(open, &table, name).map_err(|error| cannot(&error))?;
    }
    if effect.goes {
        moving.insert(name.to_owned());
    }
    let mut ended = end(open, &mut table, &moving, InUse::Refuse)?;
    let mut complaints = Vec::new();
    if effect.anew {
        let shared = |name: &String| table.of_dataset(name).map(|one| one.dataset.clone());
        let anew = mounted_below(&table, name).iter().filter_map(shared).collect();
        match end(open, &mut table, &anew, InUse::Refuse) {
            Ok(more) => ended.extend(more),
            Err(_) => complaints.push(NOT_REMOUNTED.to_owned()),
        }
    }
    if let Err(error) = action() {
        return Err(taken_back(open, &mut table, ended, cannot(&error)));
    }
    if effect.moves || effect.goes || effect.anew {
        let missing = settle(open, &mut table, &before, ended, str::to_owned);
        if !missing.is_empty() {
            complaints.extend(missing);
            complaints.push(NOT_REMOUNTED.to_owned());
        }
    }
    if effect.lists {
        let names = mounted_below(&table, name);
        let mounts = names.iter().filter_map(|name| table.of_dataset(name));
        mounts.for_each(|one| one.mount.show_snapshot_directories());
    }
    if effect.follows || effect.shows {
        let names = mounted_below(&table, name);
        let behind = not_followed(open, &mut table, &names);
        if effect.follows && !behind.is_empty() {
            match end(open, &mut table, &behind, InUse::Refuse) {
                Ok(ended) => complaints.extend(mount_again(open, &mut table, ended)),
                Err(_) => complaints.push(NOT_REMOUNTED.to_owned()),
            }
        }
    }
    Ok(complaints)
}

fn is_below(name: &str, above: &str) -> bool {
    name.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What is mounted of a file system and those below it.
fn mounted_below(table: &MountTable, name: &str) -> BTreeSet<String> {
    let mounted = table.reports().into_iter().map(|one| one.dataset);
    mounted.filter(|other| is_below(other, name)).collect()
}

/// Those of them that go elsewhere when the mount point of `name` is another one.
fn inheriting(
    open: &Open,
    table: &MountTable,
    name: &str,
) -> Result<BTreeSet<String>, Box<dyn std::error::Error>> {
    let view = open.view()?;
    let mut inheriting = BTreeSet::new();
    for mounted in mounted_below(table, name) {
        let dataset = view.datasets().open(&mounted)?;
        let source = dataset.property("mountpoint")?.map(|property| property.source);
        let is_own = match source {
            Some(PropertySource::Local | PropertySource::Received) => mounted != name,
            Some(PropertySource::Inherited(from)) => from != name && is_below(&from, name),
            _ => false,
        };
        if !is_own {
            inheriting.insert(mounted);
        }
    }
    Ok(inheriting)
}

/// Has mounts follow the properties of their file systems; answers the outermost ones of those that
/// cannot.
fn not_followed(open: &Open, table: &mut MountTable, names: &BTreeSet<String>) -> BTreeSet<String> {
    let follow = |mount: &mut DatasetMount| -> Option<()> {
        let view = open.view().ok()?;
        let all = mount.datasets().map(|name| view.datasets().open(name));
        let all = all.collect::<Result<Vec<_>, _>>().ok()?;
        let (outermost, others) = all.split_first()?;
        mount.restrict(open.mounter().restrictions(outermost, others).ok()?).ok()
    };
    let behind = table.of_datasets_mut(names).filter_map(|mount| match follow(mount) {
        Some(()) => None,
        None => Some(mount.dataset.clone()),
    });
    behind.collect()
}
