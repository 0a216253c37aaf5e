//! The configuration of a vdev, as in labels and the MOS (spec 01, section 4.3).
//!
//! [`VdevConfig`] holds all values as stored, so that a configuration can be written back.
//! [`crate::VdevTree::open`] checks it.

mod nvlist;

use rzfs_format::nvlist::{NvPair, NvString};
use rzfs_format::{Guid, ObjectId, Txg};

/// What a vdev is (spec 07, section 2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum VdevKind {
    /// The parent of all top-level vdevs.
    Root,
    /// A block device.
    Disk,
    /// A regular file.
    File,
    /// The same data on every child.
    Mirror,
    /// RAID-Z: parity over a variable number of columns.
    Raidz,
    /// Distributed RAID: fixed groups permuted over all children.
    Draid,
    /// A device and its replacement.
    Replacing,
    /// A device and the hot spares in use for it.
    Spare,
    /// A spare made of free columns of a dRAID.
    DistributedSpare,
    /// A top-level vdev whose contents were moved to other vdevs.
    Indirect,
    /// The slot of a removed log device.
    Hole,
    /// The slot of a top-level vdev that was not found.
    Missing,
}

impl VdevKind {
    /// All kinds with the names that configurations use.
    pub const NAMES: [(Self, &'static str); 12] = [
        (Self::Root, "root"),
        (Self::Disk, "disk"),
        (Self::File, "file"),
        (Self::Mirror, "mirror"),
        (Self::Raidz, "raidz"),
        (Self::Draid, "draid"),
        (Self::Replacing, "replacing"),
        (Self::Spare, "spare"),
        (Self::DistributedSpare, "dspare"),
        (Self::Indirect, "indirect"),
        (Self::Hole, "hole"),
        (Self::Missing, "missing"),
    ];

    /// The kind of this `type` string.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind)
    }

    /// The `type` string.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }

    /// Whether it is a device: a disk or a file.
    #[must_use]
    pub const fn is_device(self) -> bool {
        matches!(self, Self::Disk | Self::File)
    }

    /// Whether every child holds the same bytes at the same offsets.
    #[must_use]
    pub const fn is_mirrored(self) -> bool {
        matches!(self, Self::Mirror | Self::Replacing | Self::Spare)
    }

    /// Whether it has no children.
    #[must_use]
    pub const fn is_leaf(self) -> bool {
        matches!(
            self,
            Self::Disk
                | Self::File
                | Self::DistributedSpare
                | Self::Indirect
                | Self::Hole
                | Self::Missing
        )
    }
}

/// The kind of blocks a top-level vdev is for (`alloc_bias`; spec 07, section 14).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AllocationBias {
    /// Intent-log blocks.
    Log,
    /// Metadata and small blocks.
    Special,
    /// Dedup tables.
    Dedup,
}

impl AllocationBias {
    /// The bias of this string.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Log, Self::Special, Self::Dedup].into_iter().find(|bias| bias.name() == name)
    }

    /// The string, as the top-level vdev's ZAP has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Special => "special",
            Self::Dedup => "dedup",
        }
    }
}

/// How to find the device of a leaf; hints only, the label decides.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct DeviceHints {
    /// `path`: where the device was last, or the name of a distributed spare.
    pub path: Option<NvString>,
    /// `devid`.
    pub devid: Option<NvString>,
    /// `phys_path`.
    pub physical_path: Option<NvString>,
    /// `vdev_enc_sysfs_path`.
    pub enclosure_path: Option<NvString>,
    /// `fru`.
    pub fru: Option<NvString>,
    /// `whole_disk`.
    pub whole_disk: Option<u64>,
    /// `rotational`.
    pub rotational: Option<u64>,
}

/// The health of a leaf as recorded in the configuration.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct PersistentFlags {
    /// `offline`: taken offline by the administrator.
    pub offline: bool,
    /// `faulted`.
    pub faulted: bool,
    /// `degraded`.
    pub degraded: bool,
    /// `removed`: the device vanished.
    pub removed: bool,
    /// `not_present`: was not there at the last import.
    pub not_present: bool,
    /// `unspare`: detach the spare once the original is resilvered.
    pub unspare: bool,
    /// `is_spare`: comes from the list of spares.
    pub is_spare: Option<u64>,
    /// `com.datto:resilver_defer`.
    pub resilver_deferred: bool,
    /// `aux_state`: why it is faulted or degraded.
    pub aux_state: Option<NvString>,
}

/// Further fields of a leaf.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct LeafRecord {
    /// `DTL`: the space map with the txgs whose data the leaf lacks.
    pub dtl_object: Option<ObjectId>,
    /// `resilver_txg`: when its resilver was requested.
    pub resilver_txg: Option<Txg>,
    /// `rebuild_txg`: when its sequential rebuild was requested.
    pub rebuild_txg: Option<Txg>,
    /// `expansion_time` in seconds.
    pub expansion_time: Option<u64>,
    /// `com.delphix:vdev_zap_leaf`.
    pub zap: Option<ObjectId>,
    /// `orig_guid`: its guid before a split that is not finished.
    pub original_guid: Option<Guid>,
    /// `spareid`: index of a distributed spare in its dRAID.
    pub spare_id: Option<u64>,
}

impl LeafRecord {
    /// Whether a resilver or sequential rebuild was requested and has not finished.
    #[must_use]
    pub const fn waits_for_resilver(&self) -> bool {
        self.resilver_txg.is_some() || self.rebuild_txg.is_some()
    }
}

/// Fields of top-level vdevs.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct TopLevelRecord {
    /// `ashift`: log2 of the smallest I/O.
    pub ashift: Option<u64>,
    /// `asize`: allocatable bytes, redundancy included.
    pub asize: Option<u64>,
    /// `metaslab_array`: the object with the numbers of the space maps.
    pub metaslab_array: Option<ObjectId>,
    /// `metaslab_shift`: log2 of a metaslab's bytes.
    pub metaslab_shift: Option<u64>,
    /// `min_alloc`.
    pub min_alloc: Option<u64>,
    /// `is_log`.
    pub is_log: Option<u64>,
    /// `non_allocating`.
    pub non_allocating: bool,
    /// `removing`.
    pub removing: bool,
    /// `alloc_bias`; on disk it is in the vdev's ZAP.
    pub allocation_bias: Option<AllocationBias>,
    /// `com.delphix:vdev_zap_top`.
    pub zap: Option<ObjectId>,
}

/// `draid_*`: the shape of a dRAID (spec 07, section 11.1).
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct DraidRecord {
    /// `draid_ndata`: data columns of a group.
    pub data: u64,
    /// `draid_nspares`: distributed spares.
    pub spares: u64,
    /// `draid_ngroups`: groups of a slice.
    pub groups: u64,
    /// `draid_nchildren`: children of one failure group, if there are several.
    pub failure_group_children: Option<u64>,
}

/// The mapping objects of a removed vdev (spec 06, section 15).
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct IndirectRecord {
    /// `com.delphix:indirect_object`: the mapping.
    pub mapping: Option<ObjectId>,
    /// `com.delphix:indirect_births`: the txgs in which ranges were copied.
    pub births: Option<ObjectId>,
    /// `com.delphix:prev_indirect_vdev`: id of the vdev that was removed before this one.
    pub previous: Option<u64>,
}

/// A vdev and all its descendants, as in labels and the MOS configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VdevConfig {
    /// `type`.
    pub kind: VdevKind,
    /// `id`: the position in the parent.
    pub id: u64,
    /// `guid`.
    pub guid: Guid,
    /// `top_guid`, where stored: a distributed spare's dRAID.
    pub top_guid: Option<Guid>,
    /// `create_txg`.
    pub create_txg: Option<Txg>,
    /// `nparity` of raidz and draid.
    pub nparity: Option<u64>,
    /// `raidz_expanding`.
    pub raidz_expanding: bool,
    /// `raidz_expand_txgs`: entry i is the first txg with the width after expansion i + 1.
    pub raidz_expand_txgs: Vec<Txg>,
    /// `draid_*`.
    pub draid: Option<DraidRecord>,
    /// Hints about the device.
    pub hints: DeviceHints,
    /// Recorded health.
    pub flags: PersistentFlags,
    /// Leaf keys.
    pub leaf: LeafRecord,
    /// Top-level keys.
    pub top: TopLevelRecord,
    /// Keys of a removed vdev or one that is being removed.
    pub indirect: IndirectRecord,
    /// `com.klarasystems:vdev_zap_root`.
    pub root_zap: Option<ObjectId>,
    /// `children`.
    pub children: Vec<VdevConfig>,
    /// Unknown pairs.
    pub others: Vec<NvPair>,
}

impl VdevConfig {
    /// A vdev without any optional value.
    #[must_use]
    pub fn new(kind: VdevKind, guid: Guid) -> Self {
        Self {
            kind,
            id: 0,
            guid,
            top_guid: None,
            create_txg: None,
            nparity: None,
            raidz_expanding: false,
            raidz_expand_txgs: Vec::new(),
            draid: None,
            hints: DeviceHints::default(),
            flags: PersistentFlags::default(),
            leaf: LeafRecord::default(),
            top: TopLevelRecord::default(),
            indirect: IndirectRecord::default(),
            root_zap: None,
            children: Vec::new(),
            others: Vec::new(),
        }
    }

    /// The vdev with these children, numbered by position.
    #[must_use]
    pub fn with_children(mut self, children: impl IntoIterator<Item = Self>) -> Self {
        self.children = children.into_iter().collect();
        for (id, child) in (0..).zip(&mut self.children) {
            child.id = id;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_kinds_are_inverse() {
        for (kind, name) in VdevKind::NAMES {
            assert_eq!(VdevKind::from_name(name), Some(kind));
            assert_eq!(kind.name(), name);
        }
        assert_eq!(VdevKind::from_name("l2cache"), None);
        assert_eq!(AllocationBias::from_name("special"), Some(AllocationBias::Special));
        assert_eq!(AllocationBias::from_name(""), None);
    }
}
