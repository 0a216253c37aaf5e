//! The properties of pools (spec 01, section 7.1; spec 09, section 5.2).

use super::description::{Description, read_only, settable};
use super::table::properties;
use super::values::NumberFormat::{Percent, Plain, Quota, Ratio, Scaled};
use super::values::Values::{Number, SectorShift, Text};
use super::values::{Values, word, words};

/// Where the value of a property of a pool is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolStorage {
    /// In the ZAP of properties of the pool, under its own name, as a number.
    Properties,
    /// There, as the number of a dataset.
    Dataset,
    /// In the labels, under its own name, as text.
    Labels,
    /// It follows from other things, or holds while the pool is imported.
    Elsewhere,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    description: Description,
    storage: PoolStorage,
}

impl Description {
    const fn kept(self, storage: PoolStorage) -> Entry {
        Entry { description: self, storage }
    }

    const fn elsewhere(self) -> Entry {
        self.kept(PoolStorage::Elsewhere)
    }

    const fn stored(self) -> Entry {
        self.kept(PoolStorage::Properties)
    }
}

const ON_OFF: Values = words![word(1, "on"), word(0, "off")];
/// States of pools and vdevs.
pub(super) const HEALTH: Values = words![
    word(7, "ONLINE"),
    word(6, "DEGRADED"),
    word(5, "FAULTED"),
    word(2, "OFFLINE"),
    word(3, "REMOVED"),
    word(4, "UNAVAIL"),
];

properties! {
    /// A property of pools, but no feature, in the order of `zpool get all`.
    PoolProperty: Entry {
        /// Its name, which `zpool get all` leaves out.
        Name = read_only("name", "NAME", Text).elsewhere();
        /// Its space.
        Size = read_only("size", "SIZE", Number(Scaled)).elsewhere();
        /// How much of its space is allocated.
        Capacity = read_only("capacity", "CAP", Number(Percent)).elsewhere();
        /// The directory below which everything is mounted.
        AltRoot = settable("altroot", "ALTROOT", Text).help("<path>").elsewhere();
        /// Its state.
        Health = read_only("health", "HEALTH", HEALTH).help("<state>").elsewhere();
        /// A number that no other pool has.
        Guid = read_only("guid", "GUID", Number(Plain)).help("<guid>").elsewhere();
        /// The version of the format, for pools without features.
        Version = settable("version", "VERSION", Number(Plain)).help("<version>").elsewhere();
        /// The file system that a system boots from.
        BootFs = settable("bootfs", "BOOTFS", Text).help("<filesystem>").kept(PoolStorage::Dataset);
        /// Whether users can be given permissions.
        Delegation = settable("delegation", "DELEGATION", ON_OFF).default_word("on").stored();
        /// Whether a new device in the place of an old one replaces it.
        AutoReplace = settable("autoreplace", "REPLACE", ON_OFF).default_word("off").stored();
        /// The file that remembers that it is imported.
        CacheFile = settable("cachefile", "CACHEFILE", Text).help("<file> | none").elsewhere();
        /// What to do when a device that is needed fails.
        FailMode = settable("failmode", "FAILMODE", words![
            word(0, "wait"), word(1, "continue"), word(2, "panic"),
        ]).default_word("wait").stored();
        /// Whether `zfs list` shows snapshots.
        ListSnapshots = settable("listsnapshots", "LISTSNAPS", ON_OFF).default_word("off").stored();
        /// Whether a vdev grows with its devices.
        AutoExpand = settable("autoexpand", "EXPAND", ON_OFF).default_word("off").stored();
        /// What deduplication saves.
        DedupRatio = read_only("dedupratio", "DEDUP", Number(Ratio))
            .help("<1.00x or higher if deduped>").elsewhere();
        /// Space that is not allocated.
        Free = read_only("free", "FREE", Number(Scaled)).elsewhere();
        /// Space that is allocated.
        Allocated = read_only("allocated", "ALLOC", Number(Scaled)).elsewhere();
        /// Whether it is imported read-only.
        ReadOnly = settable("readonly", "RDONLY", ON_OFF).elsewhere();
        /// The log2 of the sector size of new vdevs.
        Ashift = settable("ashift", "ASHIFT", SectorShift).default(0).stored();
        /// A text for people.
        Comment = settable("comment", "COMMENT", Text).help("<comment-string>")
            .kept(PoolStorage::Labels);
        /// Space that devices have and vdevs do not use yet.
        ExpandSize = read_only("expandsize", "EXPANDSZ", Number(Scaled)).elsewhere();
        /// Space of destroyed datasets that is not free yet.
        Freeing = read_only("freeing", "FREEING", Number(Scaled)).elsewhere();
        /// How scattered the free space is.
        Fragmentation = read_only("fragmentation", "FRAG", Number(Percent)).elsewhere();
        /// Space that is lost.
        Leaked = read_only("leaked", "LEAKED", Number(Scaled)).elsewhere();
        /// Whether other hosts can tell that it is in use.
        Multihost = settable("multihost", "MULTIHOST", ON_OFF).default_word("off").stored();
        /// Space that the checkpoint keeps.
        Checkpoint = read_only("checkpoint", "CKPOINT", Number(Scaled)).elsewhere();
        /// A number that is new with every import.
        LoadGuid = read_only("load_guid", "LOAD_GUID", Number(Plain)).help("<load_guid>")
            .elsewhere();
        /// Whether devices are told which blocks become free.
        Autotrim = settable("autotrim", "AUTOTRIM", ON_OFF).default_word("off").stored();
        /// The files that say which features it may have.
        Compatibility = settable("compatibility", "COMPATIBILITY", Text)
            .help("<file[,file...]> | off | legacy").kept(PoolStorage::Labels);
        /// Space of cloned blocks.
        BcloneUsed = read_only("bcloneused", "BCLONE_USED", Number(Scaled)).elsewhere();
        /// Space that cloning saves.
        BcloneSaved = read_only("bclonesaved", "BCLONE_SAVED", Number(Scaled)).elsewhere();
        /// The same as a ratio.
        BcloneRatio = read_only("bcloneratio", "BCLONE_RATIO", Number(Ratio))
            .help("<1.00x or higher if cloned>").elsewhere();
        /// Space of the deduplication tables.
        DedupTableSize = read_only("dedup_table_size", "DDTSIZE", Number(Scaled)).elsewhere();
        /// The most that the deduplication tables may use.
        DedupTableQuota = settable("dedup_table_quota", "DDTQUOTA", Number(Quota)).default(u64::MAX)
            .stored();
        /// The txg up to which everything has been scrubbed.
        LastScrubbedTxg = read_only("last_scrubbed_txg", "LAST_SCRUBBED_TXG", Number(Plain))
            .help("<txg>").elsewhere();
    }
}

impl PoolProperty {
    /// Where its value is.
    #[must_use]
    pub const fn storage(self) -> PoolStorage {
        self.entry().storage
    }
}
