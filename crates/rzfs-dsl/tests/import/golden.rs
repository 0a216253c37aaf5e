//! The metadata of an open pool.

use super::{discover_images, import, property, table};
use rzfs_dsl::Pool;
use rzfs_dsl::pool::{
    AuxiliaryKind, AuxiliaryState, HistoryEvent, PoolStatus, PropertySource, ScanFunction,
    ScanStatus, Stored,
};
use rzfs_format::features::{Feature, Release};
use rzfs_format::indirect::RemovalStatus;
use rzfs_testkit::ReferencePool;
use rzfs_vdev::VdevKind;
use rzfs_vdev::config::AllocationBias;

fn open(name: &str) -> Option<(ReferencePool, Pool)> {
    let golden = ReferencePool::golden(name)?;
    let pool = import(&discover_images(&golden));
    Some((golden, pool))
}

/// All golden pools, open.
fn all() -> impl Iterator<Item = (ReferencePool, Pool)> {
    ReferencePool::all_golden().into_iter().map(|golden| {
        let pool = import(&discover_images(&golden));
        (golden, pool)
    })
}

#[test]
fn identity_health_and_features_are_those_that_openzfs_shows() {
    for (golden, pool) in all() {
        let expect = |name: &str, value: String| {
            if let Some(shown) = property(&golden, name) {
                assert_eq!(shown, value, "{} {name}", golden.name());
            }
        };
        expect("guid", pool.guid().to_string());
        expect("health", pool.health().to_string());
        expect("readonly", "off".to_owned());
        for feature in Feature::ALL.iter().filter(|feature| feature.since() == Release::V2_3) {
            let state = pool.features().state(*feature);
            expect(&format!("feature@{feature}"), state.name().to_owned());
        }
        assert_eq!(pool.features().unknown().count(), 0);
        assert_eq!(
            pool.mos().object(pool.root_dataset_dir()).unwrap().id(),
            pool.root_dataset_dir()
        );
        assert_eq!(pool.datasets().root().unwrap().name(), pool.name());
        assert!(pool.errors().unwrap().is_empty());
        assert_eq!(pool.rewound(), None);
    }
}

fn shown<T: ToString>(stored: &Stored<T>) -> (String, &'static str) {
    let source = match stored.source {
        PropertySource::Default => "default",
        PropertySource::Local => "local",
    };
    (stored.value.to_string(), source)
}

#[test]
fn stored_properties_are_those_that_openzfs_shows() {
    for (golden, pool) in all() {
        let properties = pool.properties().unwrap();
        let on = |stored: Stored<bool>| Stored {
            value: if stored.value { "on" } else { "off" },
            source: stored.source,
        };
        let found = [
            ("ashift", shown(&properties.ashift)),
            ("delegation", shown(&on(properties.delegation))),
            ("autoreplace", shown(&on(properties.autoreplace))),
            ("listsnapshots", shown(&on(properties.listsnapshots))),
            ("autoexpand", shown(&on(properties.autoexpand))),
            ("autotrim", shown(&on(properties.autotrim))),
            ("multihost", shown(&on(properties.multihost))),
        ];
        let rows = table(&golden, "zpool");
        for (name, (value, source)) in found {
            if let Some(row) = rows.iter().find(|row| row.get(1).is_some_and(|known| known == name))
            {
                assert_eq!(row[2..], [value.as_str(), source], "{} {name}", golden.name());
            }
        }
        if let Some(version) = property(&golden, "version").filter(|version| version != "-") {
            assert_eq!(properties.version.value.to_string(), version);
            assert_eq!(properties.version.source, PropertySource::Local);
        }
        assert_eq!(properties.version.value, pool.version());
    }
}

#[test]
fn space_is_what_openzfs_shows() {
    for (golden, pool) in all() {
        let Some(size) = property(&golden, "size") else { continue };
        let normal = |bias| bias != Some(AllocationBias::Log);
        let (mut total, mut allocated) = (0, 0);
        for space in pool.space().unwrap() {
            let top = pool.vdevs().top_level(space.vdev).unwrap();
            if normal(top.allocation_bias()) {
                total += space.size;
                allocated += space.allocated;
            }
        }
        assert_eq!(total.to_string(), size, "{}", golden.name());
        // The pool changed by a few metadata blocks between the command and the export.
        let shown: u64 = property(&golden, "allocated").unwrap().parse().unwrap();
        assert!(shown.abs_diff(allocated) < 1 << 20, "{} {allocated}", golden.name());
    }
}

#[test]
fn the_root_dataset_has_the_space_that_openzfs_shows() {
    for (golden, pool) in all() {
        let rows = table(&golden, "zfs");
        let of_root = |name: &str| -> Option<u64> {
            let row = rows.iter().find(|row| row[0] == pool.name() && row[1] == name)?;
            row[2].parse().ok()
        };
        let Some((used, available)) = of_root("used").zip(of_root("available")) else { continue };
        // Checkpointed space is not usable, and it grew until the export.
        let checkpoint: u64 = pool.space().unwrap().iter().map(|space| space.checkpoint).sum();
        let then =
            property(&golden, "checkpoint").and_then(|shown| shown.parse().ok()).unwrap_or(0);
        let usable = pool.usable_space().unwrap() + checkpoint - then;
        // Without log space maps frees of the last txgs were deferred when OpenZFS was asked.
        let tolerance = if pool.features().is_active(Feature::LogSpaceMap) { 0 } else { 64 << 10 };
        assert!(usable.abs_diff(used + available) <= tolerance, "{} {usable}", golden.name());
    }
}

#[test]
fn sharing_is_counted_as_openzfs_counts_it() {
    for (golden, pool) in all() {
        let tables = pool.dedup_tables().unwrap();
        let (mut referenced, mut allocated, mut size) = (0, 0, 0);
        for dedup_table in &tables {
            let total = dedup_table.histogram.total();
            referenced += total.ref_dsize;
            allocated += total.dsize;
            size += dedup_table.size_on_disk;
        }
        let ratio = (referenced * 100).checked_div(allocated).unwrap_or(100);
        let expect = |name: &str, value: String| {
            if let Some(shown) = property(&golden, name) {
                assert_eq!(value, shown, "{} {name}", golden.name());
            }
        };
        expect("dedupratio", format!("{}.{:02}", ratio / 100, ratio % 100));
        // Logs of fast dedup were still being flushed when OpenZFS was asked.
        if !pool.features().is_active(Feature::FastDedup) {
            expect("dedup_table_size", size.to_string());
        }
        let clones = pool.clone_savings().unwrap();
        expect("bcloneused", clones.used.to_string());
        expect("bclonesaved", clones.saved.to_string());
        expect("freeing", pool.freeing().unwrap().to_string());
        expect("leaked", pool.leaked().unwrap().to_string());
    }
}

#[test]
fn a_checkpoint_is_found_and_its_space_counted() {
    let Some((golden, pool)) = open("g17-checkpoint") else { return };
    let checkpoint = pool.checkpoint().expect("a checkpoint");
    assert!(checkpoint.checkpoint_txg == checkpoint.txg && checkpoint.txg < pool.txg());
    let space: u64 = pool.space().unwrap().iter().map(|space| space.checkpoint).sum();
    let shown: u64 = property(&golden, "checkpoint").unwrap().parse().unwrap();
    assert!(space.abs_diff(shown) < 64 << 10, "{space} {shown}");
}

#[test]
fn classes_spares_and_cache_devices_are_known() {
    let Some((golden, pool)) = open("g13-classes") else { return };
    let biases: Vec<_> = pool.vdevs().top_levels().map(|top| top.allocation_bias()).collect();
    assert_eq!(
        biases,
        [
            None,
            Some(AllocationBias::Special),
            Some(AllocationBias::Log),
            Some(AllocationBias::Dedup)
        ]
    );
    let auxiliary: Vec<_> = pool
        .auxiliary()
        .iter()
        .map(|vdev| (vdev.kind, vdev.state, vdev.config.hints.path.clone().unwrap()))
        .collect();
    let images = golden.images().unwrap();
    let path = |index: usize| images[index].to_str().unwrap().try_into().unwrap();
    assert_eq!(
        auxiliary,
        [
            (AuxiliaryKind::Spare, AuxiliaryState::Available, path(7)),
            (AuxiliaryKind::Cache, AuxiliaryState::Available, path(6)),
        ]
    );
}

#[test]
fn removed_vdevs_have_their_mapping() {
    let Some((_, pool)) = open("g15-removed") else { return };
    let removal = pool.removal().expect("a removal");
    assert_eq!(removal.status, RemovalStatus::Finished);
    let removed = pool.vdevs().top_level(removal.vdev.unwrap_or_default()).unwrap();
    assert_eq!(removed.kind(), VdevKind::Indirect);
    let mapped: u64 = removed.mapping().unwrap().entries().iter().map(|entry| entry.length()).sum();
    // "copied 15.7M"
    assert!((15 << 20..17 << 20).contains(&mapped), "{mapped}");
}

#[test]
fn scrubs_and_expansions_are_remembered() {
    let Some((golden, pool)) = open("g16-expanded") else { return };
    let scan = pool.scan().unwrap().expect("a scan");
    assert_eq!((scan.function, scan.status), (ScanFunction::Scrub, ScanStatus::Finished));
    assert_eq!((scan.end_time - scan.start_time, scan.errors), (2, 0));
    let last = pool.last_scrubbed_txg().unwrap().unwrap();
    assert_eq!(Some(last.to_string()), property(&golden, "last_scrubbed_txg"));
    let raidz = pool.vdevs().top_levels().next().unwrap();
    let expansion = pool.expansion(raidz).unwrap().expect("an expansion");
    assert_eq!(expansion.status, ScanStatus::Finished);
    assert_eq!(expansion.end_time - expansion.start_time, 1);
    // "copied 21.7M"
    assert!((21 << 20..23 << 20).contains(&expansion.copied));
}

#[test]
fn conditions_are_those_that_zpool_status_shows() {
    for (golden, pool) in all() {
        let text = golden.text("status").map(String::from_utf8);
        let text = text.map(|text| text.expect("UTF-8")).unwrap_or_default();
        let expected = if text.contains("features are not enabled") {
            PoolStatus::FeaturesDisabled
        } else if text.contains("legacy on-disk format") {
            PoolStatus::VersionOlder
        } else {
            PoolStatus::Healthy
        };
        assert_eq!(pool.status(0).unwrap(), expected, "{}", golden.name());
    }
}

#[test]
fn the_history_begins_with_the_creation() {
    for (golden, pool) in all() {
        let history = pool.history().unwrap().expect("a history");
        let records: Vec<_> = history.collect::<Result<_, _>>().unwrap();
        assert!(records.len() > 1, "{}", golden.name());
        assert!(records.iter().all(|record| record.time().is_some()));
        assert!(records.windows(2).all(|pair| pair[0].time() <= pair[1].time()));
        let create = records.iter().find_map(|record| match record.event() {
            HistoryEvent::Command { command, .. } => Some(command),
            _ => None,
        });
        let create = create.expect("a command");
        assert!(create.starts_with("zpool create"), "{create}");
        assert!(create.contains(pool.name()), "{create}");
        let known = |record: &rzfs_dsl::pool::HistoryRecord| record.event() != HistoryEvent::Other;
        assert!(records.iter().all(known), "{}", golden.name());
    }
}

#[test]
fn unreplayed_logs_are_noticed() {
    for (golden, pool) in all() {
        let logs = pool.unreplayed_logs().unwrap();
        assert_eq!(!logs.is_empty(), golden.name() == "g24-zil", "{}", golden.name());
    }
}
