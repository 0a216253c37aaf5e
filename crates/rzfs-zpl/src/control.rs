//! The virtual directory `.zfs` (spec 05, section 9.8).
//!
//! ```text
//! .zfs ── shares
//!     └── snapshot ── NAME: the root of that snapshot's FileSystem
//! ```

use crate::control_node::ControlNode;
use crate::entry::{DirCookie, DirEntry};
use crate::error::ZplError;
use crate::file_system::FileSystem;
use crate::files::Files;
use crate::sync::{Arc, Mutex};
use rzfs_format::dirent::FileKind;
use rzfs_format::znode::Timestamp;
use rzfs_format::{ObjectId, ObjsetId};
use std::fmt;
use std::ops::ControlFlow;

/// Maximum number of snapshots kept open.
const MAX_OPEN: usize = 64;

/// A snapshot in the control tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotEntry {
    /// Its name: the part after the `@`.
    pub name: Vec<u8>,
    /// Its objset.
    pub objset: ObjsetId,
    /// When it was taken.
    pub created: Timestamp,
}

/// A change of a file system's snapshots. Names are the parts after the `@`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SnapshotChange<'a> {
    /// Takes one.
    Take {
        /// Its name.
        name: &'a [u8],
    },
    /// Renames one.
    Rename {
        /// Its name.
        from: &'a [u8],
        /// The new one.
        to: &'a [u8],
    },
    /// Destroys one.
    Destroy {
        /// Its name.
        name: &'a [u8],
    },
}

/// Provides the snapshots of a control tree.
pub trait SnapshotSource: Send + Sync {
    /// All snapshots.
    fn snapshots(&self) -> Result<Vec<SnapshotEntry>, ZplError>;
    /// The snapshot with this name.
    fn find(&self, name: &[u8]) -> Result<Option<SnapshotEntry>, ZplError>;
    /// Opens the file system of a snapshot.
    fn open(&self, objset: ObjsetId) -> Result<FileSystem, ZplError>;
    /// When a snapshot was last taken or destroyed; zero if never.
    fn changed(&self) -> Result<Timestamp, ZplError>;

    /// Changes the snapshots on behalf of user `uid`; may wait for a transaction group.
    ///
    /// # Errors
    /// Such changes are not supported, this user may not make them, or the change is impossible.
    fn change(&self, change: SnapshotChange<'_>, uid: u32) -> Result<(), ZplError> {
        let _ = (change, uid);
        Err(ZplError::SnapshotsFixed)
    }
}

/// The attributes of a directory of the control tree. Owner and group are 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControlAttributes {
    /// The inode number.
    pub inode: ObjectId,
    /// Link count.
    pub links: u64,
    /// Its size, as directories count it.
    pub size: u64,
    /// All of its times.
    pub time: Timestamp,
}

impl ControlAttributes {
    /// The permission bits of every directory of the control tree, as shown by OpenZFS. They do not
    /// affect who may change anything there.
    pub const PERMISSIONS: u16 = 0o777;
}

/// An entry of a directory of the control tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControlEntry {
    /// The name.
    pub name: Vec<u8>,
    /// The directory it names.
    pub node: ControlNode,
}

/// The directory `.zfs` of one file system.
pub struct ControlTree {
    head: Files,
    source: Box<dyn SnapshotSource>,
    /// Open snapshots, most recently used last. Locked while one is opened, so that it is opened
    /// once.
    open: Mutex<Vec<(ObjsetId, Arc<FileSystem>)>>,
}

impl fmt::Debug for ControlTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlTree").field("head", &self.head).finish_non_exhaustive()
    }
}

impl ControlTree {
    /// The control tree in the root of a file system.
    #[must_use]
    pub fn new(head: impl Into<Files>, source: Box<dyn SnapshotSource>) -> Self {
        Self { head: head.into(), source, open: Mutex::new(Vec::new()) }
    }

    /// The attributes of a directory. Those of an open snapshot's root are the snapshot's own;
    /// these are shown before it is opened.
    ///
    /// # Errors
    /// The snapshots cannot be read, or there is no such snapshot.
    pub fn attributes(&self, node: ControlNode) -> Result<ControlAttributes, ZplError> {
        let (links, size, time) = match node {
            ControlNode::Root => (1, 0, self.root_time()?),
            ControlNode::Shares => (2, 2, self.root_time()?),
            ControlNode::Snapshots => {
                let count = self.source.snapshots()?.len() as u64;
                (count.saturating_add(2), 2, self.source.changed()?)
            }
            ControlNode::Snapshot(objset) => (1, 0, self.entry(objset)?.created),
        };
        Ok(ControlAttributes { inode: node.inode(), links, size, time })
    }

    fn root_time(&self) -> Result<Timestamp, ZplError> {
        Ok(self.head.attributes(self.head.root())?.crtime)
    }

    fn entry(&self, objset: ObjsetId) -> Result<SnapshotEntry, ZplError> {
        let mut snapshots = self.source.snapshots()?.into_iter();
        snapshots.find(|entry| entry.objset == objset).ok_or_else(|| self.no_snapshot())
    }

    fn no_snapshot(&self) -> ZplError {
        ZplError::NoSnapshot { objset: self.head.place(self.head.root()).objset }
    }

    /// The inode number of a directory's parent.
    #[must_use]
    pub fn parent(&self, node: ControlNode) -> ObjectId {
        match node {
            ControlNode::Root => self.head.root(),
            ControlNode::Shares | ControlNode::Snapshots => ControlNode::Root.inode(),
            ControlNode::Snapshot(_) => ControlNode::Snapshots.inode(),
        }
    }

    /// The directory under a name in a directory of the tree. The entries of a snapshot are looked
    /// up in its [`FileSystem`] instead.
    ///
    /// # Errors
    /// There is none, or the snapshots cannot be read.
    pub fn lookup(&self, directory: ControlNode, name: &[u8]) -> Result<ControlNode, ZplError> {
        let place = self.head.place(directory.inode());
        let found = match (directory, name) {
            (_, b".") => Some(directory),
            (ControlNode::Root, b"snapshot") => Some(ControlNode::Snapshots),
            (ControlNode::Root, b"shares") => Some(ControlNode::Shares),
            (ControlNode::Snapshots | ControlNode::Shares, b"..") => Some(ControlNode::Root),
            (ControlNode::Snapshots, name) => {
                let entry = self.source.find(name)?;
                entry.map(|entry| ControlNode::Snapshot(entry.objset))
            }
            _ => None,
        };
        found.ok_or(ZplError::NotFound { place })
    }

    /// Passes the entries of a directory of the tree from a position on to `visit`, until it stops
    /// or there are no more.
    ///
    /// # Errors
    /// The snapshots cannot be read.
    pub fn read_dir(
        &self,
        directory: ControlNode,
        from: DirCookie,
        mut visit: impl FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), ZplError> {
        let entry = |name: &[u8], node| ControlEntry { name: name.to_vec(), node };
        let entries = match directory {
            ControlNode::Root => vec![
                entry(b"snapshot", ControlNode::Snapshots),
                entry(b"shares", ControlNode::Shares),
            ],
            ControlNode::Snapshots => {
                let snapshots = self.source.snapshots()?.into_iter();
                let node = |objset| ControlNode::Snapshot(objset);
                snapshots.map(|snapshot| entry(&snapshot.name, node(snapshot.objset))).collect()
            }
            ControlNode::Shares | ControlNode::Snapshot(_) => Vec::new(),
        };
        let leading = [(&b"."[..], directory.inode()), (b"..", self.parent(directory))];
        let listed = entries.iter().map(|entry| (&entry.name[..], entry.node.inode()));
        for ((name, object), next) in leading.into_iter().chain(listed).zip(1..) {
            let entry = DirEntry { name, object, kind: FileKind::Directory, next: DirCookie(next) };
            if from < entry.next && visit(entry).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Changes the snapshots on behalf of user `uid`.
    ///
    /// # Errors
    /// As [`SnapshotSource::change`].
    pub fn change(&self, change: SnapshotChange<'_>, uid: u32) -> Result<(), ZplError> {
        self.source.change(change, uid)
    }

    /// The file system of a snapshot; it stays open for a while.
    ///
    /// # Errors
    /// There is no such snapshot, or it cannot be opened.
    pub fn open(&self, objset: ObjsetId) -> Result<Arc<FileSystem>, ZplError> {
        let mut open = self.open.lock();
        // The number of a destroyed snapshot may have been reused.
        open.retain(|(_, snapshot)| !snapshot.objset().is_destroyed());
        let file_system = match open.iter().position(|(id, _)| *id == objset) {
            Some(index) => open.remove(index).1,
            None => Arc::new(self.source.open(objset)?),
        };
        if open.len() == MAX_OPEN {
            open.remove(0);
        }
        open.push((objset, Arc::clone(&file_system)));
        Ok(file_system)
    }
}
