//! Inode numbers of a mount.
//!
//! ```text
//! 63        48 47                       0
//! | snapshot  | object                  |
//! ```
//! Files of the live file system have their object numbers. FUSE insists on 1 for the root
//! directory, whatever its object: 1 is never a file (it is the master node), so only the root
//! is mapped. Files below `.zfs/snapshot/NAME` have the number under which the mount knows the
//! snapshot in the upper 16 bits, since a mount must not have one inode number for two files.

use crate::mount_points::MountPoint;
use fuser::INodeNo;
use rzfs_format::{ObjectId, ObjsetId, Txg};
use rzfs_zpl::{ControlNode, FileSystem};
use std::sync::{Mutex, PoisonError};

const OBJECT_BITS: u32 = 48;

/// A snapshot, told apart from another one that has its number when it is gone: snapshots of one
/// number that were written in one txg hold the same files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SnapshotId {
    pub(crate) objset: ObjsetId,
    written: Txg,
}

impl SnapshotId {
    pub(crate) fn of(snapshot: &FileSystem) -> Self {
        let objset = snapshot.objset();
        Self { objset: objset.id(), written: objset.root().logical_birth() }
    }
}

/// What an inode number stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// A file of the live file system.
    Live(ObjectId),
    /// A directory of `.zfs`.
    Control(ControlNode),
    /// A file of a snapshot.
    Snapshot(SnapshotId, ObjectId),
    /// A directory of the mount alone.
    MountPoint(MountPoint),
}

impl Target {
    /// What a number of the live file system stands for.
    pub(crate) fn of_number(number: ObjectId) -> Self {
        if let Some(node) = ControlNode::from_inode(number) {
            return Self::Control(node);
        }
        MountPoint::from_inode(number).map_or(Self::Live(number), Self::MountPoint)
    }
}

/// The inode numbers of one mount.
#[derive(Debug)]
pub(crate) struct Inodes {
    root: ObjectId,
    /// Snapshots that were looked into; the position + 1 is the number.
    snapshots: Mutex<Vec<SnapshotId>>,
}

impl Inodes {
    pub(crate) fn new(root: ObjectId) -> Self {
        Self { root, snapshots: Mutex::new(Vec::new()) }
    }

    /// What a number stands for; `None` when this mount never gave it out.
    pub(crate) fn target(&self, inode: INodeNo) -> Option<Target> {
        if inode == INodeNo::ROOT {
            return Some(Target::Live(self.root));
        }
        let object = ObjectId(inode.0 & ((1 << OBJECT_BITS) - 1));
        match usize::try_from(inode.0 >> OBJECT_BITS).ok()? {
            0 => Some(Target::of_number(object)),
            number => {
                let snapshots = self.snapshots.lock().unwrap_or_else(PoisonError::into_inner);
                snapshots.get(number - 1).map(|id| Target::Snapshot(*id, object))
            }
        }
    }

    /// The number by which the kernel knows a file; `None` when there are too many snapshots.
    pub(crate) fn number(&self, target: Target) -> Option<INodeNo> {
        Some(INodeNo(match target {
            Target::Live(object) if object == self.root => INodeNo::ROOT.0,
            Target::Live(object) => object.0,
            Target::Control(node) => node.inode().0,
            Target::MountPoint(mount_point) => mount_point.inode().0,
            Target::Snapshot(id, object) => {
                let mut snapshots = self.snapshots.lock().unwrap_or_else(PoisonError::into_inner);
                let index = snapshots.iter().position(|known| *known == id);
                let index = index.unwrap_or_else(|| {
                    snapshots.push(id);
                    snapshots.len() - 1
                });
                u64::from(u16::try_from(index + 1).ok()?) << OBJECT_BITS | object.0
            }
        }))
    }

    /// The number that `stat` shows: the root's is its object number.
    pub(crate) fn shown(&self, target: Target) -> Option<INodeNo> {
        match target {
            Target::Live(object) => Some(INodeNo(object.0)),
            _ => self.number(target),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back_to_what_they_were_given_for() {
        let inodes = Inodes::new(ObjectId(34));
        let snapshot = |objset, written| SnapshotId { objset, written: Txg(written) };
        for target in [
            Target::Live(ObjectId(34)),
            Target::Live(ObjectId(128)),
            Target::Control(ControlNode::Root),
            Target::Control(ControlNode::Snapshot(ObjsetId(95))),
            Target::Snapshot(snapshot(ObjsetId(95), 10), ObjectId(34)),
            Target::Snapshot(snapshot(ObjsetId(96), 10), ObjectId(34)),
        ] {
            let number = inodes.number(target).unwrap();
            assert_eq!(inodes.target(number), Some(target));
        }
        assert_eq!(inodes.number(Target::Live(ObjectId(34))), Some(INodeNo::ROOT));
        assert_eq!(inodes.shown(Target::Live(ObjectId(34))), Some(INodeNo(34)));
        assert_eq!(inodes.target(INodeNo(3 << 48 | 34)), None);
    }

    #[test]
    fn the_next_snapshot_of_a_number_has_other_files() {
        let inodes = Inodes::new(ObjectId(34));
        let of = |written| {
            let id = SnapshotId { objset: ObjsetId(95), written: Txg(written) };
            (
                Target::Snapshot(id, ObjectId(128)),
                inodes.number(Target::Snapshot(id, ObjectId(128))),
            )
        };
        let ((gone, old), (there, new)) = (of(10), of(20));
        assert_ne!(old, new);
        assert_eq!(
            (inodes.target(old.unwrap()), inodes.target(new.unwrap())),
            (Some(gone), Some(there))
        );
    }
}
