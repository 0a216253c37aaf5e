//! Removing the directories that were made for mounts.
//!
//! ```text
//! remove ── in time ──> gone
//!        └─ late ─────> not waited for; later ones in the same file system are removed after it
//! ```
//! Such a directory may be in a mount of a pool that waits for its devices. The pool may be served
//! by this or another process, so it is unknown when, or whether, it resumes.

use crate::errands;
use crate::place::{FileSystemNumber, MadeDirectory};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Removals of directories that were made for mounts, in order.
#[derive(Debug, Default)]
pub struct Removals(Vec<Remover>);

impl Removals {
    /// Removes a directory if it is empty and still there. Returns early if that takes longer than
    /// `patience`, or an earlier removal in the same file system is pending.
    pub fn remove(&mut self, made: MadeDirectory, patience: Duration) {
        self.drop_done();
        let held_up = self.0.iter_mut().find(|one| one.file_system == made.file_system());
        if let Some(remover) = held_up {
            return remover.add(made);
        }
        let mut remover = Remover::new(made.file_system());
        remover.add(made);
        if !remover.is_done(patience) {
            tracing::warn!(directories = ?remover.waiting, "made for mounts, not removed yet");
            self.0.push(remover);
        }
    }

    fn drop_done(&mut self) {
        self.0.retain_mut(|one| !one.is_done(Duration::ZERO));
    }

    /// Whether the removal of a directory is pending.
    #[must_use]
    pub fn has(&mut self, directory: &Path) -> bool {
        self.drop_done();
        self.0.iter().any(|one| one.has(directory))
    }

    /// Waits until the removal of a directory is no longer pending; returns whether it is not.
    pub fn settle(&mut self, directory: &Path, patience: Duration) -> bool {
        let remover = self.0.iter_mut().find(|one| one.has(directory));
        remover.is_none_or(|one| one.is_done(patience))
    }
}

/// Removes the directories of one file system, one after the other.
#[derive(Debug)]
struct Remover {
    file_system: FileSystemNumber,
    /// The pending ones, the next first.
    waiting: VecDeque<PathBuf>,
    rest: Sender<MadeDirectory>,
    /// Receives a message for each finished one.
    done: Receiver<()>,
}

impl Remover {
    fn new(file_system: FileSystemNumber) -> Self {
        let (rest, directories) = channel::<MadeDirectory>();
        let (say, done) = channel();
        errands::begin(move || {
            for made in directories {
                if let Err(error) = made.remove_here() {
                    // Another process may have put something there.
                    tracing::debug!(%error, "a directory that was made for a mount stays");
                }
                // The caller may have given up.
                let _ = say.send(());
            }
        });
        Self { file_system, waiting: VecDeque::new(), rest, done }
    }

    fn add(&mut self, made: MadeDirectory) {
        let path = made.path().to_owned();
        if self.rest.send(made).is_ok() {
            self.waiting.push_back(path);
        }
    }

    fn has(&self, directory: &Path) -> bool {
        self.waiting.iter().any(|waiting| waiting == directory)
    }

    /// Waits for all removals; returns whether they finished in time.
    fn is_done(&mut self, patience: Duration) -> bool {
        use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
        let start = Instant::now();
        while !self.waiting.is_empty() {
            match self.done.recv_timeout(patience.saturating_sub(start.elapsed())) {
                Ok(()) => drop(self.waiting.pop_front()),
                Err(Timeout) => return false,
                // There is no thread for them.
                Err(Disconnected) => self.waiting.clear(),
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::MountPlace;
    use std::fs;

    /// Longer than anything takes unless it hangs.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn what_follows_a_directory_that_is_not_removed_yet_is_removed_after_it() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let [outer, inner] = ["outer", "outer/inner"]
            .map(|name| MountPlace::within(&base, Path::new(name)).unwrap().made().unwrap());
        let mut removals = Removals::default();
        // A pending removal that is never carried out.
        let (rest, directories) = channel();
        let (say, done) = channel();
        let waiting = VecDeque::from([inner.path().to_owned()]);
        removals.0.push(Remover { file_system: inner.file_system(), waiting, rest, done });
        removals.remove(outer.clone(), LONG);
        assert!(removals.has(outer.path()) && !removals.settle(outer.path(), Duration::ZERO));
        assert!(!removals.has(&base) && removals.settle(&base, Duration::ZERO));
        // It goes on.
        for made in
            std::iter::once(inner).chain(std::iter::once_with(|| directories.recv().unwrap()))
        {
            made.remove_here().unwrap();
            say.send(()).unwrap();
        }
        while removals.has(outer.path()) {
            // It happens without another call.
            std::thread::yield_now();
        }
        assert!(removals.settle(outer.path(), LONG));
        assert!(fs::symlink_metadata(outer.path()).is_err());
        // There is no earlier removal.
        let next = MountPlace::within(&base, Path::new("next")).unwrap().made().unwrap();
        removals.remove(next, LONG);
        assert!(removals.0.is_empty() && !base.join("next").exists());
    }
}
