//! The feature sets shipped with OpenZFS, for hosts without its files.
//!
//! Each is a list of features supported by some release or platform; here a list only has its
//! additions to another one.

use rzfs_format::features::Feature::{
    self, AllocationClasses, AsyncDestroy, Blake3, BlockCloning, BookmarkV2, BookmarkWritten,
    Bookmarks, DeviceRebuild, DeviceRemoval, Draid, EdonR, EmbeddedData, EmptyBpobj, EnabledTxg,
    Encryption, ExtensibleDataset, FastDedup, FilesystemLimits, HeadErrorLog, HoleBirth,
    LargeBlocks, LargeDnode, LargeMicroZap, LiveList, LogSpaceMap, LongName, Lz4Compress,
    MultiVdevCrashDump, ObsoleteCounts, PoolCheckpoint, ProjectQuota, RaidzExpansion,
    RedactedDatasets, RedactionBookmarks, RedactionListSpill, ResilverDefer, Sha512, Skein,
    SpaceMapHistogram, SpaceMapV2, UserObjAccounting, VdevZapsV2, ZilSaXattr, ZstdCompress,
};
use std::collections::BTreeSet;

struct FeatureSet {
    /// Its names: the file, and links to it.
    names: &'static [&'static str],
    /// The set it extends.
    extends: Option<&'static str>,
    /// Its additions to that.
    adds: &'static [Feature],
}

const SETS: [FeatureSet; 19] = [
    FeatureSet {
        names: &["zol-0.6.1"],
        extends: None,
        adds: &[AsyncDestroy, EmptyBpobj, Lz4Compress],
    },
    FeatureSet {
        names: &["zol-0.6.4"],
        extends: Some("zol-0.6.1"),
        adds: &[
            SpaceMapHistogram,
            EnabledTxg,
            HoleBirth,
            ExtensibleDataset,
            EmbeddedData,
            Bookmarks,
        ],
    },
    FeatureSet {
        names: &["2018", "compat-2018", "zol-0.6.5"],
        extends: Some("zol-0.6.4"),
        adds: &[FilesystemLimits, LargeBlocks],
    },
    FeatureSet { names: &["freenas-9.10.2"], extends: Some("2018"), adds: &[MultiVdevCrashDump] },
    FeatureSet {
        names: &[
            "2019",
            "2020",
            "compat-2019",
            "compat-2020",
            "freebsd-11.0",
            "freebsd-11.1",
            "freenas-11.0",
            "freenas-11.1",
        ],
        extends: Some("freenas-9.10.2"),
        adds: &[Sha512, Skein],
    },
    FeatureSet {
        names: &["grub2-2.06"],
        extends: Some("zol-0.6.1"),
        adds: &[
            SpaceMapHistogram,
            EnabledTxg,
            HoleBirth,
            EmbeddedData,
            PoolCheckpoint,
            SpaceMapV2,
            AllocationClasses,
            ResilverDefer,
            LogSpaceMap,
            DeviceRebuild,
            BlockCloning,
        ],
    },
    FeatureSet { names: &["openzfsonosx-1.7.0"], extends: Some("2019"), adds: &[EdonR] },
    FeatureSet {
        names: &["freebsd-11.2", "freenas-11.2"],
        extends: Some("2019"),
        adds: &[DeviceRemoval, ObsoleteCounts, PoolCheckpoint],
    },
    FeatureSet {
        names: &["ubuntu-18.04", "zol-0.7"],
        extends: Some("openzfsonosx-1.7.0"),
        adds: &[LargeDnode, UserObjAccounting],
    },
    FeatureSet {
        names: &[
            "2021",
            "compat-2021",
            "freebsd-11.3",
            "freebsd-11.4",
            "freebsd-12.0",
            "freebsd-12.1",
            "freebsd-12.2",
            "freebsd-12.3",
            "freebsd-12.4",
            "freenas-11.3",
        ],
        extends: Some("freebsd-11.2"),
        adds: &[SpaceMapV2],
    },
    FeatureSet { names: &["openzfsonosx-1.8.1"], extends: Some("2021"), adds: &[EdonR] },
    FeatureSet {
        names: &["grub2", "grub2-2.12"],
        extends: Some("grub2-2.06"),
        adds: &[
            ExtensibleDataset,
            Bookmarks,
            FilesystemLimits,
            LargeBlocks,
            UserObjAccounting,
            ProjectQuota,
            LiveList,
            ZilSaXattr,
        ],
    },
    FeatureSet {
        names: &["openzfsonosx-1.9.3", "openzfsonosx-1.9.4", "ubuntu-20.04", "zol-0.8"],
        extends: Some("openzfsonosx-1.8.1"),
        adds: &[
            LargeDnode,
            UserObjAccounting,
            Encryption,
            ProjectQuota,
            AllocationClasses,
            ResilverDefer,
            BookmarkV2,
        ],
    },
    FeatureSet {
        names: &["openzfs-2.0-freebsd", "truenas-12.0"],
        extends: Some("2021"),
        adds: &[
            LargeDnode,
            UserObjAccounting,
            Encryption,
            ProjectQuota,
            AllocationClasses,
            ResilverDefer,
            BookmarkV2,
            RedactionBookmarks,
            RedactedDatasets,
            BookmarkWritten,
            LogSpaceMap,
            LiveList,
            DeviceRebuild,
            ZstdCompress,
        ],
    },
    FeatureSet {
        names: &["freebsd-13.0", "freebsd-13.1", "freebsd-13.2", "openzfs-2.1-freebsd"],
        extends: Some("openzfs-2.0-freebsd"),
        adds: &[Draid],
    },
    FeatureSet {
        names: &["openzfs-2.0-linux"],
        extends: Some("openzfs-2.0-freebsd"),
        adds: &[EdonR],
    },
    FeatureSet {
        names: &["openzfs-2.1-linux", "ubuntu-22.04"],
        extends: Some("freebsd-13.0"),
        adds: &[EdonR],
    },
    FeatureSet {
        names: &["openzfs-2.2", "openzfs-2.2-freebsd", "openzfs-2.2-linux"],
        extends: Some("openzfs-2.1-linux"),
        adds: &[ZilSaXattr, HeadErrorLog, Blake3, BlockCloning, VdevZapsV2],
    },
    FeatureSet {
        names: &["openzfs-2.3", "openzfs-2.3-freebsd", "openzfs-2.3-linux"],
        extends: Some("openzfs-2.2"),
        adds: &[RedactionListSpill, RaidzExpansion, FastDedup, LongName, LargeMicroZap],
    },
];

/// The features of a set; `None` if no set has the name.
pub(super) fn features(name: &str) -> Option<BTreeSet<Feature>> {
    let find = |name: &str| SETS.iter().find(|set| set.names.contains(&name));
    let mut set = find(name)?;
    let mut features: BTreeSet<Feature> = set.adds.iter().copied().collect();
    while let Some(extended) = set.extends.and_then(find) {
        features.extend(extended.adds);
        set = extended;
    }
    Some(features)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_format::features::Release;

    #[test]
    fn sets_extend_only_smaller_ones() {
        for (index, set) in SETS.iter().enumerate() {
            let extended = set
                .extends
                .map(|name| SETS.iter().position(|other| other.names.contains(&name)).unwrap());
            assert!(extended.is_none_or(|extended| extended < index), "{:?}", set.names);
        }
    }

    #[test]
    fn the_newest_set_has_every_feature_of_its_release() {
        let release = Feature::ALL.iter().copied().filter(|f| f.since() == Release::V2_3);
        assert_eq!(features("openzfs-2.3-linux"), Some(release.collect()));
        assert_eq!(features("openzfs-2.2").map(|set| set.len()), Some(39));
        assert_eq!(features("zol-0.6.1").map(|set| set.len()), Some(3));
        assert_eq!(features("openzfs-1.0"), None);
    }
}
