//! Carries out changes of a pool requested by commands.

mod datasets;
mod exchange;
mod keys;
mod mounts;
mod pool;
mod problem;
mod properties;
mod receiving;
mod several;
mod snapshots;
mod sweep;

pub(super) use mounts::{Ended, all_restored as taken_back, end_all as end_mounts};
pub(super) use pool::{ByPath, plan_add, set_on};
pub(super) use receiving::{Arrivals, Ended as EndedArrival};
pub(super) use sweep::observe as observe_sweeps;

use super::open::Open;
use super::refusal::{SUSPENDED, refusal};
use crate::daemon::Caller;
use crate::protocol::{Change, Refusal};
use rzfs_dsl::live::Event;

/// The operation, in OpenZFS's words, that is refused while the pool waits for its devices: ending
/// and remaking mounts would wait too, or stop halfway. Other changes fail when they are written.
fn needs_devices(change: &Change, pool: &str) -> Option<String> {
    let (verb, name) = match change {
        Change::Destroy { names, .. } => ("destroy", names.first()?.as_str()),
        Change::Rename { from, .. } => ("rename", from.as_str()),
        Change::Rollback { snapshot } => ("rollback", snapshot.split('@').next()?),
        Change::RaiseVersion { name, .. } => ("upgrade", name.as_str()),
        Change::Set { name, .. } => ("set property for", name.as_str()),
        Change::Inherit { name, .. } => ("inherit property for", name.as_str()),
        Change::Mount { name, .. } => ("mount", name.as_str()),
        Change::MountAll { .. } => ("mount", pool),
        Change::Remount { name, .. } => ("remount", name.as_str()),
        Change::Unmount { target, force: false } => ("unmount", target.as_str()),
        Change::UnmountAll { force: false } => ("unmount", pool),
        Change::Sync => ("sync", pool),
        _ => return None,
    };
    Some(format!("cannot {verb} '{name}'"))
}

/// Carries out a change and logs it in the pool's history; returns complaints about secondary
/// failures.
pub(super) fn carry_out(
    open: &Open,
    change: Change,
    command: Option<String>,
    caller: Caller,
) -> Result<Vec<String>, Refusal> {
    if open.is_suspended()
        && let Some(what) = needs_devices(&change, &open.name())
    {
        return Err(refusal(what, SUSPENDED));
    }
    // Others leave it to these to tell of logs that were given up.
    let opens_file_systems =
        matches!(change, Change::Mount { .. } | Change::MountAll { .. } | Change::LoadKey { .. });
    let done = match change {
        Change::Create(new) => datasets::create(open, &new),
        Change::Destroy { names, force, newcomers } => {
            datasets::destroy(open, &names, force, newcomers)
        }
        Change::Snapshot { names, properties } => snapshots::take(open, names, &properties),
        Change::DestroySnapshots { names, defer } => snapshots::destroy(open, &names, defer),
        Change::RenameSnapshots { names, to } => snapshots::rename(open, &names, &to),
        Change::Rollback { snapshot } => snapshots::roll_back(open, &snapshot),
        Change::Clone(new) => snapshots::clone(open, new),
        Change::AbandonReceive { name } => receiving::abandon(open, &name),
        Change::RaiseVersion { name, version } => datasets::raise_version(open, &name, version),
        Change::Promote { name } => snapshots::promote(open, &name),
        Change::Hold { names, tag } => snapshots::hold(open, &names, &tag),
        Change::Release { names, tag } => snapshots::release(open, &names, &tag),
        Change::Bookmark { source, name } => snapshots::bookmark(open, source, &name),
        Change::DestroyBookmark { name } => snapshots::destroy_bookmark(open, name),
        Change::Rename { from, to, ancestors, force, leave_mounted } => {
            let mounts = match leave_mounted {
                true => datasets::RenamedMounts::Stay,
                false => datasets::RenamedMounts::Settle,
            };
            let renaming = datasets::Renaming { from, to, ancestors, force, mounts };
            datasets::rename(open, &renaming)
        }
        Change::Set { name, properties, leave_mounted } => {
            properties::set(open, &name, &properties, leave_mounted)
        }
        Change::Inherit { name, property, received } => {
            properties::inherit(open, &name, &property, received)
        }
        Change::Mount { name, manner } => mounts::mount(open, &name, manner),
        Change::MountAll { manner } => mounts::mount_all(open, &manner),
        Change::Remount { name, temporary } => mounts::remount(open, &name, temporary),
        Change::Unmount { target, force } => mounts::unmount(open, &target, force),
        Change::UnmountAll { force } => mounts::unmount_all(open, force),
        Change::LoadKey { name, key, purpose } => keys::load(open, &name, &key, purpose),
        Change::UnloadKey { name } => keys::unload(open, &name),
        Change::ChangeKey { name, request } => keys::change(open, &name, &request),
        Change::SetPool { property } => pool::set(open, &property),
        Change::Add(request) => pool::add(open, &request),
        Change::Upgrade => pool::upgrade(open),
        Change::Clear { vdev } => pool::clear(open, vdev.as_deref()),
        Change::Sweep(request) => sweep::sweep(open, &request),
        Change::PruneDedup(limit) => pool::prune_dedup(open, limit),
        Change::PrefetchDedup => pool::prefetch_dedup(open),
        Change::Reguid => pool::reguid(open),
        Change::Sync => pool::sync(open),
    };
    let complaints = match opens_file_systems {
        true => with_dropped_logs(open, done)?,
        false => done?,
    };
    remember(open, command, caller)?;
    Ok(complaints)
}

/// Tells besides of intent logs of which not everything could be done, as file systems were opened.
fn with_dropped_logs(
    open: &Open,
    done: Result<Vec<String>, Refusal>,
) -> Result<Vec<String>, Refusal> {
    let Ok(pool) = open.writable() else { return done };
    let logs = pool.live().take_dropped_logs();
    let lines = logs.iter().map(ToString::to_string);
    match done {
        Ok(complaints) => Ok(complaints.into_iter().chain(lines).collect()),
        Err(Refusal { kind, message }) => {
            let lines: Vec<_> = std::iter::once(message).chain(lines).collect();
            Err(Refusal::of_kind(kind, lines.join("\n")))
        }
    }
}

/// Logs a command in the pool's history, unless the pool is suspended.
pub(super) fn remember(
    open: &Open,
    command: Option<String>,
    caller: Caller,
) -> Result<(), Refusal> {
    let remembered = command.filter(|_| !open.is_suspended()).zip(open.writable().ok());
    if let Some((line, pool)) = remembered {
        open.events.note("history_event", [("history_command", line.clone())]);
        let event = Event::Command { line, user: caller.user.into() };
        pool.live().log(event).map_err(|_| refusal(pool.name(), SUSPENDED))?;
    }
    Ok(())
}
