//! Adding file systems to a mount, and removing them, while it is used.
//!
//! ```text
//! graft      the directory must exist ── the root replaces it ── the kernel forgets its name
//! ungraft    the kernel forgets the name, and all below ── it has forgotten everything ── removal
//! ```
//! The kernel drops cached entries at once, and those in use not at all. A file system goes in the
//! moment in which the kernel knows nothing of it: an earlier lookup keeps it, a later one does not
//! find it.

use super::places::{NotInserted, Placed};
use super::{Session, invalid};
use crate::adapter::Adapter;
use crate::grafts::GraftPoint;
use crate::mount_points::{MountPoints, Place};
use crate::options::{CoveredContents, Nested};
use fuser::{Errno, FileType, INodeNo};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// How long the kernel may take to forget the next file.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long until it is asked again: there may have been new lookups.
const ROUND: Duration = Duration::from_millis(20);
/// How long requests about a directory may keep the kernel from forgetting a name in it.
pub(super) const KERNEL_PATIENCE: Duration = Duration::from_secs(10);
/// The same where waiting must be short.
const FORCED_PATIENCE: Duration = Duration::from_secs(1);

/// Maximum number of threads that notify the kernel at once.
const MAX_NOTIFIERS: usize = 64;

impl Session {
    /// Grafts a file system onto a directory of the mount.
    ///
    /// # Errors
    /// There is no such directory, other file systems are there or below, or its contents are to be
    /// respected.
    pub(crate) fn graft(self: &Arc<Self>, nested: Nested) -> io::Result<()> {
        let (outcome, changed) = match self.insert(nested) {
            Ok(changed) => (Ok(()), Some(changed)),
            Err(NotInserted { error, changed }) => (Err(error), changed),
        };
        if let Some((directory, name)) = changed {
            self.tell_kernel(KERNEL_PATIENCE, move |session| {
                session.cache.forget_name(directory, &name);
            });
        }
        outcome
    }

    /// Adds a file system; returns the name about which the kernel's knowledge is outdated.
    pub(super) fn insert(&self, nested: Nested) -> Result<GraftPoint, NotInserted> {
        let Nested { path, file_system, control, underneath } = nested;
        let mut places = self.places.lock();
        let is_taken = |one: &Placed| one.path.starts_with(&path);
        if path.as_os_str().is_empty() || places.iter().any(is_taken) {
            return Err(io::Error::from(io::ErrorKind::ResourceBusy).into());
        }
        let (within, relative) = enclosing(&places, &path);
        let relative = relative.to_owned();
        let base = path.ancestors().nth(relative.components().count()).map(Path::to_owned);
        let base = base.unwrap_or_default();
        let directories = MountPoints::of(&file_system);
        let adapter = Arc::new(Adapter::new(file_system, control, directories));
        let outer = self.file_system(within).map_err(invalid)?;
        let _still = self.shape.write().unwrap_or_else(PoisonError::into_inner);
        let way = outer.make_path(&relative)?;
        let graft = || {
            let is_covered = |directory| self.grafts.is_place(within, directory);
            let (parent, directory) = directory_at(&outer, &relative, is_covered)?;
            let leads_through = |one: &Placed| {
                let path = one.path.strip_prefix(&base).unwrap_or(&one.path);
                directory_at(&outer, path, |above| above == directory) == Err(Errno::EBUSY)
            };
            if places.iter().any(|one| one.within == within && leads_through(one)) {
                return Err(Errno::EBUSY);
            }
            if underneath == CoveredContents::Respected && !outer.is_empty(directory)? {
                return Err(Errno::ENOTEMPTY);
            }
            let name = relative.file_name().unwrap_or_default().to_owned();
            let (inner, parent) = (parent, self.grafts.outer(within, parent));
            let parent = parent.ok_or(Errno::ENFILE)?;
            let entrance = (parent, name.clone());
            // It stays known, as its number is the place: the kernel sees the grafted root.
            let directory = outer.look_up(inner, name.as_bytes())?.attributes.ino;
            let Some(index) = self.grafts.insert((within, directory), entrance, adapter) else {
                outer.forget(directory, 1);
                return Err(Errno::EBUSY);
            };
            let changed = way.new.clone().and_then(|new| self.entrance_of(within, &outer, new));
            Ok((index, directory, changed.unwrap_or((parent, name))))
        };
        match graft() {
            Ok((file_system, directory, changed)) => {
                places.push(Placed { path, file_system, within, directory, way });
                Ok(changed)
            }
            Err(error) => {
                // A process may have seen it meanwhile.
                let gone = outer.drop_path(&way);
                let changed = gone.and_then(|gone| self.entrance_of(within, &outer, gone));
                Err(NotInserted { error: invalid(error), changed })
            }
        }
    }

    /// Makes directories for other mounts where the file system at the root lacks them.
    ///
    /// # Errors
    /// A directory above one cannot be read.
    pub(crate) fn make_mount_points(self: &Arc<Self>, paths: &[PathBuf]) -> io::Result<()> {
        let mut changed = Vec::new();
        {
            let _still = self.shape.write().unwrap_or_else(PoisonError::into_inner);
            let root = self.root();
            for path in paths {
                let new = root.make_path(path)?.new;
                changed.extend(new.and_then(|new| self.entrance_of(0, &root, new)));
            }
        }
        if !changed.is_empty() {
            self.tell_kernel(KERNEL_PATIENCE, move |session| {
                let names = changed.iter();
                names.for_each(|(above, name)| session.cache.forget_name(*above, name));
            });
        }
        Ok(())
    }

    /// Removes an unused file system from the mount.
    ///
    /// # Errors
    /// It is in use, or another one is in it.
    pub(crate) fn ungraft(self: &Arc<Self>, path: &Path) -> io::Result<()> {
        let placed = self.places.lock().iter().find(|one| one.path == path).cloned();
        let Some(placed) = placed else { return Ok(()) };
        let adapter = self.take_unused(placed.file_system)?;
        if let Some((directory, name)) = self.give_up_place(&placed) {
            self.tell_kernel(KERNEL_PATIENCE, move |session| {
                session.cache.forget_name(directory, &name);
            });
        }
        self.close_taken(adapter.into_iter().collect());
        Ok(())
    }

    /// Removes file systems from the mount even if they are in use, all in the time of one. Nested
    /// ones come first.
    pub(crate) fn ungraft_by_force(self: &Arc<Self>, paths: &[PathBuf]) {
        let placed: Vec<Placed> = {
            let places = self.places.lock();
            let at = |path: &PathBuf| places.iter().find(|one| one.path == *path).cloned();
            paths.iter().filter_map(at).collect()
        };
        let taken = self.force_ungraft(&placed);
        let gone: Vec<_> = placed.iter().filter_map(|one| self.give_up_place(one)).collect();
        self.notify_kernel_of_each(FORCED_PATIENCE, gone, |session, (directory, name)| {
            session.cache.forget_name(directory, &name);
        });
        self.close_taken(taken);
    }

    /// Forgets the place of a file system; returns the name that existed only for it.
    fn give_up_place(&self, placed: &Placed) -> Option<GraftPoint> {
        self.places.lock().retain(|one| one.path != placed.path);
        let outer = self.file_system(placed.within).ok()?;
        outer.forget(placed.directory, 1);
        let gone = outer.drop_path(&placed.way)?;
        self.entrance_of(placed.within, &outer, gone)
    }

    fn close_taken(&self, taken: Vec<Arc<Adapter>>) {
        // Earlier requests may not be answered yet.
        wait_until(PATIENCE, || taken.iter().all(|adapter| Arc::strong_count(adapter) == 1));
        taken.iter().for_each(|adapter| adapter.close());
    }

    /// Removes an unused file system.
    fn take_unused(self: &Arc<Self>, file_system: usize) -> io::Result<Option<Arc<Adapter>>> {
        let mut fewest = u64::MAX;
        let mut since = Instant::now();
        loop {
            if let Some(adapter) = self.grafts.remove_forgotten(file_system) {
                return Ok(Some(adapter));
            }
            let lookups = self.grafts.lookups(file_system);
            if lookups < fewest {
                (fewest, since) = (lookups, Instant::now());
            }
            if since.elapsed() > PATIENCE {
                return Err(io::ErrorKind::ResourceBusy.into());
            }
            if let Some((directory, name)) = self.grafts.entrance(file_system) {
                self.tell_kernel(KERNEL_PATIENCE, move |session| {
                    session.cache.forget_name(directory, &name);
                });
            }
            wait_until(ROUND, || self.grafts.lookups(file_system) == 0);
        }
    }

    /// Removes file systems even if they are in use.
    fn force_ungraft(self: &Arc<Self>, placed: &[Placed]) -> Vec<Arc<Adapter>> {
        let known = |one: &Placed| {
            let file_system = one.file_system;
            let adapter = self.grafts.get(file_system);
            let known = adapter.map(|adapter| adapter.known_numbers()).unwrap_or_default();
            let outer = |inner| self.grafts.outer(file_system, inner);
            (self.grafts.entrance(file_system), known.into_iter().filter_map(outer).collect())
        };
        let known: Vec<(Option<GraftPoint>, Vec<INodeNo>)> = placed.iter().map(known).collect();
        let forget = |session: &Self, known: Vec<INodeNo>| {
            known.iter().for_each(|one| session.cache.forget_contents(*one));
        };
        // Changes in mappings are written while that is possible.
        let contents = known.iter().map(|(_, known)| known.clone()).collect();
        self.notify_kernel_of_each(FORCED_PATIENCE, contents, forget);
        let remove = |one: &Placed| self.grafts.force_remove(one.file_system);
        let taken = placed.iter().filter_map(remove).collect();
        self.notify_kernel_of_each(FORCED_PATIENCE, known, move |session, (entrance, known)| {
            if let Some((directory, name)) = entrance {
                session.cache.forget_name(directory, &name);
            }
            forget(session, known);
        });
        taken
    }

    /// The mount's number and the name of a directory that only the mount has.
    fn entrance_of(
        &self,
        within: usize,
        adapter: &Adapter,
        (place, name): (Place, Vec<u8>),
    ) -> Option<(INodeNo, OsString)> {
        let number = adapter.number_of_place(place)?;
        Some((self.grafts.outer(within, number)?, OsString::from_vec(name)))
    }

    /// Notifies the kernel from a separate thread: that waits for requests that may wait for a
    /// suspended pool.
    fn tell_kernel(
        self: &Arc<Self>,
        patience: Duration,
        tell: impl Fn(&Self) + Send + Sync + 'static,
    ) {
        self.notify_kernel_of_each(patience, vec![()], move |session, ()| tell(session));
    }

    /// The same for several subjects, which do not wait for each other unless there are many.
    pub(super) fn notify_kernel_of_each<S: Send + 'static>(
        self: &Arc<Self>,
        patience: Duration,
        mut subjects: Vec<S>,
        tell: impl Fn(&Self, S) + Send + Sync + 'static,
    ) {
        let (tell, start) = (Arc::new(tell), Instant::now());
        let (done, are_done) = mpsc::channel::<()>();
        let each = subjects.len().div_ceil(MAX_NOTIFIERS).max(1);
        let mut is_told = true;
        while !subjects.is_empty() {
            let some = subjects.split_off(subjects.len().saturating_sub(each));
            let (session, tell, done) = (Arc::downgrade(self), Arc::clone(&tell), done.clone());
            let work = move || {
                for subject in some {
                    if let Some(session) = session.upgrade() {
                        tell(&session, subject);
                    }
                }
                // All are done when there are no more senders.
                drop(done);
            };
            let thread = std::thread::Builder::new().name("rzfs-grafts".to_owned()).spawn(work);
            is_told &= thread.is_ok();
        }
        drop(done);
        let patience = patience.saturating_sub(start.elapsed());
        is_told &= are_done.recv_timeout(patience) == Err(RecvTimeoutError::Disconnected);
        if !is_told {
            tracing::warn!("the kernel does not know yet what has become of a file system");
        }
    }
}

/// The last but one and the last directory of a path that is not covered on the way. (If names have
/// several spellings a path may lead through covered directories.)
fn directory_at(
    adapter: &Adapter,
    path: &Path,
    is_covered: impl Fn(INodeNo) -> bool,
) -> Result<(INodeNo, INodeNo), Errno> {
    let (mut above, mut directory) = (INodeNo::ROOT, INodeNo::ROOT);
    for name in path {
        if is_covered(directory) {
            return Err(Errno::EBUSY);
        }
        above = directory;
        let attributes = adapter.look_up(directory, name.as_bytes())?.attributes;
        directory = attributes.ino;
        // This lookup is not reported to the kernel.
        adapter.forget(directory, 1);
        if attributes.kind != FileType::Directory {
            return Err(Errno::ENOTDIR);
        }
    }
    Ok((above, directory))
}

/// The file system that contains a path, and the path within it.
pub(super) fn enclosing<'a>(places: &[Placed], path: &'a Path) -> (usize, &'a Path) {
    let inside = |one: &Placed| Some((one.file_system, path.strip_prefix(&one.path).ok()?));
    let all = places.iter().filter_map(inside);
    all.min_by_key(|(_, relative)| relative.components().count()).unwrap_or((0, path))
}

fn wait_until(patience: Duration, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() && start.elapsed() < patience {
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount_points::MountPath;

    #[test]
    fn the_nearest_file_system_is_the_one_around() {
        let placed = |(index, path): (usize, &str)| Placed {
            path: path.into(),
            file_system: index + 1,
            within: 0,
            directory: INodeNo::ROOT,
            way: MountPath::default(),
        };
        let places: Vec<_> = ["a", "b", "a/b/c"].into_iter().enumerate().map(placed).collect();
        for (path, found) in
            [("c", (0, "c")), ("b/c", (2, "c")), ("a/b/cd", (1, "b/cd")), ("a/b/c/d", (3, "d"))]
        {
            assert_eq!(enclosing(&places, Path::new(path)), (found.0, Path::new(found.1)));
        }
    }
}
