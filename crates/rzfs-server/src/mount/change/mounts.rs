//! Mounts of an imported pool.
//!
//! ```text
//! unmount        the named mounts and those below: all of them, or none
//! the change     of properties or names
//! settle         former mounts at their new places, and file systems that have got one
//! ```
//! When a step is refused the former mounts are restored.

use super::super::mounter::{Nesting, Planned};
use super::super::plan::{Candidate, LEGACY, MountsAfterChange, PlannedMount, Site, aftermath};
use super::super::table::{MountTable, Unmounted};
use crate::mount::open::Open;
use crate::mount::refusal::{refusal, unopened};
use crate::protocol::{MountManner, Refusal, RefusalKind, Temporary};
use crate::request::Choice;
use rzfs_dsl::dataset::property::DatasetProperty;
use rzfs_dsl::dataset::{DatasetError, DatasetKind, KeyStatus};
use rzfs_fuse::{CoveredContents, InUse, MountError};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::{Path, PathBuf};

pub(super) fn in_use(force: bool) -> InUse {
    if force { InUse::Detach } else { InUse::Refuse }
}

/// `zfs mount NAME`, or mount(8) with a directory.
pub(super) fn mount(open: &Open, name: &str, manner: MountManner) -> Result<Vec<String>, Refusal> {
    let cannot = |reason: &str| refusal(format_args!("cannot mount '{name}'"), reason);
    let view = open.view().map_err(|error| unopened(name, error))?;
    let fail = |error: DatasetError| match error {
        DatasetError::NotFound { .. } => unopened(name, "dataset does not exist"),
        error => unopened(name, error),
    };
    let dataset = view.datasets().open(name).map_err(fail)?;
    if dataset.kind().map_err(fail)? != DatasetKind::FileSystem {
        return Err(unopened(name, "operation not applicable to datasets of this type"));
    }
    let mountpoint = dataset.text(DatasetProperty::MountPoint).map_err(fail)?;
    match (&*mountpoint, &manner.directory) {
        (LEGACY, Some(_)) => {}
        (LEGACY, None) => {
            let reason = "legacy mountpoint\nuse mount(8) to mount this filesystem";
            return Err(cannot(reason));
        }
        (_, Some(directory)) => {
            let directory = directory.display();
            let message = format!(
                "filesystem '{name}' cannot be mounted using 'mount': its mountpoint is \
                 '{mountpoint}', not 'legacy'\n\
                 'zfs mount {name}' mounts it there, 'zfs set mountpoint={directory} {name}' here"
            );
            return Err(Refusal::new(message));
        }
        ("none", None) => return Err(cannot("no mountpoint set")),
        _ => {}
    }
    if dataset.text(DatasetProperty::CanMount).map_err(fail)? == "off" {
        return Err(cannot("'canmount' property is set to 'off'"));
    }
    if dataset.key_status().map_err(fail)? == KeyStatus::Unavailable {
        return Err(cannot("encryption key not loaded"));
    }
    if dataset.is_inconsistent() {
        let reason = match dataset.is_resumable().map_err(fail)? {
            true => {
                "Contains partially-completed state from \"zfs receive -s\", which can be resumed \
                 with \"zfs send -t\""
            }
            false => "it is being received",
        };
        return Err(cannot(reason));
    }
    let mut table = open.table()?;
    open.forget_finished(&mut table);
    if table.of_dataset(name).is_some() {
        return Err(cannot("filesystem already mounted"));
    }
    let planned = match manner.directory.clone() {
        Some(directory) => {
            let plan = PlannedMount::new(name.to_owned(), directory, CoveredContents::Hidden);
            Ok(vec![(dataset, PlannedMount { site: Site::Named, ..plan })])
        }
        None => open.planned(Some(&[name.to_owned()].into()), Choice::All),
    };
    let planned = planned.map_err(fail)?;
    match carry_out(open, &mut table, in_manner(planned, &manner)).as_slice() {
        [] => Ok(Vec::new()),
        complaints => Err(Refusal::new(complaints.join("\n"))),
    }
}

/// `zfs mount -a`.
pub(super) fn mount_all(open: &Open, manner: &MountManner) -> Result<Vec<String>, Refusal> {
    let mut table = open.table()?;
    open.forget_finished(&mut table);
    let planned = match open.planned(None, Choice::Automatic) {
        Ok(planned) => planned,
        Err(error) => return Err(Refusal::new(error.to_string())),
    };
    Ok(carry_out(open, &mut table, in_manner(planned, manner)))
}

/// Applies a command's options to plans.
fn in_manner(mut planned: Vec<Planned>, manner: &MountManner) -> Vec<Planned> {
    for (_, plan) in &mut planned {
        plan.temporary = manner.temporary.or(plan.temporary);
        if manner.overlay {
            plan.underneath = CoveredContents::Hidden;
        }
    }
    planned
}

/// `mount -o remount`.
pub(super) fn remount(
    open: &Open,
    name: &str,
    temporary: Temporary,
) -> Result<Vec<String>, Refusal> {
    let cannot = |reason: &dyn Display| refusal(format_args!("cannot remount '{name}'"), reason);
    let view = open.view().map_err(|error| cannot(&error))?;
    let mut table = open.table()?;
    open.forget_finished(&mut table);
    let mount = table.of_datasets_mut(&[name.to_owned()].into()).next();
    let mount = mount.ok_or_else(|| cannot(&"not currently mounted"))?;
    if mount.dataset != name {
        let shared = format!("it shares the mount of '{}'", mount.dataset);
        return Err(cannot(&shared));
    }
    let dataset = view.datasets().open(name).map_err(|error| cannot(&error))?;
    let remounted = open.mounter().remount(mount, &dataset, temporary);
    remounted.map_err(|error| match error.downcast_ref::<MountError>() {
        Some(error) => cannot(&error.reason()),
        None => cannot(&error),
    })?;
    if temporary.readonly == Some(true)
        && let Ok(pool) = open.writable()
    {
        // The user may go on to copy its devices, or to cut the power.
        pool.sync().map_err(|error| cannot(&error))?;
    }
    Ok(Vec::new())
}

/// `zfs unmount NAME|DIRECTORY`.
pub(super) fn unmount(open: &Open, target: &str, force: bool) -> Result<Vec<String>, Refusal> {
    // Only an absolute path counts as a directory. It is resolved before the mounts are locked.
    let place = target
        .starts_with('/')
        .then(|| Path::new(target).canonicalize().unwrap_or_else(|_| PathBuf::from(target)));
    let mut table = open.table()?;
    open.forget_finished(&mut table);
    let reports = table.reports();
    let is_meant = |one: &&crate::protocol::MountReport| match &place {
        Some(place) => Path::new(&one.mountpoint) == place,
        None => one.dataset == target,
    };
    let Some(mount) = reports.iter().find(is_meant) else {
        let found = open.view().map(|view| view.datasets().open(target));
        if !target.starts_with('/') && matches!(found, Ok(Err(DatasetError::NotFound { .. }))) {
            return Err(unopened(target, "dataset does not exist"));
        }
        let message = format!("cannot unmount '{target}': not currently mounted");
        return Err(Refusal::new(message));
    };
    let site = table.of_dataset(target).and_then(|one| one.site_of(target));
    if place.is_none() && site == Some(Site::Named) {
        let reason = "legacy mountpoint\nuse umount(8) to unmount this filesystem";
        return Err(Refusal::new(format!("cannot unmount '{target}': {reason}")));
    }
    let is_below = |name: &str| {
        let rest = name.strip_prefix(&mount.dataset);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let (above, place) = (&mount.mountpoint, Path::new(&mount.mountpoint));
    let is_inside = |other: &&crate::protocol::MountReport| {
        other.mountpoint != *above && Path::new(&other.mountpoint).starts_with(place)
    };
    if reports.iter().filter(is_inside).any(|other| !is_below(&other.dataset)) {
        let message = format!("cannot unmount '{above}': pool or dataset is busy");
        return Err(Refusal::of_kind(RefusalKind::StillMounted, message));
    }
    let ended = end(open, &mut table, &[mount.dataset.clone()].into(), in_use(force))?;
    // File systems that shared the mount stay mounted; those below it do not.
    let others = ended.iter().filter(|plan| !is_below(&plan.dataset)).cloned().collect();
    match mount_again(open, &mut table, others).as_slice() {
        [] => Ok(Vec::new()),
        lost => Err(taken_back(open, &mut table, ended, Refusal::new(lost.join("\n")))),
    }
}

/// `zfs unmount -a`: ends all mounts not in use.
pub(super) fn unmount_all(open: &Open, force: bool) -> Result<Vec<String>, Refusal> {
    let mut table = open.table()?;
    open.forget_finished(&mut table);
    let (ended, refused) = table.unmount_each(in_use(force));
    open.close_file_systems(&table, ended.iter().map(|plan| plan.dataset.as_str()));
    match refused.is_empty() {
        true => Ok(Vec::new()),
        false => Err(Refusal::new(refused.join("\n"))),
    }
}

/// The result of ending all mounts of a pool.
pub(in crate::mount) struct Ended {
    /// The former mounts.
    pub(in crate::mount) plans: Vec<PlannedMount>,
    /// Mounts that stay without a server; only for forced ends.
    pub(in crate::mount) stuck: Vec<String>,
}

/// Ends all mounts, or none; returns the former ones. Mounts that remain reachable elsewhere are in
/// use: their users would be left without a pool.
pub(in crate::mount) fn end_all(
    open: &Open,
    in_use: InUse,
    pool_is_busy: impl FnOnce() -> Refusal,
) -> Result<Ended, Refusal> {
    let mut table = open.table_at_the_end();
    open.forget_finished(&mut table);
    if in_use == InUse::Refuse && table.is_in_use_elsewhere() {
        return Err(pool_is_busy());
    }
    let mut unmounted = table.unmount_all(in_use);
    if in_use == InUse::Refuse && unmounted.refused.is_none() && !unmounted.elsewhere.is_empty() {
        unmounted.refused = Some(pool_is_busy());
    }
    let stuck = std::mem::take(&mut unmounted.stuck);
    let plans = all_or_none(open, &mut table, unmounted)?;
    // A mount made meanwhile would have no server.
    table.close();
    Ok(Ended { plans, stuck })
}

/// Restores the mounts that [`end_all`] has ended for a refused operation.
pub(in crate::mount) fn all_restored(
    open: &Open,
    ended: Vec<PlannedMount>,
    refusal: Refusal,
) -> Refusal {
    let mut table = open.table_at_the_end();
    table.reopen();
    taken_back(open, &mut table, ended, refusal)
}

/// Ends the mounts of these file systems and those below, or none; returns the former ones.
pub(super) fn end(
    open: &Open,
    table: &mut MountTable,
    names: &BTreeSet<String>,
    in_use: InUse,
) -> Result<Vec<PlannedMount>, Refusal> {
    let unmounted = table.unmount(names, in_use);
    all_or_none(open, table, unmounted)
}

fn all_or_none(
    open: &Open,
    table: &mut MountTable,
    unmounted: Unmounted,
) -> Result<Vec<PlannedMount>, Refusal> {
    let Unmounted { ended, refused, .. } = unmounted;
    open.close_file_systems(table, ended.iter().map(|plan| plan.dataset.as_str()));
    match refused {
        None => Ok(ended),
        Some(refusal) => Err(taken_back(open, table, ended, refusal)),
    }
}

/// Restores the mounts that were ended for a refused operation.
pub(super) fn taken_back(
    open: &Open,
    table: &mut MountTable,
    ended: Vec<PlannedMount>,
    refusal: Refusal,
) -> Refusal {
    let complaints = mount_again(open, table, ended);
    let Refusal { kind, message } = refusal;
    let lines: Vec<_> = std::iter::once(message).chain(complaints).collect();
    Refusal::of_kind(kind, lines.join("\n"))
}

/// Mounts file systems where they were; returns complaints about failures.
pub(super) fn mount_again(
    open: &Open,
    table: &mut MountTable,
    ended: Vec<PlannedMount>,
) -> Vec<String> {
    match open.reopened(ended) {
        Ok(planned) => carry_out(open, table, planned),
        Err(error) => vec![error.to_string()],
    }
}

/// What becomes of what could not be mounted by itself before a change, and can be now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NowPossible {
    Mounted,
    Left,
}

/// Makes the mounts due after a change; returns complaints about failures.
pub(super) fn settle(
    open: &Open,
    table: &mut MountTable,
    (before, now_possible): (&[Candidate], NowPossible),
    ended: Vec<PlannedMount>,
    renamed: impl Fn(&str) -> String,
) -> Vec<String> {
    let planned = || {
        let MountsAfterChange { kept, mut placed } =
            aftermath(before, &open.candidates()?, ended, renamed);
        if now_possible == NowPossible::Left {
            placed.retain(|_, former| former.is_some());
        }
        let mut planned = open.reopened(kept)?;
        let mut places = open.places(&placed.keys().cloned().collect())?;
        let (mut before, mut was_shared) = (placed, Vec::new());
        for (_, plan) in &mut places {
            let Some(Some(former)) = before.remove(&plan.dataset) else { continue };
            plan.temporary = former.temporary;
            if former.shared.is_some() {
                was_shared.push(PlannedMount { shared: former.shared, ..plan.clone() });
            }
        }
        planned.extend(places);
        Ok::<_, DatasetError>((planned, was_shared))
    };
    let (planned, was_shared) = match planned() {
        Ok(planned) => planned,
        Err(error) => return vec![error.to_string()],
    };
    let mut complaints = carry_out(open, table, planned);
    // What should have another mount than the one that it has shared, which is in use, shares it still.
    match open.reopened(was_shared) {
        Ok(mut left) => {
            left.retain(|(dataset, plan)| {
                let anew = (dataset.clone(), PlannedMount { shared: None, ..plan.clone() });
                unfit(open, table, &anew).is_some()
            });
            complaints.extend(carry_out(open, table, left));
        }
        Err(error) => complaints.push(error.to_string()),
    }
    complaints
}

/// Mounts file systems; returns complaints about failures.
pub(super) fn mount_more(
    open: &Open,
    table: &mut MountTable,
    names: &BTreeSet<String>,
    choice: Choice,
) -> Vec<String> {
    match open.planned(Some(names), choice) {
        Ok(planned) => carry_out(open, table, planned),
        Err(error) => vec![error.to_string()],
    }
}

/// Mounts file systems that are not mounted yet; returns complaints about failures.
///
/// Mounts below a new mount would be hidden by it, and a mount that a new file system is to share
/// may need other options: such mounts are ended, and made again with the new ones. If one of them
/// is in use the new mounts that it blocks are left out; if one cannot be made again the new ones
/// are undone.
fn carry_out(open: &Open, table: &mut MountTable, mut planned: Vec<Planned>) -> Vec<String> {
    planned.retain(|(dataset, _)| table.of_dataset(dataset.name()).is_none());
    if table.is_closed() {
        let told = |(dataset, _): &Planned| {
            format!("cannot mount '{}': its pool is being let go of", dataset.name())
        };
        return planned.iter().map(told).collect();
    }
    let names = planned.iter().flat_map(|one| conflicting_mounts(open, table, one)).collect();
    let mut complaints = Vec::new();
    let made_way = match end(open, table, &names, InUse::Refuse) {
        Ok(ended) => ended,
        Err(refusal) => {
            complaints.push(refusal.message);
            planned.retain(|one| conflicting_mounts(open, table, one).is_empty());
            Vec::new()
        }
    };
    let new = planned.iter().map(|(_, plan)| plan.dataset.clone()).collect();
    match open.reopened(made_way.clone()) {
        Ok(again) => planned.extend(again),
        Err(error) => complaints.push(error.to_string()),
    }
    complaints.extend(make(open, table, planned));
    complaints.extend(remount_displaced(open, table, made_way, &new));
    complaints
}

/// The mounts to be made after, or together with, a planned one.
fn conflicting_mounts(open: &Open, table: &MountTable, planned: &Planned) -> BTreeSet<String> {
    table.below(&planned.1.mountpoint).chain(unfit(open, table, planned)).collect()
}

/// The outermost file system of the mount that a planned one is to share, if it cannot as that is. What
/// has shared it goes back as it was: it may not fit since properties were set while it was in use.
fn unfit(open: &Open, table: &MountTable, planned: &Planned) -> Option<String> {
    let shared = match open.mounter().nesting() {
        Nesting::Mounts => None,
        Nesting::Grafts => table.around(&planned.1.mountpoint),
    };
    let shared = shared.filter(|outer| planned.1.shared.as_ref() != Some(&outer.mountpoint));
    let shared = shared.filter(|outer| !open.mounter().fits(planned, outer));
    shared.map(|outer| outer.dataset.clone())
}

/// Restores mounts that `made_way` for `new` ones and could not be made with them.
fn remount_displaced(
    open: &Open,
    table: &mut MountTable,
    made_way: Vec<PlannedMount>,
    new: &BTreeSet<String>,
) -> Vec<String> {
    let is_mounted = |plan: &PlannedMount| table.of_dataset(&plan.dataset).is_some();
    if made_way.iter().all(is_mounted) {
        return Vec::new();
    }
    let Unmounted { ended, .. } = table.unmount(new, InUse::Refuse);
    open.close_file_systems(table, ended.iter().map(|plan| plan.dataset.as_str()));
    let missing = made_way.into_iter().filter(|plan| table.of_dataset(&plan.dataset).is_none());
    match open.reopened(missing.collect()) {
        Ok(missing) => make(open, table, missing),
        Err(error) => vec![error.to_string()],
    }
}

fn make(open: &Open, table: &mut MountTable, mut planned: Vec<Planned>) -> Vec<String> {
    planned.sort_by(|(_, a), (_, b)| a.order(b));
    let failures = open.mounter().mount_all(&planned, table);
    failures.iter().map(ToString::to_string).collect()
}
