//! Creates, destroys and renames datasets.

use super::super::table::MountTable;
use super::mounts::{NowPossible, end, in_use, mount_again, mount_more, settle, taken_back};
use super::problem::{Problem, reason};
use super::several::not_destroyed;
use crate::mount::open::Open;
use crate::mount::refusal::{refusal, unopened};
use crate::protocol::{self, ConcurrentSnapshots, Pair, Refusal};
use crate::request::Choice;
use rzfs::setting::{NewDatasetProperties, SettingError};
use rzfs::{Pool, Secret, WritablePool};
use rzfs_dsl::dataset::{DatasetError, DatasetKind, KeyStatus};
use rzfs_dsl::live::{
    ChangeError, Destruction, EncryptionProblem, Environment, NewDataset, SystemEnvironment,
};
use rzfs_format::znode::{Timestamp, ZplVersion};
use rzfs_zpl::MasterNode;
use rzfs_zpl::live::NewFileSystem;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How often to destroy concurrently taken snapshots of a dataset that is being destroyed.
const MOST_NEWCOMERS: usize = 64;

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

/// `zfs upgrade`.
pub(super) fn raise_version(open: &Open, name: &str, version: u64) -> Result<Vec<String>, Refusal> {
    let cannot = |error: &dyn std::fmt::Display| {
        Refusal::new(format!("{name}: can not be upgraded; {error}"))
    };
    let pool = open.writable().map_err(|error| cannot(&error))?;
    let version = ZplVersion::from_number(version).map_err(|error| cannot(&error))?;
    pool.raise_version(name, version).map_err(|error| cannot(&error))?;
    Ok(Vec::new())
}

/// Creates the missing ancestors of a file system, and adds them to `made`.
pub(super) fn create_above(
    pool: &WritablePool,
    name: &str,
    made: &mut Vec<String>,
) -> Result<(), Problem> {
    create_above_with(pool, name, |_| &[], made)
}

/// The same, with properties by name.
pub(super) fn create_above_with<'p>(
    pool: &WritablePool,
    name: &str,
    properties: impl Fn(&str) -> &'p [Pair],
    made: &mut Vec<String>,
) -> Result<(), Problem> {
    for name in name.match_indices('/').map(|(end, _)| name.split_at(end).0).skip(1) {
        match create_one(pool, name, properties(name), None) {
            Ok(()) => made.push(name.to_owned()),
            Err(Problem::Change(ChangeError::Exists { .. })) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Destroys datasets that were made for a refused operation; parents come first in `made`.
pub(super) fn destroy_again(pool: &WritablePool, made: &[String]) {
    for name in made.iter().rev() {
        if let Err(error) = pool.live().destroy_dataset(name) {
            tracing::warn!(%error, name, "what was made for a rename stays");
        }
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
    if properties.features().any(|feature| !view.features().state(feature).is_enabled()) {
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

/// The name comparison of the parent of a new file system, and the owner of the new root.
fn parent(pool: &Pool, name: &str) -> Result<NewFileSystem, Problem> {
    let owner = NewFileSystem {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        ..NewFileSystem::new(Timestamp::default(), 0)
    };
    let Some((above, _)) = name.rsplit_once('/') else { return Ok(owner) };
    let dataset = match pool.datasets().open(above) {
        Ok(dataset) if dataset.kind()? == DatasetKind::FileSystem => dataset,
        // That is reported when the dataset is created.
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

/// `zfs destroy`: all their mounts end first, or nothing is destroyed. Nor is anything if one of
/// them is in use, unless it is forced.
pub(super) fn destroy(
    open: &Open,
    names: &[String],
    force: bool,
    newcomers: ConcurrentSnapshots,
) -> Result<Vec<String>, Refusal> {
    let cannot = |name: &str, error: &dyn std::fmt::Display| {
        refusal(format_args!("cannot destroy '{name}'"), error)
    };
    let first = names.first().map_or("", String::as_str);
    let pool = open.writable().map_err(|error| cannot(first, &error))?;
    let mut table = open.table()?;
    open.forget_finished(&mut table);
    let heads: Vec<_> = names.iter().filter(|name| !name.contains('@')).cloned().collect();
    let mut ended = end(open, &mut table, &heads.iter().cloned().collect(), in_use(force))?;
    if force {
        let files = heads.iter().filter_map(|name| pool.files_in_use(name));
        files.for_each(|files| table.cut_off(&files));
    }
    wait_for_last_users(open, &table, &heads);
    open.forget_finished(&mut table);
    if let Some(name) = left_with(pool, &table, &heads) {
        let busy = ChangeError::Busy { name: name.to_owned() };
        return Err(taken_back(open, &mut table, ended, cannot(name, &busy)));
    }
    for name in &heads {
        if let Err(error) = pool.live().destroy_received(name) {
            return Err(taken_back(open, &mut table, ended, cannot(name, &error)));
        }
    }
    // Consecutive snapshots are destroyed together.
    for some in names.chunk_by(|one, next| one.contains('@') && next.contains('@')) {
        let name = some.first().map_or("", String::as_str);
        let destroyed = match name.contains('@') {
            true => {
                let destroyed = pool.live().destroy_snapshots(some, Destruction::AtOnce);
                destroyed.map_err(not_destroyed)
            }
            false => {
                pool.close_file_system(name);
                destroy_head(pool, name, newcomers).map_err(|error| cannot(name, &error))
            }
        };
        if let Err(refused) = destroyed {
            return Err(taken_back(open, &mut table, ended, refused));
        }
        ended.retain(|one| one.dataset != *name);
    }
    Ok(mount_again(open, &mut table, ended))
}

/// Destroys a file system or volume, with concurrently taken snapshots of it if requested.
fn destroy_head(
    pool: &WritablePool,
    name: &str,
    newcomers: ConcurrentSnapshots,
) -> Result<(), ChangeError> {
    for _ in 0..MOST_NEWCOMERS {
        match pool.live().destroy_dataset(name) {
            Err(ChangeError::HasSnapshots { .. }) if newcomers == ConcurrentSnapshots::Destroy => {}
            destroyed => return destroyed,
        }
        let snapshots = pool.live().dataset_tree()?.open(name)?.snapshots()?;
        let names: Vec<_> = snapshots.iter().map(|one| one.name().to_owned()).collect();
        match pool.live().destroy_snapshots(&names, Destruction::AtOnce) {
            // A concurrent command has destroyed one.
            Err(ChangeError::Each(all))
                if all.iter().all(|(_, error)| matches!(error, ChangeError::NotFound { .. })) => {}
            destroyed => destroyed?,
        }
    }
    Err(ChangeError::Busy { name: name.to_owned() })
}

/// Waits for the last replies of mounts that have ended and are no longer in use.
fn wait_for_last_users(open: &Open, table: &MountTable, names: &[String]) {
    let Ok(pool) = open.writable() else { return };
    let files: Vec<_> = names.iter().filter_map(|name| pool.files_in_use(name)).collect();
    table.wait_for_last_users(&files, || !open.is_suspended());
}

/// The first of these file systems that is in use though it is not mounted here.
fn left_with<'a>(
    pool: &WritablePool,
    table: &MountTable,
    names: &'a [String],
) -> Option<&'a String> {
    let is_left = |name: &&String| {
        pool.files_in_use(name).is_some_and(|files| table.is_still_used_with(&files))
    };
    names.iter().find(is_left)
}

/// The arguments of `zfs rename`.
pub(super) struct Renaming {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) ancestors: bool,
    pub(super) force: bool,
    pub(super) mounts: RenamedMounts,
}

/// What becomes of the mounts of file systems that get another name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RenamedMounts {
    /// They move to their new places, and what can be mounted only now is mounted.
    Settle,
    /// They move, and nothing else is mounted.
    Move,
    /// They stay where they are.
    Stay,
}

/// `zfs rename`.
pub(super) fn rename(open: &Open, renaming: &Renaming) -> Result<Vec<String>, Refusal> {
    let Renaming { from, to, .. } = renaming;
    let failed =
        |error: &dyn std::fmt::Display| refusal(format_args!("cannot rename '{from}'"), error);
    let pool = open.writable().map_err(|error| failed(&error))?;
    if from == to {
        let view = pool.view().map_err(|error| unopened(from, error))?;
        let found = view.datasets().open(from);
        let missing = |error| unopened(from, reason(&error));
        return found.map(|_| Vec::new()).map_err(missing);
    }
    let mut table = open.table()?;
    open.forget_finished(&mut table);
    let below = |name: &str, above: &str| {
        name.strip_prefix(above)
            .filter(|rest| rest.is_empty() || rest.starts_with('/'))
            .map(str::to_owned)
    };
    let affected: BTreeSet<String> = match renaming.mounts {
        RenamedMounts::Stay => BTreeSet::new(),
        RenamedMounts::Settle | RenamedMounts::Move => {
            let mounted = table.reports().into_iter().map(|one| one.dataset);
            mounted.filter(|name| below(name, from).is_some()).collect()
        }
    };
    let before = open.candidates().map_err(|error| failed(&error))?;
    let ended = end(open, &mut table, &affected, in_use(renaming.force))?;
    // They are mounted with the renamed dataset: if that is refused they are not in use.
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
            error @ ChangeError::NotFound { .. } => unopened(from, error),
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
    let name_now = |name: &str| renamed(name).unwrap_or_else(|| name.to_owned());
    Ok(match renaming.mounts {
        RenamedMounts::Stay => {
            table.rename(renamed);
            let made = made.into_iter().collect();
            mount_more(open, &mut table, &made, Choice::Automatic)
        }
        RenamedMounts::Settle => {
            settle(open, &mut table, (&before, NowPossible::Mounted), ended, name_now)
        }
        RenamedMounts::Move => {
            settle(open, &mut table, (&before, NowPossible::Left), ended, name_now)
        }
    })
}
