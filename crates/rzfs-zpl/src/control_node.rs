//! The directories of the control tree and their inode numbers, at the top of the 48-bit range of
//! object numbers (spec 05, section 9.8).

use rzfs_format::{ObjectId, ObjsetId};

const ROOT_INODE: u64 = ObjectId::END.0 - 1;
const SHARES_INODE: u64 = ObjectId::END.0 - 2;
const SNAPSHOTS_INODE: u64 = ObjectId::END.0 - 3;
const FIRST_SNAPSHOT_INODE: u64 = ObjectId::END.0 - 4;
/// Objsets below this have inode numbers that no file can have: dataset numbers are small.
const MAX_SNAPSHOT_OBJSET: u64 = 1 << 40;

/// A directory of the control tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ControlNode {
    /// `.zfs`
    Root,
    /// `.zfs/shares`
    Shares,
    /// `.zfs/snapshot`
    Snapshots,
    /// `.zfs/snapshot/NAME`: the snapshot whose objset has this number.
    Snapshot(ObjsetId),
}

impl ControlNode {
    /// The inode number.
    #[must_use]
    pub const fn inode(self) -> ObjectId {
        ObjectId(match self {
            Self::Root => ROOT_INODE,
            Self::Shares => SHARES_INODE,
            Self::Snapshots => SNAPSHOTS_INODE,
            Self::Snapshot(objset) => FIRST_SNAPSHOT_INODE.saturating_sub(objset.0),
        })
    }

    /// The directory with this inode number; `None` when it is that of a file.
    #[must_use]
    pub const fn from_inode(inode: ObjectId) -> Option<Self> {
        match inode.0 {
            ROOT_INODE => Some(Self::Root),
            SHARES_INODE => Some(Self::Shares),
            SNAPSHOTS_INODE => Some(Self::Snapshots),
            number
                if number <= FIRST_SNAPSHOT_INODE
                    && FIRST_SNAPSHOT_INODE - number < MAX_SNAPSHOT_OBJSET =>
            {
                Some(Self::Snapshot(ObjsetId(FIRST_SNAPSHOT_INODE - number)))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inode_numbers_are_those_of_the_spec() {
        let inode = |node: ControlNode| node.inode().0;
        assert_eq!(inode(ControlNode::Root), 0xffff_ffff_ffff);
        assert_eq!(inode(ControlNode::Shares), 0xffff_ffff_fffe);
        assert_eq!(inode(ControlNode::Snapshots), 0xffff_ffff_fffd);
        assert_eq!(inode(ControlNode::Snapshot(ObjsetId(95))), 281_474_976_710_557);
        for node in [
            ControlNode::Root,
            ControlNode::Shares,
            ControlNode::Snapshots,
            ControlNode::Snapshot(ObjsetId(95)),
        ] {
            assert_eq!(ControlNode::from_inode(node.inode()), Some(node));
        }
        assert_eq!(ControlNode::from_inode(ObjectId(34)), None);
        assert_eq!(ControlNode::from_inode(ObjectId(1 << 48)), None);
    }
}
