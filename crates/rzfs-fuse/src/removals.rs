//! Removing the directories that were made for mounts.
//!
//! ```text
//! remove ── in time ──> gone
//!        └─ late ─────> nobody waits; what follows in the same file system is removed after it
//! ```
//! Such a directory may be in a mount of a pool that waits for its devices. The pool may be served by
//! this process or by another one, so nobody can tell when it goes on, or whether.

use crate::errands;
use crate::place::{FileSystemNumber, MadeDirectory};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Removals of directories that were made for mounts, each in its turn.
#[derive(Debug, Default)]
pub struct Removals(Vec<Remover>);

impl Removals {
    /// Removes a directory if it is empty and still there. If that takes longer than `patience`, or
    /// an earlier one in the same file system is not removed yet, nobody waits for it.
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

    /// Whether a directory is about to be removed still.
    #[must_use]
    pub fn has(&mut self, directory: &Path) -> bool {
        self.drop_done();
        self.0.iter().any(|one| one.has(directory))
    }

    /// Waits until a directory is not about to be removed any more; tells whether that is so.
    pub fn settle(&mut self, directory: &Path, patience: Duration) -> bool {
        let remover = self.0.iter_mut().find(|one| one.has(directory));
        remover.is_none_or(|one| one.is_done(patience))
    }
}

/// Removes directories in one file system, one after the other.
#[derive(Debug)]
struct Remover {
    file_system: FileSystemNumber,
    /// Those that are not done yet, the next one first.
    waiting: VecDeque<PathBuf>,
    rest: Sender<MadeDirectory>,
    /// Says so for each that is done.
    done: Receiver<()>,
}

impl Remover {
    fn new(file_system: FileSystemNumber) -> Self {
        let (rest, directories) = channel::<MadeDirectory>();
        let (say, done) = channel();
        errands::begin(move || {
            for made in directories {
                if let Err(error) = made.remove_here() {
                    // Somebody may have put something there.
                    tracing::debug!(%error, "a directory that was made for a mount stays");
                }
                // Whoever has waited may be gone.
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

    /// Whether nothing is left to be done before patience ends.
    fn is_done(&mut self, patience: Duration) -> bool {
        use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
        let start = Instant::now();
        while !self.waiting.is_empty() {
            match self.done.recv_timeout(patience.saturating_sub(start.elapsed())) {
                Ok(()) => drop(self.waiting.pop_front()),
                Err(Timeout) => return false,
                // There is nobody to do it.
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

    /// Longer than anything takes that does not hang.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn what_follows_a_directory_that_is_not_removed_yet_is_removed_after_it() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let [outer, inner] = ["outer", "outer/inner"]
            .map(|name| MountPlace::within(&base, Path::new(name)).unwrap().made().unwrap());
        let mut removals = Removals::default();
        // One that waits: nobody carries it out.
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
            // Nobody else has to ask first.
            std::thread::yield_now();
        }
        assert!(removals.settle(outer.path(), LONG));
        assert!(fs::symlink_metadata(outer.path()).is_err());
        // The next one has nobody before it.
        let next = MountPlace::within(&base, Path::new("next")).unwrap().made().unwrap();
        removals.remove(next, LONG);
        assert!(removals.0.is_empty() && !base.join("next").exists());
    }
}
