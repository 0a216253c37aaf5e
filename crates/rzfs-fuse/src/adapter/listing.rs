//! Listing directories.

use super::{ABSENT, Adapter, Answer, errno};
use crate::attributes::{Entry, file_type};
use crate::inode::Target;
use crate::mount_points::{MountPoint, Place};
use fuser::{Errno, FileAttr, FileType, INodeNo};
use rzfs_format::ObjectId;
use rzfs_format::dirent::FileKind;
use rzfs_zpl::{DirCookie, DirEntry};
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

/// Entries whose attributes are read together while a directory is listed.
const LISTING_BATCH: usize = 256;

/// An entry of a listing, buffered until its attributes are read.
struct Listed {
    name: Vec<u8>,
    target: Target,
    kind: FileKind,
    next: DirCookie,
}

impl Adapter {
    /// Passes the entries of a live directory to `visit`, from a position on: those on disk, then
    /// those of the mount alone.
    fn list_live(
        &self,
        directory: ObjectId,
        from: DirCookie,
        mut visit: impl FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Answer<()> {
        let mut flow = ControlFlow::Continue(());
        let mount_points = self.mount_points();
        if !mount_points.is_position(from) {
            let has_some = mount_points.are_in(Place::Object(directory));
            let listed = self.head.read_dir(directory, from, |entry| {
                if has_some && mount_points.lookup(Place::Object(directory), entry.name).is_some() {
                    return ControlFlow::Continue(());
                }
                flow = visit(entry);
                flow
            });
            listed.map_err(|error| errno(&error))?;
        }
        if flow.is_continue() {
            mount_points.list(Place::Object(directory), from_free(from), visit);
        }
        Ok(())
    }

    /// The same for a directory of the mount alone.
    fn list_mount_point(
        &self,
        directory: MountPoint,
        from: DirCookie,
        mut visit: impl FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Answer<()> {
        let above = match self.above(directory)? {
            Target::MountPoint(above) => above.inode(),
            Target::Live(object) => object,
            Target::Control(_) | Target::Snapshot(..) => return Err(Errno::ESTALE),
        };
        for (next, name, object) in [(1, &b"."[..], directory.inode()), (2, b"..", above)] {
            let next = DirCookie(next);
            let entry = DirEntry { name, object, kind: FileKind::Directory, next };
            if from < next && visit(entry).is_break() {
                return Ok(());
            }
        }
        self.mount_points().list(Place::MountPoint(directory), from_free(from), visit);
        Ok(())
    }

    /// Passes the entries of a directory to `visit`, from a position on.
    fn list(
        &self,
        directory: INodeNo,
        from: DirCookie,
        visit: impl FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Answer<()> {
        let listed = match self.target(directory)? {
            Target::MountPoint(mount_point) => {
                return self.list_mount_point(mount_point, from, visit);
            }
            Target::Live(object) => return self.list_live(object, from, visit),
            Target::Snapshot(id, object) => self.snapshot(id)?.read_dir(object, from, visit),
            Target::Control(node) => self.control()?.read_dir(node, from, visit),
        };
        listed.map_err(|error| errno(&error))
    }

    /// The target of an entry of `directory`.
    fn entry_target(&self, directory: Target, object: ObjectId) -> Target {
        match directory {
            Target::Snapshot(id, _) => Target::Snapshot(id, object),
            _ => Target::of_number(object),
        }
    }

    /// The next entries of a directory, at most [`LISTING_BATCH`]. Damage is an error only if it
    /// comes first: earlier entries are returned.
    fn batch(&self, directory: INodeNo, from: DirCookie) -> Answer<Vec<Listed>> {
        let parent = self.target(directory)?;
        let mut batch = Vec::with_capacity(LISTING_BATCH);
        let listed = self.list(directory, from, |entry| {
            batch.push(Listed {
                name: entry.name.to_vec(),
                target: self.entry_target(parent, entry.object),
                kind: entry.kind,
                next: entry.next,
            });
            if batch.len() == LISTING_BATCH {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        match listed {
            Err(error) if batch.is_empty() => Err(error),
            _ => Ok(batch),
        }
    }

    /// Passes the entries of a directory with attributes to `visit` until the reply is full.
    /// Attributes that would need a request of their own (and those of `.` and `..`, which the
    /// kernel knows) are placeholders. An entry with attributes counts as named to the kernel:
    /// `visit` [forgets](Self::forget) it if it does not fit.
    pub(crate) fn list_with_attributes(
        &self,
        directory: INodeNo,
        from: DirCookie,
        mut visit: impl FnMut(&OsStr, DirCookie, Option<Entry>, &FileAttr) -> bool,
    ) -> Answer<()> {
        let start = from;
        let mut from = from;
        loop {
            let batch = match self.batch(directory, from) {
                // The next call returns the error.
                Err(_) if from != start => return Ok(()),
                batch => batch?,
            };
            let Some(last) = batch.last() else { return Ok(()) };
            from = last.next;
            self.prefetch(directory, &batch)?;
            for entry in &batch {
                // Snapshots are opened when they are entered, not when they are listed.
                let known = match entry.target {
                    Target::Control(_) | Target::MountPoint(_) => None,
                    _ if is_dots(&entry.name) => None,
                    target => self.entry(target).ok(),
                };
                let name = OsStr::from_bytes(&entry.name);
                if visit(name, entry.next, known, &placeholder(entry)) {
                    return Ok(());
                }
            }
        }
    }

    fn prefetch(&self, directory: INodeNo, batch: &[Listed]) -> Answer<()> {
        let objects: Vec<ObjectId> = batch
            .iter()
            .filter_map(|entry| match entry.target {
                Target::Live(object) | Target::Snapshot(_, object) => Some(object),
                Target::Control(_) | Target::MountPoint(_) => None,
            })
            .collect();
        match self.target(directory)? {
            Target::Live(_) => self.head.prefetch_attributes(&objects),
            Target::Snapshot(id, _) => self.snapshot(id)?.prefetch_attributes(&objects),
            Target::Control(_) | Target::MountPoint(_) => {}
        }
        Ok(())
    }

    /// Whether a directory is empty.
    pub(crate) fn is_empty(&self, directory: INodeNo) -> Answer<bool> {
        let mut is_empty = true;
        self.list(directory, DirCookie::START, |entry| {
            is_empty = is_dots(entry.name);
            if is_empty { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(is_empty)
    }

    /// Passes the entries of a directory with the inode numbers that users see to `visit` until the
    /// reply is full.
    pub(crate) fn list_names(
        &self,
        directory: INodeNo,
        from: DirCookie,
        mut visit: impl FnMut(INodeNo, DirCookie, FileType, &OsStr) -> bool,
    ) -> Answer<()> {
        let parent = self.target(directory)?;
        let mut is_empty = true;
        let listed = self.list(directory, from, |entry| {
            let target = self.entry_target(parent, entry.object);
            let inode = self.shown(target).unwrap_or(INodeNo(entry.object.0));
            let name = OsStr::from_bytes(entry.name);
            if visit(inode, entry.next, file_type(entry.kind), name) {
                return ControlFlow::Break(());
            }
            is_empty = false;
            ControlFlow::Continue(())
        });
        match listed {
            // The next call returns the error.
            Err(_) if !is_empty => Ok(()),
            listed => listed,
        }
    }
}

/// Where a listing at this position starts among the directories of the mount alone.
fn from_free(position: DirCookie) -> DirCookie {
    // Positions after entries on disk are larger, and precede all of these.
    if position.0 >> 28 == 0 { position } else { DirCookie::START }
}

fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// The placeholder attributes of an entry whose attributes were not read.
fn placeholder(entry: &Listed) -> FileAttr {
    let object = match entry.target {
        Target::Live(object) | Target::Snapshot(_, object) => object,
        Target::Control(node) => node.inode(),
        Target::MountPoint(mount_point) => mount_point.inode(),
    };
    FileAttr { ino: INodeNo(object.0), kind: file_type(entry.kind), ..ABSENT }
}
