//! Mounts whose process has gone.
//!
//! A process that is killed leaves its mounts: they stay in the tree of directories, and whatever
//! is asked of them fails with `ENOTCONN`.

use crate::attachment::Attachment;
use crate::mount::InUse;
use crate::system_mounts::SystemMount;
use rustix::io::Errno;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

/// How long a mount may take to show that somebody serves it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Takes dead mounts of ZFS file systems away whose source `is_own`; answers where they were. Those
/// that somebody serves stay, those on which something else is mounted, and those that this user
/// may not touch.
///
/// # Errors
/// Nobody can say what is mounted.
pub fn clear_dead_mounts(is_own: impl Fn(&str) -> bool) -> io::Result<Vec<PathBuf>> {
    let mut cleared = Vec::new();
    let mut seen = Vec::new();
    // What is below another one, or under it in the same place, is reached when that is gone.
    loop {
        let mounts = SystemMount::all()?;
        let is_candidate = |mount: &&SystemMount| {
            mount.kind == "fuse.zfs" && is_own(&mount.source) && !seen.contains(&mount.id)
        };
        let dead = mounts.iter().rev().find(is_candidate).cloned();
        let Some(mount) = dead else { return Ok(cleared) };
        seen.push(mount.id);
        let attachment = Attachment::of_system(&mount);
        let is_covered = mounts.iter().any(|other| other.parent == mount.id.number);
        if !is_covered && is_dead(&attachment) && attachment.unmount(InUse::Detach).is_ok() {
            cleared.push(mount.directory);
            // Others may be reached now that could not be.
            seen.clear();
        }
    }
}

/// Whether nobody serves a mount. Somebody who serves it, but does not answer, is left alone.
fn is_dead(mount: &Attachment) -> bool {
    let Ok(Some(found)) = mount.find() else { return false };
    let (sender, receiver) = mpsc::channel();
    let asking = move || {
        // The receiver may have lost its patience.
        let asked = found.entry.with_path(|path| rustix::fs::statfs(path).err());
        let _ = sender.send(asked.ok().flatten());
    };
    let asked = std::thread::Builder::new().name("rzfs-dead".to_owned()).spawn(asking);
    asked.is_ok() && receiver.recv_timeout(PATIENCE) == Ok(Some(Errno::NOTCONN))
}
