//! Mounts of a pool that stays imported.

use super::super::mounted::Open;
use super::super::mounter::{Nesting, Planned};
use super::super::plan::Choice;
use super::super::table::MountTable;
use rzfs::protocol::Refusal;
use rzfs_dsl::dataset::{DatasetError, DatasetKind, KeyStatus};
use rzfs_fuse::InUse;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub(super) fn in_use(force: bool) -> InUse {
    if force { InUse::Detach } else { InUse::Refuse }
}

/// `zfs mount NAME`.
pub(super) fn mount(open: &Open, name: &str) -> Result<Vec<String>, Refusal> {
    let cannot =
        |verb: &str, reason: &str| Refusal { message: format!("cannot {verb} '{name}': {reason}") };
    let view = open.view().map_err(|error| cannot("open", &error.to_string()))?;
    let fail = |error: DatasetError| match error {
        DatasetError::NotFound { .. } => cannot("open", "dataset does not exist"),
        error => cannot("open", &error.to_string()),
    };
    let dataset = view.datasets().open(name).map_err(fail)?;
    if dataset.kind().map_err(fail)? != DatasetKind::FileSystem {
        return Err(cannot("open", "operation not applicable to datasets of this type"));
    }
    match &*dataset.text("mountpoint").map_err(fail)? {
        "legacy" => {
            let reason = "legacy mountpoint\nuse mount(8) to mount this filesystem";
            return Err(cannot("mount", reason));
        }
        "none" => return Err(cannot("mount", "no mountpoint set")),
        _ => {}
    }
    if dataset.text("canmount").map_err(fail)? == "off" {
        return Err(cannot("mount", "'canmount' property is set to 'off'"));
    }
    if dataset.key_status().map_err(fail)? == KeyStatus::Unavailable {
        return Err(cannot("mount", "encryption key not loaded"));
    }
    let mut table = open.table();
    open.forget_finished(&mut table);
    if table.of_dataset(name).is_some() {
        return Err(cannot("mount", "filesystem already mounted"));
    }
    match mount_more(open, &mut table, [name.to_owned()].into(), Choice::All).as_slice() {
        [] => Ok(Vec::new()),
        complaints => Err(Refusal { message: complaints.join("\n") }),
    }
}

/// `zfs mount -a`.
pub(super) fn mount_all(open: &Open) -> Result<Vec<String>, Refusal> {
    let mut table = open.table();
    open.forget_finished(&mut table);
    let planned = match open.planned(None, Choice::Automatic) {
        Ok(planned) => planned,
        Err(error) => return Err(Refusal { message: error.to_string() }),
    };
    let names = planned.into_iter().map(|(dataset, _)| dataset.name().to_owned());
    let missing = names.filter(|name| table.of_dataset(name).is_none()).collect();
    Ok(mount_more(open, &mut table, missing, Choice::Automatic))
}

/// `zfs unmount NAME|DIRECTORY`.
pub(super) fn unmount(open: &Open, target: &str, force: bool) -> Result<Vec<String>, Refusal> {
    let mut table = open.table();
    open.forget_finished(&mut table);
    let reports = table.reports();
    let place = Path::new(target).canonicalize().unwrap_or_else(|_| PathBuf::from(target));
    let is_meant = |one: &&rzfs::protocol::MountReport| {
        one.dataset == target || Path::new(&one.mountpoint) == place
    };
    let Some(mount) = reports.iter().find(is_meant) else {
        let message = format!("cannot unmount '{target}': not currently mounted");
        return Err(Refusal { message });
    };
    let ended = table.unmount(&[mount.dataset.clone()].into(), in_use(force))?;
    open.close_file_systems(&ended);
    // What shared the mount goes on without it; what is below it does not.
    let is_below = |name: &String| {
        let rest = name.strip_prefix(&mount.dataset);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let others = ended.into_iter().filter(|name| !is_below(name)).collect();
    Ok(mount_more(open, &mut table, others, Choice::All))
}

/// `zfs unmount -a`.
pub(super) fn unmount_all(open: &Open, force: bool) -> Result<Vec<String>, Refusal> {
    let mut table = open.table();
    let names: BTreeSet<String> = table.reports().into_iter().map(|one| one.dataset).collect();
    table.unmount_all(in_use(force))?;
    open.close_file_systems(&names);
    Ok(Vec::new())
}

/// Mounts file systems; tells what could not be mounted.
pub(super) fn mount_more(
    open: &Open,
    table: &mut MountTable,
    mut names: BTreeSet<String>,
    choice: Choice,
) -> Vec<String> {
    let mut complaints = Vec::new();
    if open.mounter().nesting() == Nesting::Grafts {
        match open.planned(Some(&names), choice) {
            Ok(planned) => complaints.extend(end_outer(open, table, &planned, &mut names)),
            Err(error) => return vec![error.to_string()],
        }
    }
    match open.planned(Some(&names), choice) {
        Ok(planned) => {
            complaints.extend(open.mounter().mount_all(&planned, table));
        }
        Err(error) => complaints.push(error.to_string()),
    }
    complaints
}

/// File systems that share a mount are mounted together: the mounts around new ones are ended, to
/// be made again with them.
fn end_outer(
    open: &Open,
    table: &mut MountTable,
    planned: &[Planned],
    names: &mut BTreeSet<String>,
) -> Option<String> {
    let places = planned.iter().map(|(_, plan)| plan.mountpoint.as_path());
    let outer: BTreeSet<String> =
        places.filter_map(|place| table.around(place)).map(|mount| mount.dataset.clone()).collect();
    match table.unmount(&outer, InUse::Refuse) {
        Ok(ended) => {
            open.close_file_systems(&ended);
            names.extend(ended);
            None
        }
        Err(refusal) => {
            names.retain(|name| outer.contains(name));
            Some(refusal.message)
        }
    }
}
