//! Mounts whose process has gone.
//!
//! A process that is killed leaves its mounts: they stay in the tree of directories, and whatever
//! is asked of them fails with `ENOTCONN`. What is mounted in a dead mount is reached as long as the
//! kernel remembers enough of the directories on the way; afterwards nobody gets to it any more.

use crate::attachment::Attachment;
use crate::mount::InUse;
use crate::system_mounts::SystemMount;
use rustix::io::Errno;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

/// How long a mount may take to show that somebody serves it.
const PATIENCE: Duration = Duration::from_secs(2);

/// What can be said of a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    /// Nobody serves it.
    Dead,
    /// Nobody gets to it, as there is a dead one on the way.
    BehindDead,
    /// Somebody serves it or may do so: who does not answer is left alone.
    Served,
}

/// Takes dead mounts of ZFS file systems away whose source `is_own`; answers where they were. Those
/// that somebody serves stay, those on which something else is mounted, and those that this user
/// may not touch. Of its own kind, what is in a dead one where nobody gets to it goes along.
///
/// # Errors
/// Nobody can say what is mounted.
pub fn clear_dead_mounts(is_own: impl Fn(&str) -> bool) -> io::Result<Vec<PathBuf>> {
    let mut cleared = Vec::new();
    let mut seen = Vec::new();
    // What is below another one, or under it in the same place, is reached when that is gone.
    loop {
        let mounts = SystemMount::all()?;
        let is_ours = |mount: &SystemMount| mount.kind == "fuse.zfs" && is_own(&mount.source);
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
            // Others may be reached now that could not be.
            seen.clear();
        }
    }
}

/// The mounts that are on a mount, or on one that is.
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
    /// Asks for it. What is asked is never answered from what the kernel remembers, so it may lead
    /// to a server that does not answer.
    fn of(mount: &SystemMount) -> Self {
        let (sender, receiver) = mpsc::channel();
        let mount = mount.clone();
        let asking = move || {
            // The receiver may have lost its patience.
            let _ = sender.send(Self::asked(&Attachment::of_system(&mount)));
        };
        let asked = std::thread::Builder::new().name("rzfs-dead".to_owned()).spawn(asking);
        let answer = asked.ok().and_then(|_| receiver.recv_timeout(PATIENCE).ok());
        answer.unwrap_or(Self::Served)
    }

    fn asked(mount: &Attachment) -> Self {
        let found = match mount.find() {
            Ok(Some(found)) => found,
            Err(error) if error.kind() == ErrorKind::NotConnected => return Self::BehindDead,
            Ok(None) | Err(_) => return Self::Served,
        };
        match found.entry.with_path(|path| rustix::fs::statfs(path)) {
            Ok(Err(Errno::NOTCONN)) => Self::Dead,
            _ => Self::Served,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system_mounts::MountId;

    fn mount(number: u64, parent: u64) -> SystemMount {
        SystemMount {
            id: MountId { number, superblock: (0, 7) },
            parent,
            directory: format!("/{number}").into(),
            kind: "fuse.zfs".to_owned(),
            source: "tank".to_owned(),
            is_read_only: false,
        }
    }

    #[test]
    fn what_is_inside_is_so_at_any_depth() {
        // The outermost is on itself.
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
