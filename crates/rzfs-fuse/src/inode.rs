//! Inode numbers of a mount.
//!
//! ```text
//! 63        48 47                       0
//! | snapshot  | object                  |
//! ```
//! Files of the live file system have their object numbers. FUSE requires 1 for the root directory,
//! whatever its object: 1 is never a file (it is the master node), so only the root is mapped.
//! Files below `.zfs/snapshot/NAME` have the mount's number of the snapshot in the upper 16 bits,
//! since one inode number must not stand for two files of a mount.
//!
//! For the same reason the upper bits are set for a file whose object was another file before an
//! exchange of contents, as long as the kernel remembers that file. And a directory of the mount
//! alone takes the number of its predecessor, so that mounts there stay.

use crate::mount_points::MountPoint;
use fuser::{Generation, INodeNo};
use rzfs_format::{ObjectId, ObjsetId, Txg};
use rzfs_zpl::{ControlNode, FileSystem};
use std::sync::{Mutex, MutexGuard, PoisonError};

const OBJECT_BITS: u32 = 48;

/// A snapshot, distinguished from a later one that reuses its number: snapshots with the same
/// number and txg hold the same files.
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

/// The target of an inode number.
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
    /// The target of a number of the live file system.
    pub(crate) fn of_number(number: ObjectId) -> Self {
        if let Some(node) = ControlNode::from_inode(number) {
            return Self::Control(node);
        }
        MountPoint::from_inode(number).map_or(Self::Live(number), Self::MountPoint)
    }
}

/// The target of the upper bits of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Upper {
    /// A snapshot that was entered.
    Snapshot(SnapshotId),
    /// The live file system again.
    Again,
}

/// A directory of the mount alone that has taken over its predecessor's identity in the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adopted {
    pub(crate) inode: INodeNo,
    pub(crate) generation: Generation,
    pub(crate) directory: MountPoint,
    pub(crate) rights: Rights,
}

/// The owner and the permissions of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rights {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) permissions: u16,
}

/// The inode numbers of one mount.
#[derive(Debug)]
pub(crate) struct Inodes {
    root: ObjectId,
    /// The upper bits are the position + 1.
    uppers: Mutex<Vec<Upper>>,
    adopted: Vec<Adopted>,
}

impl Inodes {
    pub(crate) fn new(root: ObjectId) -> Self {
        Self { root, uppers: Mutex::default(), adopted: Vec::new() }
    }

    /// The numbers of the same mount with new contents.
    pub(crate) fn succeeded(&self, root: ObjectId, adopted: Vec<Adopted>) -> Self {
        Self { root, uppers: Mutex::new(self.uppers().clone()), adopted }
    }

    fn uppers(&self) -> MutexGuard<'_, Vec<Upper>> {
        self.uppers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directories of the mount alone that have the numbers of others.
    pub(crate) fn adopted(&self) -> &[Adopted] {
        &self.adopted
    }

    /// The identity that a directory of the mount alone has taken over, if any.
    pub(crate) fn adopted_by(&self, directory: MountPoint) -> Option<&Adopted> {
        self.adopted.iter().find(|one| one.directory == directory)
    }

    /// The target of a number; `None` if this mount never issued it.
    pub(crate) fn target(&self, inode: INodeNo) -> Option<Target> {
        if inode == INodeNo::ROOT {
            return Some(Target::Live(self.root));
        }
        if let Some(one) = self.adopted.iter().find(|one| one.inode == inode) {
            return Some(Target::MountPoint(one.directory));
        }
        let object = ObjectId(inode.0 & ((1 << OBJECT_BITS) - 1));
        match usize::try_from(inode.0 >> OBJECT_BITS).ok()? {
            0 => Some(Target::of_number(object)),
            number => Some(match *self.uppers().get(number - 1)? {
                Upper::Snapshot(id) => Target::Snapshot(id, object),
                Upper::Again => Target::Live(object),
            }),
        }
    }

    /// The default number of a file of the live file system.
    pub(crate) fn own_number(&self, object: ObjectId) -> Option<INodeNo> {
        self.number(Target::Live(object))
    }

    /// An unused number for a file of the live file system; `None` if there is none left.
    pub(crate) fn free_number(
        &self,
        object: ObjectId,
        is_taken: impl Fn(INodeNo) -> bool,
    ) -> Option<INodeNo> {
        let is_adopted = |number| self.adopted.iter().any(|one| one.inode == number);
        let is_free = |number: &INodeNo| !is_taken(*number) && !is_adopted(*number);
        let own = self.own_number(object)?;
        if is_free(&own) {
            return Some(own);
        }
        let mut uppers = self.uppers();
        let again = (0..).zip(&*uppers).filter(|(_, upper)| **upper == Upper::Again);
        let numbers = again.map(|(index, _)| number_above(index, object));
        if let Some(free) = numbers.flatten().find(is_free) {
            return Some(free);
        }
        let number = number_above(uppers.len(), object)?;
        uppers.push(Upper::Again);
        Some(number)
    }

    /// The number by which the kernel knows a file; `None` if there are too many snapshots.
    pub(crate) fn number(&self, target: Target) -> Option<INodeNo> {
        Some(INodeNo(match target {
            Target::Live(object) if object == self.root => INodeNo::ROOT.0,
            Target::Live(object) => object.0,
            Target::Control(node) => node.inode().0,
            Target::MountPoint(directory) => {
                self.adopted_by(directory).map_or(directory.inode().0, |one| one.inode.0)
            }
            Target::Snapshot(id, object) => {
                let (mut uppers, upper) = (self.uppers(), Upper::Snapshot(id));
                let index = uppers.iter().position(|known| *known == upper);
                let index = index.unwrap_or_else(|| {
                    uppers.push(upper);
                    uppers.len() - 1
                });
                number_above(index, object)?.0
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

/// The number with these upper bits.
fn number_above(index: usize, object: ObjectId) -> Option<INodeNo> {
    let upper = u64::from(u16::try_from(index + 1).ok()?);
    Some(INodeNo(upper << OBJECT_BITS | object.0))
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

    #[test]
    fn a_file_gets_another_number_while_its_own_stands_for_another() {
        let inodes = Inodes::new(ObjectId(34));
        let object = ObjectId(128);
        let own = inodes.free_number(object, |_| false).unwrap();
        assert_eq!(Some(own), inodes.own_number(object));
        let second = inodes.free_number(object, |number| number == own).unwrap();
        let third = inodes.free_number(object, |number| number == own || number == second).unwrap();
        assert!(own != second && second != third && own != third);
        let again = inodes.free_number(object, |number| number == own).unwrap();
        assert_eq!(again, second);
        for number in [own, second, third] {
            assert_eq!(inodes.target(number), Some(Target::Live(object)));
        }
    }

    #[test]
    fn a_directory_of_the_mount_has_the_number_of_what_was_there() {
        let directory = MountPoint::from_inode(ObjectId(ObjectId::END.0 - (1 << 41))).unwrap();
        let (inode, generation) = (INodeNo(200), Generation(7));
        let rights = Rights { uid: 0, gid: 0, permissions: 0o700 };
        let adopted = vec![Adopted { inode, generation, directory, rights }];
        let inodes = Inodes::new(ObjectId(34)).succeeded(ObjectId(34), adopted);
        assert_eq!(inodes.target(inode), Some(Target::MountPoint(directory)));
        assert_eq!(inodes.number(Target::MountPoint(directory)), Some(inode));
        let second = inodes.free_number(ObjectId(200), |_| false).unwrap();
        assert_ne!(second, inode);
        let adopted = [inode, second].map(|inode| Adopted { inode, ..inodes.adopted()[0] });
        let inodes = inodes.succeeded(ObjectId(34), adopted.to_vec());
        let third = inodes.free_number(ObjectId(200), |_| false).unwrap();
        assert!(third != inode && third != second);
    }
}
