//! Feature flags: the table of what OpenZFS knows (spec 01, section 5.4).
//!
//! A pool of version 5000 names each feature that was ever enabled in one of two ZAPs of its object
//! directory, with a reference count: 0 is enabled, more is active. Which of the two depends on
//! whether software without the feature may still read the pool.

/// Software without the feature can open the pool read-only (`READONLY_COMPAT`).
const READ_ONLY_COMPATIBLE: u8 = 1;
/// Needed to read the MOS itself, so the labels name it while it is active (`MOS`).
const LABEL: u8 = 2;
/// Active as soon as it is enabled (`ACTIVATE_ON_ENABLE`).
const ACTIVE_ON_ENABLE: u8 = 4;
/// Counted by dataset (`PER_DATASET`).
const PER_DATASET: u8 = 8;
/// Enabled only by name, never by an upgrade of all (`NO_UPGRADE`).
const NO_UPGRADE: u8 = 16;

/// A release of OpenZFS.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Release {
    /// 2.3, or any before.
    V2_3,
    /// 2.4.
    V2_4,
    /// None yet.
    Development,
}

struct Entry {
    name: &'static str,
    guid: &'static str,
    flags: u8,
    dependencies: &'static [Feature],
    description: &'static str,
}

macro_rules! features {
    ($($(#[$doc:meta])* $variant:ident:
       $name:literal, $guid:literal, $flags:expr, [$($dependency:ident),*], $description:literal;)*) => {
        /// A feature of OpenZFS, in the order in which `zpool create` enables them.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum Feature {
            $($(#[$doc])* $variant,)*
        }

        impl Feature {
            /// All features in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            const fn entry(self) -> &'static Entry {
                match self {
                    $(Self::$variant => &Entry {
                        name: $name,
                        guid: $guid,
                        flags: $flags,
                        dependencies: &[$(Self::$dependency),*],
                        description: $description,
                    },)*
                }
            }

            /// The feature with this guid, the name by which pools know it.
            #[must_use]
            pub fn from_guid(guid: &[u8]) -> Option<Self> {
                Self::ALL.iter().copied().find(|feature| feature.guid().as_bytes() == guid)
            }
        }
    };
}

features! {
    /// Destroy file systems in the background.
    AsyncDestroy:
        "async_destroy", "com.delphix:async_destroy", READ_ONLY_COMPATIBLE, [],
        "Destroy file systems in the background";
    /// Snapshots share one object for empty block lists.
    EmptyBpobj:
        "empty_bpobj", "com.delphix:empty_bpobj", READ_ONLY_COMPATIBLE, [],
        "Snapshots share one object for empty block lists";
    /// LZ4 compression.
    Lz4Compress:
        "lz4_compress", "org.illumos:lz4_compress", ACTIVE_ON_ENABLE, [],
        "LZ4 compression";
    /// Crash dumps to pools of several vdevs.
    MultiVdevCrashDump:
        "multi_vdev_crash_dump", "com.joyent:multi_vdev_crash_dump", 0, [],
        "Crash dumps to pools of several vdevs";
    /// Space maps keep histograms of free space.
    SpaceMapHistogram:
        "spacemap_histogram", "com.delphix:spacemap_histogram", READ_ONLY_COMPATIBLE, [],
        "Space maps keep histograms of free space";
    /// Record when a feature was enabled.
    EnabledTxg:
        "enabled_txg", "com.delphix:enabled_txg", READ_ONLY_COMPATIBLE, [],
        "Record when a feature was enabled";
    /// Holes remember when they were made.
    HoleBirth:
        "hole_birth", "com.delphix:hole_birth", LABEL | ACTIVE_ON_ENABLE, [EnabledTxg],
        "Holes remember when they were made";
    /// Datasets can carry more attributes.
    ExtensibleDataset:
        "extensible_dataset", "com.delphix:extensible_dataset", 0, [],
        "Datasets can carry more attributes";
    /// Blocks that compress very well live in their pointer.
    EmbeddedData:
        "embedded_data", "com.delphix:embedded_data", LABEL | ACTIVE_ON_ENABLE, [],
        "Blocks that compress very well live in their pointer";
    /// Bookmarks of snapshots.
    Bookmarks:
        "bookmarks", "com.delphix:bookmarks", READ_ONLY_COMPATIBLE, [ExtensibleDataset],
        "Bookmarks of snapshots";
    /// Limits on numbers of file systems and snapshots.
    FilesystemLimits:
        "filesystem_limits", "com.joyent:filesystem_limits", READ_ONLY_COMPATIBLE, [ExtensibleDataset],
        "Limits on numbers of file systems and snapshots";
    /// Blocks larger than 128 KiB.
    LargeBlocks:
        "large_blocks", "org.open-zfs:large_blocks", PER_DATASET, [ExtensibleDataset],
        "Blocks larger than 128 KiB";
    /// Dnodes of variable size.
    LargeDnode:
        "large_dnode", "org.zfsonlinux:large_dnode", PER_DATASET, [ExtensibleDataset],
        "Dnodes of variable size";
    /// SHA-512/256 checksum.
    Sha512:
        "sha512", "org.illumos:sha512", PER_DATASET, [ExtensibleDataset],
        "SHA-512/256 checksum";
    /// Skein checksum.
    Skein:
        "skein", "org.illumos:skein", PER_DATASET, [ExtensibleDataset],
        "Skein checksum";
    /// Edon-R checksum.
    EdonR:
        "edonr", "org.illumos:edonr", PER_DATASET, [ExtensibleDataset],
        "Edon-R checksum";
    /// Objects are counted by user and group.
    UserObjAccounting:
        "userobj_accounting", "org.zfsonlinux:userobj_accounting", READ_ONLY_COMPATIBLE | PER_DATASET, [ExtensibleDataset],
        "Objects are counted by user and group";
    /// Encryption of datasets.
    Encryption:
        "encryption", "com.datto:encryption", PER_DATASET, [ExtensibleDataset, BookmarkV2],
        "Encryption of datasets";
    /// Space and objects are counted by project.
    ProjectQuota:
        "project_quota", "org.zfsonlinux:project_quota", READ_ONLY_COMPATIBLE | PER_DATASET, [ExtensibleDataset],
        "Space and objects are counted by project";
    /// Top-level vdevs can be removed.
    DeviceRemoval:
        "device_removal", "com.delphix:device_removal", LABEL, [],
        "Top-level vdevs can be removed";
    /// Removed vdevs need less memory over time.
    ObsoleteCounts:
        "obsolete_counts", "com.delphix:obsolete_counts", READ_ONLY_COMPATIBLE, [ExtensibleDataset, DeviceRemoval],
        "Removed vdevs need less memory over time";
    /// Checkpoints of the pool.
    PoolCheckpoint:
        "zpool_checkpoint", "com.delphix:zpool_checkpoint", READ_ONLY_COMPATIBLE, [],
        "Checkpoints of the pool";
    /// Space maps of large segments take less space.
    SpaceMapV2:
        "spacemap_v2", "com.delphix:spacemap_v2", READ_ONLY_COMPATIBLE | ACTIVE_ON_ENABLE, [],
        "Space maps of large segments take less space";
    /// Special and dedup vdevs.
    AllocationClasses:
        "allocation_classes", "org.zfsonlinux:allocation_classes", READ_ONLY_COMPATIBLE, [],
        "Special and dedup vdevs";
    /// A new resilver waits for the running one.
    ResilverDefer:
        "resilver_defer", "com.datto:resilver_defer", READ_ONLY_COMPATIBLE, [],
        "A new resilver waits for the running one";
    /// Larger bookmarks.
    BookmarkV2:
        "bookmark_v2", "com.datto:bookmark_v2", 0, [ExtensibleDataset, Bookmarks],
        "Larger bookmarks";
    /// Bookmarks with lists of redacted blocks.
    RedactionBookmarks:
        "redaction_bookmarks", "com.delphix:redaction_bookmarks", 0, [BookmarkV2, ExtensibleDataset, Bookmarks],
        "Bookmarks with lists of redacted blocks";
    /// Datasets made by redacted receives.
    RedactedDatasets:
        "redacted_datasets", "com.delphix:redacted_datasets", PER_DATASET, [ExtensibleDataset],
        "Datasets made by redacted receives";
    /// Bookmarks know the space written since.
    BookmarkWritten:
        "bookmark_written", "com.delphix:bookmark_written", 0, [BookmarkV2, ExtensibleDataset, Bookmarks],
        "Bookmarks know the space written since";
    /// Changes of many space maps go to one log.
    LogSpaceMap:
        "log_spacemap", "com.delphix:log_spacemap", READ_ONLY_COMPATIBLE, [SpaceMapV2],
        "Changes of many space maps go to one log";
    /// Clones are destroyed faster.
    LiveList:
        "livelist", "com.delphix:livelist", READ_ONLY_COMPATIBLE, [ExtensibleDataset],
        "Clones are destroyed faster";
    /// Mirrors and dRAID resilver sequentially.
    DeviceRebuild:
        "device_rebuild", "org.openzfs:device_rebuild", READ_ONLY_COMPATIBLE, [],
        "Mirrors and dRAID resilver sequentially";
    /// Zstandard compression.
    ZstdCompress:
        "zstd_compress", "org.freebsd:zstd_compress", PER_DATASET, [ExtensibleDataset],
        "Zstandard compression";
    /// Distributed-spare RAID.
    Draid:
        "draid", "org.openzfs:draid", LABEL, [],
        "Distributed-spare RAID";
    /// dRAID spreads groups over failure domains.
    DraidFailureDomains:
        "draid_failure_domains", "com.seagate:draid_failure_domains", LABEL, [Draid],
        "dRAID spreads groups over failure domains";
    /// Extended attributes in system attributes are logged.
    ZilSaXattr:
        "zilsaxattr", "org.openzfs:zilsaxattr", READ_ONLY_COMPATIBLE | PER_DATASET, [ExtensibleDataset],
        "Extended attributes in system attributes are logged";
    /// The error log survives changes of snapshots.
    HeadErrorLog:
        "head_errlog", "com.delphix:head_errlog", ACTIVE_ON_ENABLE, [],
        "The error log survives changes of snapshots";
    /// BLAKE3 checksum.
    Blake3:
        "blake3", "org.openzfs:blake3", PER_DATASET, [ExtensibleDataset],
        "BLAKE3 checksum";
    /// Files share blocks by reference.
    BlockCloning:
        "block_cloning", "com.fudosecurity:block_cloning", READ_ONLY_COMPATIBLE, [],
        "Files share blocks by reference";
    /// The table of shared blocks has one byte order.
    BlockCloningEndian:
        "block_cloning_endian", "com.truenas:block_cloning_endian", READ_ONLY_COMPATIBLE, [],
        "The table of shared blocks has one byte order";
    /// The root vdev has attributes.
    VdevZapsV2:
        "vdev_zaps_v2", "com.klarasystems:vdev_zaps_v2", LABEL, [],
        "The root vdev has attributes";
    /// Redaction lists can be longer.
    RedactionListSpill:
        "redaction_list_spill", "com.delphix:redaction_list_spill", 0, [RedactionBookmarks],
        "Redaction lists can be longer";
    /// RAID-Z vdevs can get more disks.
    RaidzExpansion:
        "raidz_expansion", "org.openzfs:raidz_expansion", LABEL, [],
        "RAID-Z vdevs can get more disks";
    /// Flat dedup tables with a log.
    FastDedup:
        "fast_dedup", "com.klarasystems:fast_dedup", READ_ONLY_COMPATIBLE, [],
        "Flat dedup tables with a log";
    /// File names of up to 1023 bytes.
    LongName:
        "longname", "org.zfsonlinux:longname", PER_DATASET, [ExtensibleDataset],
        "File names of up to 1023 bytes";
    /// Micro ZAPs larger than 128 KiB.
    LargeMicroZap:
        "large_microzap", "com.klarasystems:large_microzap", READ_ONLY_COMPATIBLE | PER_DATASET, [ExtensibleDataset, LargeBlocks],
        "Micro ZAPs larger than 128 KiB";
    /// Gang headers larger than 512 bytes.
    DynamicGangHeader:
        "dynamic_gang_header", "com.klarasystems:dynamic_gang_header", LABEL | NO_UPGRADE, [],
        "Gang headers larger than 512 bytes";
    /// Rewritten blocks keep their logical birth.
    PhysicalRewrite:
        "physical_rewrite", "com.truenas:physical_rewrite", READ_ONLY_COMPATIBLE | PER_DATASET, [ExtensibleDataset],
        "Rewritten blocks keep their logical birth";
}

impl Feature {
    /// The feature with this name, the part of the property's name after `feature@`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|feature| feature.name() == name)
    }

    /// The name that users see.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.entry().name
    }

    /// The name that pools store: `organisation:feature`.
    #[must_use]
    pub const fn guid(self) -> &'static str {
        self.entry().guid
    }

    /// What it is for, in one line.
    #[must_use]
    pub const fn description(self) -> &'static str {
        self.entry().description
    }

    /// Features that must be enabled before this one.
    #[must_use]
    pub const fn dependencies(self) -> &'static [Self] {
        self.entry().dependencies
    }

    /// Whether software without the feature can open the pool read-only; it is then counted in
    /// `features_for_write`, else in `features_for_read`.
    #[must_use]
    pub const fn is_read_only_compatible(self) -> bool {
        self.entry().flags & READ_ONLY_COMPATIBLE != 0
    }

    /// Whether labels name it while it is active, since the MOS cannot be read without it.
    #[must_use]
    pub const fn is_label_feature(self) -> bool {
        self.entry().flags & LABEL != 0
    }

    /// Whether it is active as soon as it is enabled.
    #[must_use]
    pub const fn is_active_on_enable(self) -> bool {
        self.entry().flags & ACTIVE_ON_ENABLE != 0
    }

    /// Whether its reference count is the number of datasets that use it; each such dataset's
    /// object has a ZAP entry named by the guid.
    #[must_use]
    pub const fn is_per_dataset(self) -> bool {
        self.entry().flags & PER_DATASET != 0
    }

    /// The first release that has it, of those that differ in their features.
    #[must_use]
    pub const fn since(self) -> Release {
        match self {
            Self::BlockCloningEndian | Self::DynamicGangHeader | Self::PhysicalRewrite => {
                Release::V2_4
            }
            Self::DraidFailureDomains => Release::Development,
            _ => Release::V2_3,
        }
    }

    /// Whether `zpool upgrade` enables it without being told its name.
    #[must_use]
    pub const fn is_enabled_by_upgrade(self) -> bool {
        self.entry().flags & NO_UPGRADE == 0
    }
}

impl std::fmt::Display for Feature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Whether a guid has the form `organisation:feature`: one colon, before it `a-z 0-9 . -`, after
/// it `a-z 0-9 _`.
#[must_use]
pub fn is_valid_guid(guid: &[u8]) -> bool {
    let mut parts = guid.split(|byte| *byte == b':');
    let (Some(organisation), Some(feature), None) = (parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    organisation.iter().all(|byte| alphanumeric(byte) || matches!(byte, b'.' | b'-'))
        && feature.iter().all(|byte| alphanumeric(byte) || *byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_guids_identify_features() {
        for feature in Feature::ALL {
            assert_eq!(Feature::from_guid(feature.guid().as_bytes()), Some(*feature));
            assert_eq!(Feature::from_name(feature.name()), Some(*feature));
            assert!(is_valid_guid(feature.guid().as_bytes()), "{feature}");
        }
        let since = |release| Feature::ALL.iter().filter(|f| f.since() <= release).count();
        let counts = [Release::V2_3, Release::V2_4, Release::Development].map(since);
        assert_eq!(counts, [44, 47, 48]);
        assert_eq!(Feature::from_guid(b"org.example:none"), None);
    }

    #[test]
    fn dependencies_have_no_cycle_and_cover_datasets() {
        for feature in Feature::ALL {
            let mut needed = feature.dependencies().to_vec();
            let mut at = 0;
            while let Some(dependency) = needed.get(at).copied() {
                assert_ne!(dependency, *feature);
                needed.extend(dependency.dependencies());
                at += 1;
                assert!(at < 100, "{feature} depends on itself");
            }
            if feature.is_per_dataset() {
                assert!(needed.contains(&Feature::ExtensibleDataset), "{feature}");
            }
        }
    }

    #[test]
    fn the_table_says_what_the_specification_says() {
        assert_eq!(
            Feature::Encryption.dependencies(),
            [Feature::ExtensibleDataset, Feature::BookmarkV2]
        );
        assert!(Feature::HoleBirth.is_label_feature() && Feature::HoleBirth.is_active_on_enable());
        assert!(!Feature::HoleBirth.is_read_only_compatible());
        assert!(Feature::LogSpaceMap.is_read_only_compatible());
        assert!(!Feature::DynamicGangHeader.is_enabled_by_upgrade());
        let labels: Vec<_> = Feature::ALL.iter().filter(|f| f.is_label_feature()).collect();
        assert_eq!(
            labels,
            [
                &Feature::HoleBirth,
                &Feature::EmbeddedData,
                &Feature::DeviceRemoval,
                &Feature::Draid,
                &Feature::DraidFailureDomains,
                &Feature::VdevZapsV2,
                &Feature::RaidzExpansion,
                &Feature::DynamicGangHeader
            ]
        );
    }

    #[test]
    fn guids_have_one_colon_and_few_characters() {
        for guid in ["com.delphix:x", "org.open-zfs:large_blocks", ":", "a:0_"] {
            assert!(is_valid_guid(guid.as_bytes()), "{guid}");
        }
        for guid in ["", "com.delphix", "a:b:c", "A:b", "a_b:c", "a:b-c", "a:b c"] {
            assert!(!is_valid_guid(guid.as_bytes()), "{guid}");
        }
    }
}
