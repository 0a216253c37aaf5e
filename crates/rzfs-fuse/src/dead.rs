//! Mounts whose server process is gone.
//!
//! A killed process leaves its mounts: they stay in the directory tree, and every request to them
//! fails with `ENOTCONN`. Mounts inside a dead mount remain reachable as long as the kernel has the
//! directories on the path cached.

use crate::attachment::Attachment;
use crate::connection::{Connections, Registered};
use crate::errands;
use crate::mount::Mount;
use crate::options::InUse;
use crate::place::{look_at, mount_of};
use crate::system_mounts::{KIND, MountId, SystemMount};
use rustix::fs::fstatfs;
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a mount may take to show that it is served.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long detaching all aborted mounts may take: those not reached by then stay.
const ABANDON_PATIENCE: Duration = Duration::from_secs(10);

/// The state of a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    /// It has no server.
    Dead,
    /// It is unreachable behind a dead mount.
    BehindDead,
    /// It is, or may be, served: one that does not respond is left alone.
    Served,
}

/// Detaches the dead mounts that are our `own`, by source and directory; returns their directories.
/// Mounts that are served, that have foreign mounts on them, or that this user may not touch stay.
/// Unreachable mounts of our kind inside a dead one go with it.
///
/// # Errors
/// The mount table cannot be read.
pub fn clear_dead_mounts(own: impl Fn(&str, &Path) -> bool) -> io::Result<Vec<PathBuf>> {
    clear(|mount| own(&mount.source, &mount.directory))
}

/// The same for ended mounts of this process: if their connections were aborted they stay attached,
/// fail all requests, and keep the mounts around them from being unmounted. Those that are still
/// reachable are left alone.
///
/// # Errors
/// The mount table cannot be read.
pub fn clear_aborted_mounts<'a>(
    ended: impl IntoIterator<Item = &'a Mount>,
) -> io::Result<Vec<PathBuf>> {
    let ended = ended.into_iter().filter(|mount| !mount.is_reachable());
    let ended: Vec<_> = ended.map(Mount::attachment).collect();
    match ended.is_empty() {
        true => Ok(Vec::new()),
        // Whatever the file system is called now.
        false => clear(|mount| ended.iter().any(|one| one.has_superblock_of(mount))),
    }
}

/// Aborts the mounts of some connections for all users, as this process ends and cannot end them in
/// order: first all connections are aborted, where this user may do so, then the mounts that can be
/// reached in time are detached.
///
/// # Errors
/// The mount table cannot be read.
pub fn abandon_mounts(connections: &Connections) -> io::Result<()> {
    let cut_off = connections.cut_off();
    let until = Instant::now() + ABANDON_PATIENCE;
    let mut left = detach(&cut_off, until)?;
    if !left.is_empty() {
        // Mounts inside an aborted one were unreachable, but went with it.
        left = detach(&cut_off, until)?;
    }
    for mount in left {
        let directory = mount.directory.display();
        tracing::warn!(%directory, "a mount stays that nobody serves");
    }
    Ok(())
}

/// Detaches the mounts of some connections, innermost first; returns those that stay.
fn detach(connections: &[Registered], until: Instant) -> io::Result<Vec<SystemMount>> {
    let mut mounts = SystemMount::all()?;
    mounts.retain(|mount| connections.iter().any(|one| one.has(mount)));
    let is_detached = |mount: &SystemMount| {
        let mount = mount.clone();
        let left = until.saturating_duration_since(Instant::now());
        let detached =
            errands::attempt(left, move || Attachment::of_system(&mount).unmount(InUse::Detach));
        matches!(detached, Some(Ok(())))
    };
    Ok(mounts.into_iter().rev().filter(|mount| !is_detached(mount)).collect())
}

fn clear(is_own: impl Fn(&SystemMount) -> bool) -> io::Result<Vec<PathBuf>> {
    let mut cleared = Vec::new();
    let mut seen = Vec::new();
    // A mount below, or under, another one is reached when that one is gone.
    loop {
        let mounts = SystemMount::all()?;
        let is_ours = |mount: &SystemMount| mount.kind == KIND && is_own(mount);
        let is_candidate = |mount: &&SystemMount| is_ours(mount) && !seen.contains(&mount.id);
        let candidate = mounts.iter().rev().find(is_candidate).cloned();
        let Some(mount) = candidate else { return Ok(cleared) };
        seen.push(mount.id);
        let goes_along =
            |inner: &&SystemMount| is_ours(inner) && Standing::of(inner) == Standing::BehindDead;
        let inside = inside(&mounts, &mount);
        if Standing::of(&mount) == Standing::Dead
            && inside.iter().all(goes_along)
            && Attachment::of_system(&mount).unmount(InUse::Detach).is_ok()
        {
            cleared.extend(inside.into_iter().map(|inner| inner.directory.clone()));
            cleared.push(mount.directory);
            // Mounts that were unreachable may be reachable now.
            seen.clear();
        }
    }
}

/// The mounts that are on a mount, directly or indirectly.
fn inside<'a>(mounts: &'a [SystemMount], outer: &SystemMount) -> Vec<&'a SystemMount> {
    let mut inside: Vec<&SystemMount> = Vec::new();
    loop {
        let is_next = |one: &&SystemMount| {
            let is_on = |number| one.parent == number && one.id.number != number;
            let is_in = is_on(outer.id.number) || inside.iter().any(|on| is_on(on.id.number));
            is_in && !inside.iter().any(|known| known.id == one.id)
        };
        match mounts.iter().find(is_next) {
            Some(next) => inside.push(next),
            None => return inside,
        }
    }
}

impl Standing {
    /// Determines it by a request that the kernel never answers from its cache, so it may reach a
    /// server that does not respond, possibly this process.
    fn of(mount: &SystemMount) -> Self {
        let SystemMount { id, directory, .. } = mount.clone();
        let asked = errands::attempt(PATIENCE, move || Self::asked(id, &directory));
        asked.unwrap_or(Self::Served)
    }

    fn asked(id: MountId, directory: &Path) -> Self {
        let root = match look_at(directory) {
            Ok(root) => root,
            Err(error) if error.is_behind_dead() => return Self::BehindDead,
            Err(_) => return Self::Served,
        };
        // Another mount may cover it.
        let is_it = mount_of(root.as_fd()).is_ok_and(|found| found == id);
        match fstatfs(&root) {
            Err(Errno::NOTCONN) if is_it => Self::Dead,
            _ => Self::Served,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(number: u64, parent: u64) -> SystemMount {
        SystemMount {
            id: MountId { number, superblock: (0, 7) },
            parent,
            root: "/".into(),
            directory: format!("/{number}").into(),
            kind: KIND.to_owned(),
            source: "tank".to_owned(),
            is_read_only: false,
            user: None,
        }
    }

    #[test]
    fn what_is_inside_is_so_at_any_depth() {
        // The outermost mount is its own parent.
        let mounts = [(1, 1), (2, 1), (3, 2), (4, 3), (5, 1), (6, 5)];
        let mounts = mounts.map(|(number, parent)| mount(number, parent));
        for (outer, expected) in [(0, vec![2, 3, 4, 5, 6]), (1, vec![3, 4]), (3, vec![])] {
            let inside = inside(&mounts, &mounts[outer]);
            let mut numbers: Vec<_> = inside.iter().map(|one| one.id.number).collect();
            numbers.sort_unstable();
            assert_eq!(numbers, expected);
        }
    }
}
