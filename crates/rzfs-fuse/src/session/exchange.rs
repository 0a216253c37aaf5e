//! Replaces the contents of a file system of the mount.
//!
//! ```text
//! the kernel writes back dirty pages
//! the gate closes ── compare ── change ── the successor takes over the known files ── it opens
//! the kernel forgets all differences
//! ```
//! Between the last two steps a process may briefly see old data. Stores into pages of the previous
//! contents after the first step are lost.

use super::grafting::{KERNEL_PATIENCE, enclosing};
use super::{Session, invalid};
use crate::adapter::{Adapter, Succession};
use crate::exchange::{Exchange, ExchangeOutcome, Exchanged, NotExchanged};
use crate::known::Dropped;
use fuser::{Errno, INodeNo};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// How long requests may keep the gate from closing.
const PATIENCE: Duration = Duration::from_secs(30);

/// State that the kernel must forget.
enum Stale {
    File(INodeNo),
    Name(INodeNo, OsString),
}

impl Session {
    /// Replaces the contents of the file system at a path. `mounted` are the paths in the mount
    /// that the system has mounted on.
    ///
    /// # Errors
    /// [`NotExchanged`]: nothing has changed.
    pub(crate) fn exchange<X: Exchange>(
        self: &Arc<Self>,
        path: &Path,
        mounted: &[PathBuf],
        exchange: &mut X,
    ) -> ExchangeOutcome<X> {
        let unsuitable = |error| NotExchanged::Unsuitable(invalid(error));
        let index = self.file_system_at(path).map_err(NotExchanged::Unsuitable)?;
        let adapter = self.file_system(index).map_err(unsuitable)?;
        let pages = adapter.take_pages().into_iter().map(Stale::File);
        self.tell_kernel_to_forget((index, &adapter), pages);
        let closed = self.gate.close(PATIENCE).ok_or(NotExchanged::Busy)?;
        let mut places = self.places.lock();
        let states = exchange.states()?;
        let mut comparison = adapter.compare(&states).map_err(unsuitable)?;
        let [before, after] = &states;
        let by_system = mounted.iter().filter(|one| enclosing(&places, one).0 == index);
        let by_system: Vec<_> = by_system.filter_map(|one| one.strip_prefix(path).ok()).collect();
        let mut inside: Vec<_> = places.iter_mut().filter(|one| one.within == index).collect();
        let grafted = inside.iter().map(|one| one.path.strip_prefix(path).unwrap_or(&one.path));
        let mut ways = Vec::new();
        for (way, placed) in grafted.zip(&inside) {
            let steps = adapter.steps(way).map_err(unsuitable)?;
            let place = steps.last().map(|step| (index, step.inode));
            if place != self.grafts.place_of(placed.file_system) {
                // Its directory was moved.
                return Err(unsuitable(Errno::EBUSY));
            }
            ways.push(adapter.way(steps, after, &comparison).map_err(unsuitable)?);
        }
        // A path that cannot be resolved may be gone.
        let steps = by_system.into_iter().filter_map(|one| adapter.steps(one).ok());
        for steps in steps {
            ways.push(adapter.way(steps, after, &comparison).map_err(unsuitable)?);
        }
        adapter.set_apart(&ways, before, &mut comparison).map_err(unsuitable)?;
        let changed = exchange.change();
        let changed = match changed {
            Err(refused) if !adapter.is_superseded() => return Err(NotExchanged::Refused(refused)),
            changed => changed,
        };
        let successor = match exchange.successor() {
            Ok(successor) => successor,
            Err(error) => return Ok(Exchanged { changed, lost: Some(error) }),
        };
        let succession = adapter.succeed(successor, comparison, ways);
        let Succession { adapter: successor, ways, outdated, names, longer } = succession;
        for (placed, way) in inside.iter_mut().zip(ways) {
            placed.way = way;
        }
        let successor = Arc::new(successor);
        self.install(index, &successor);
        drop(places);
        drop(closed);
        let files = outdated.files.into_iter().map(Stale::File);
        let names = names.into_iter().map(|(directory, name)| Stale::Name(directory, name));
        self.tell_kernel_to_forget((index, &successor), files.chain(names));
        successor.keep_stores();
        self.tell_kernel_of_lengths((index, &successor), longer);
        Ok(Exchanged { changed, lost: None })
    }

    /// Replaces a file system by its successor.
    fn install(&self, index: usize, successor: &Arc<Adapter>) {
        let successor = Arc::clone(successor);
        match index {
            0 => *self.root.write().unwrap_or_else(PoisonError::into_inner) = successor,
            _ => self.grafts.replace(index, successor),
        }
    }

    fn tell_kernel_to_forget(
        self: &Arc<Self>,
        (index, adapter): (usize, &Arc<Adapter>),
        stale: impl Iterator<Item = Stale>,
    ) {
        let outer = |inode| self.grafts.outer(index, inode);
        let stale = stale.filter_map(|one| match &one {
            Stale::File(file) => Some((outer(*file)?, one)),
            Stale::Name(directory, _) => Some((outer(*directory)?, one)),
        });
        let (stale, adapter) = (stale.collect(), Arc::clone(adapter));
        self.notify_kernel_of_each(KERNEL_PATIENCE, stale, move |session, (outer, stale)| {
            match stale {
                Stale::File(file) => loop {
                    session.cache.forget_contents(outer);
                    if adapter.note_dropped(file) == Dropped::Done {
                        break;
                    }
                },
                Stale::Name(_, name) => session.cache.forget_entry(outer, &name),
            }
        });
    }

    /// Tells the kernel the new ends of files that have grown, as it appends there.
    fn tell_kernel_of_lengths(
        self: &Arc<Self>,
        (index, adapter): (usize, &Arc<Adapter>),
        longer: Vec<INodeNo>,
    ) {
        let outer = |inode| Some((self.grafts.outer(index, inode)?, inode));
        let (files, adapter) =
            (longer.into_iter().filter_map(outer).collect(), Arc::clone(adapter));
        self.notify_kernel_of_each(KERNEL_PATIENCE, files, move |session, (outer, inode)| {
            let Ok(Some(end)) = adapter.end(inode) else { return };
            adapter.note_pages(inode);
            session.cache.extend(outer, end.offset, end.byte);
            if adapter.end(inode) != Ok(Some(end)) {
                // A concurrent change makes the kernel's byte stale.
                session.cache.forget_contents(outer);
            }
        });
    }

    fn file_system_at(&self, path: &Path) -> io::Result<usize> {
        if path.as_os_str().is_empty() {
            return Ok(0);
        }
        let places = self.places.lock();
        let placed = places.iter().find(|one| one.path == path);
        placed.map(|one| one.file_system).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
