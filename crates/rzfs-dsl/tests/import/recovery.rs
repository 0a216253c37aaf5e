//! Pools with missing or damaged devices, older states of pools, and pools of other hosts.

use super::overlay::Overlay;
use super::{device, discover, discover_images, images, options};
use rzfs_blockdev::BlockDevice;
use rzfs_dsl::Pool;
use rzfs_dsl::import::{
    Clock, DeviceSource, DiscoveredPool, HostCheck, HostIdentity, ImportError, ImportFailure,
    ImportOptions, ImportTarget, ImportablePool, LabelTrust, MissingLogs, RewindPolicy, Wait,
    read_labels, read_rings,
};
use rzfs_dsl::pool::{AuxiliaryKind, AuxiliaryState, PoolStatus};
use rzfs_format::Txg;
use rzfs_format::label::UberblockRing;
use rzfs_format::nvlist::{NvList, NvString, NvValue};
use rzfs_format::uberblock::{Multihost, MultihostConfig, Uberblock};
use rzfs_testkit::ReferencePool;
use rzfs_vdev::AuxReason;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

/// The pool on all images but these.
fn without(golden: &ReferencePool, missing: &[usize]) -> DiscoveredPool {
    let present = images(golden).into_iter().enumerate();
    let present = present.filter(|(index, _)| !missing.contains(index));
    discover(present.map(|(_, path)| DeviceSource::Path(path)).collect())
}

fn import(discovered: &DiscoveredPool) -> Result<Pool, ImportFailure> {
    Pool::import(discovered, &options(discovered))
}

fn failure(discovered: &DiscoveredPool, options: &ImportOptions) -> ImportFailure {
    match Pool::import(discovered, options) {
        Err(failure) => failure,
        Ok(pool) => panic!("{} was imported", pool.name()),
    }
}

fn examine(discovered: &DiscoveredPool) -> ImportablePool {
    ImportablePool::examine(discovered, &options(discovered))
}

/// The displayed state and condition.
fn shown(discovered: &DiscoveredPool) -> (String, PoolStatus) {
    let found = examine(discovered);
    (found.health.to_string(), found.status)
}

#[test]
fn redundant_pools_do_without_some_devices() {
    for (name, missing) in [
        ("g04-mirror3", vec![0, 1]),
        ("g05-raidz1", vec![1]),
        ("g06-raidz2", vec![0, 3]),
        ("g07-raidz3", vec![1, 2, 5]),
        ("g08-draid2", vec![4, 7]),
    ] {
        let Some(golden) = ReferencePool::golden(name) else { continue };
        let discovered = without(&golden, &missing);
        let pool = import(&discovered).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(pool.health().to_string(), "DEGRADED", "{name}");
        assert_eq!(pool.status(0).unwrap(), PoolStatus::Missing, "{name}");
        assert!(pool.datasets().root().unwrap().descendants().unwrap().len() > 1, "{name}");
        assert_eq!(shown(&discovered), ("DEGRADED".to_owned(), PoolStatus::Missing), "{name}");
    }
}

#[test]
fn too_many_missing_devices_are_an_error() {
    for (name, missing) in [
        ("g05-raidz1", vec![0, 1]),
        ("g06-raidz2", vec![0, 1, 2]),
        ("g08-draid2", vec![0, 1, 2]),
        ("g09-stripe", vec![2]),
        ("g13-classes", vec![2, 3]),
    ] {
        let Some(golden) = ReferencePool::golden(name) else { continue };
        let discovered = without(&golden, &missing);
        let failure = failure(&discovered, &options(&discovered));
        assert!(failure.errno() == 6 || failure.errno() == 5, "{failure}");
        let expected = ("UNAVAIL".to_owned(), PoolStatus::MissingNoReplicas);
        assert_eq!(shown(&discovered), expected, "{name}: {failure}");
    }
}

#[test]
fn a_top_level_vdev_can_be_given_up() {
    let Some(golden) = ReferencePool::golden("g09-stripe") else { return };
    let discovered = without(&golden, &[1]);
    let mut rescue = options(&discovered);
    rescue.tunables.zfs_max_missing_tvds = 1;
    let pool = Pool::import(&discovered, &rescue).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(pool.health().to_string(), "DEGRADED");
    assert_eq!(pool.datasets().root().unwrap().name(), "g09");
}

#[test]
fn missing_logs_need_permission() {
    let Some(golden) = ReferencePool::golden("g13-classes") else { return };
    let discovered = without(&golden, &[4, 5]);
    let failure = failure(&discovered, &options(&discovered));
    match &*failure.error {
        ImportError::MissingLogs { logs } => assert_eq!((logs.len(), logs[0].id), (1, 2)),
        error => panic!("{error}"),
    }
    assert_eq!(failure.errno(), 6);
    let permitted = ImportOptions { missing_logs: MissingLogs::Ignore, ..options(&discovered) };
    let pool = Pool::import(&discovered, &permitted).unwrap();
    assert_eq!(pool.health().to_string(), "DEGRADED");
    let one_left = without(&golden, &[4]);
    assert_eq!(import(&one_left).unwrap().health().to_string(), "DEGRADED");
}

#[test]
fn spares_and_cache_devices_may_be_missing() {
    let Some(golden) = ReferencePool::golden("g13-classes") else { return };
    let pool = import(&without(&golden, &[6, 7])).unwrap();
    assert_eq!(pool.health().to_string(), "ONLINE");
    let states: Vec<_> = pool.auxiliary().iter().map(|vdev| (vdev.kind, vdev.state)).collect();
    let unavailable = AuxiliaryState::Unavailable;
    assert_eq!(states, [(AuxiliaryKind::Spare, unavailable), (AuxiliaryKind::Cache, unavailable)]);
}

/// The devices of a pool as overlays.
fn overlays(golden: &ReferencePool) -> Vec<Arc<Overlay>> {
    images(golden).iter().map(|image| Overlay::new(device(image))).collect()
}

fn discover_overlays(overlays: &[Arc<Overlay>]) -> DiscoveredPool {
    let sources = overlays.iter().map(|overlay| {
        let device: Arc<dyn BlockDevice> = Arc::clone(overlay) as _;
        DeviceSource::Device(device)
    });
    discover(sources.collect())
}

#[test]
fn labels_with_wrong_checksums_count_only_on_request() {
    let Some(golden) = ReferencePool::golden("g04-mirror3") else { return };
    let devices = overlays(&golden);
    devices[1].spoil_label_checksums();
    let discovered = discover_overlays(&devices);
    let pool = import(&discovered).unwrap();
    assert_eq!(pool.health().to_string(), "DEGRADED");
    assert_eq!(pool.status(0).unwrap(), PoolStatus::CorruptLabel);
    let bad: Vec<_> = pool.vdevs().leaves().map(|leaf| leaf.health().aux).collect();
    assert_eq!(bad, [AuxReason::None, AuxReason::BadLabel, AuxReason::None]);
    let trusting = ImportOptions { labels: LabelTrust::Unverified, ..options(&discovered) };
    let pool = Pool::import(&discovered, &trusting).unwrap();
    assert_eq!(pool.health().to_string(), "ONLINE");
}

#[test]
fn a_pool_with_only_wrong_label_checksums_is_found_but_not_opened() {
    let Some(golden) = ReferencePool::golden("g01-default") else { return };
    let devices = overlays(&golden);
    devices[0].spoil_label_checksums();
    let discovered = discover_overlays(&devices);
    let failure = failure(&discovered, &options(&discovered));
    assert!(matches!(*failure.error, ImportError::NoUberblock), "{failure}");
    assert_eq!(failure.errno(), 6);
}

/// The best uberblock of a device with 4 KiB slots.
fn best(overlay: &Arc<Overlay>) -> Uberblock {
    let device: Arc<dyn BlockDevice> = Arc::clone(overlay) as _;
    let slots = read_rings(&device, UberblockRing::of_ashift(12));
    slots.into_iter().map(|slot| slot.uberblock).max_by_key(Uberblock::precedence).unwrap()
}

/// Adds an uberblock of the next txg with a wrong pointer to the MOS.
fn damaged_successor(device: &Overlay, intact: &Uberblock) -> Uberblock {
    let mut words = *intact.mos.words();
    words[12] ^= 1;
    let next = Uberblock {
        txg: intact.txg.next(),
        timestamp: intact.timestamp + 5,
        mos: rzfs_format::BlockPointer::from_words(words),
        ..intact.clone()
    };
    let slot = (next.txg.get() % RING_SLOTS as u64) as usize;
    device.write_uberblock(UberblockRing::of_ashift(12), slot, &next);
    next
}

#[test]
fn an_old_state_is_opened_only_by_an_extreme_rewind() {
    let Some(golden) = ReferencePool::golden("g01-default") else { return };
    let devices = overlays(&golden);
    let newest = best(&devices[0]);
    devices[0].destroy_mos(&newest);
    let discovered = discover_overlays(&devices);
    let rewind = |rewind| ImportOptions { rewind, ..options(&discovered) };
    // The txgs right before the export wrote nothing, so there is no state of the last two.
    let failure = failure(&discovered, &rewind(RewindPolicy::Rewind));
    assert_eq!((failure.errno(), failure.recovery), (5, None));
    let pool = Pool::import(&discovered, &rewind(RewindPolicy::Extreme)).unwrap();
    assert!(pool.txg().get() + 2 < newest.txg.get());
}

#[test]
fn a_damaged_state_is_rewound_if_wanted() {
    let Some(golden) = ReferencePool::golden("g01-default") else { return };
    let devices = overlays(&golden);
    let intact = best(&devices[0]);
    let newest = damaged_successor(&devices[0], &intact);
    let discovered = discover_overlays(&devices);

    let explained = failure(&discovered, &options(&discovered));
    assert_eq!(explained.errno(), 5);
    let recovery = explained.recovery.expect("a way out");
    assert_eq!((recovery.txg, recovery.timestamp), (intact.txg, intact.timestamp));
    assert_eq!(recovery.seconds_lost, newest.timestamp - intact.timestamp);

    let never = ImportOptions { rewind: RewindPolicy::Never, ..options(&discovered) };
    assert_eq!(failure(&discovered, &never).recovery, None);
    assert_eq!(shown(&discovered), ("FAULTED".to_owned(), PoolStatus::CorruptPool));

    for rewind in [RewindPolicy::Rewind, RewindPolicy::Extreme] {
        let options = ImportOptions { rewind, ..options(&discovered) };
        let pool = Pool::import(&discovered, &options).unwrap();
        assert_eq!((pool.txg(), pool.rewound()), (recovery.txg, Some(&recovery)));
        assert!(pool.datasets().root().unwrap().descendants().unwrap().len() > 1);
    }
}

#[test]
fn an_older_state_is_opened_by_its_txg() {
    let Some(golden) = ReferencePool::golden("g01-default") else { return };
    let discovered = discover_images(&golden);
    let newest = import(&discovered).unwrap().txg();
    let target = ImportTarget::Txg(Txg(newest.get() - 1));
    let pool = Pool::import(&discovered, &ImportOptions { target, ..options(&discovered) });
    let pool = pool.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(pool.txg() < newest);
    let target = ImportTarget::Txg(Txg(1));
    let failure = failure(&discovered, &ImportOptions { target, ..options(&discovered) });
    assert!(matches!(*failure.error, ImportError::NoUberblock), "{failure}");
}

#[test]
fn the_checkpoint_is_opened_if_there_is_one() {
    let at_checkpoint = |discovered: &DiscoveredPool| ImportOptions {
        target: ImportTarget::Checkpoint,
        ..options(discovered)
    };
    if let Some(golden) = ReferencePool::golden("g17-checkpoint") {
        let discovered = discover_images(&golden);
        let newest = import(&discovered).unwrap();
        let checkpoint = newest.checkpoint().unwrap();
        let pool = Pool::import(&discovered, &at_checkpoint(&discovered)).unwrap();
        assert_eq!(pool.txg(), checkpoint.txg);
        assert!(pool.checkpoint().is_none());
        let names = |pool: &Pool| -> Vec<String> {
            let all = pool.datasets().root().unwrap().descendants().unwrap();
            all.iter().map(|dataset| dataset.name().to_owned()).collect()
        };
        assert!(names(&pool).contains(&"g17".to_owned()));
        let files = |pool: &Pool| {
            let root = pool.datasets().root().unwrap().open_objset().unwrap();
            root.objects().filter_map(Result::ok).map(|entry| entry.id).collect::<Vec<_>>()
        };
        assert_ne!(files(&pool), files(&newest));
    }
    if let Some(golden) = ReferencePool::golden("g01-default") {
        let discovered = discover_images(&golden);
        let failure = failure(&discovered, &at_checkpoint(&discovered));
        assert_eq!((failure.errno(), failure.recovery), (1026, None));
    }
}

#[test]
fn a_pool_that_another_host_left_open_needs_force() {
    let Some(golden) = ReferencePool::golden("g24-zil") else { return };
    let discovered = discover_images(&golden);
    let stranger = HostIdentity { id: 0x1234, name: None };
    let strange = ImportOptions { host: stranger, ..options(&discovered) };
    let refused = failure(&discovered, &strange);
    match &*refused.error {
        ImportError::LastUsedElsewhere { host, timestamp } => {
            assert_eq!(host.id, discovered.label().host.id);
            assert!(*timestamp > 0);
        }
        error => panic!("{error}"),
    }
    let forced = ImportOptions { host_check: HostCheck::Override, ..strange };
    assert!(Pool::import(&discovered, &forced).is_ok());
    assert!(import(&discovered).is_ok());
}

/// A clock on which the owner of a pool writes a heartbeat after three polls.
struct Heartbeat {
    device: Arc<Overlay>,
    uberblock: Uberblock,
    looks: AtomicU16,
}

const RING_SLOTS: usize = 32;

fn heartbeat(device: &Overlay, uberblock: &Uberblock, sequence: u16) {
    let config = MultihostConfig::new(1000, sequence, 10);
    let multihost = Some(Multihost { delay: 1_000_000_000, config });
    let beat = Uberblock { multihost, ..uberblock.clone() };
    device.write_uberblock(UberblockRing::of_ashift(12), RING_SLOTS - 1, &beat);
}

impl Clock for Heartbeat {
    fn sleep(&self, _time: Duration) -> Wait {
        let look = self.looks.fetch_add(1, Ordering::Relaxed);
        if look == 3 {
            heartbeat(&self.device, &self.uberblock, 2);
        }
        Wait::Elapsed
    }

    fn random(&self, _bound: u64) -> u64 {
        0
    }
}

#[test]
fn a_pool_that_another_host_has_open_is_noticed() {
    let Some(golden) = ReferencePool::golden("g01-default") else { return };
    let devices = overlays(&golden);
    let uberblock = best(&devices[0]);
    heartbeat(&devices[0], &uberblock, 1);
    let discovered = discover_overlays(&devices);
    let clock = |looks: u16| {
        let device = Arc::clone(&devices[0]);
        Arc::new(Heartbeat { device, uberblock: uberblock.clone(), looks: looks.into() })
    };
    let stranger = HostIdentity { id: 0x1234, name: None };
    let with = |clock: Arc<Heartbeat>| ImportOptions {
        host: stranger.clone(),
        clock,
        ..ImportOptions::default()
    };
    let silent = clock(100);
    assert!(Pool::import(&discovered, &with(Arc::clone(&silent))).is_ok());
    assert_eq!(silent.looks.load(Ordering::Relaxed), 120);

    let beating = clock(0);
    let failure = failure(&discovered, &with(Arc::clone(&beating)));
    assert!(matches!(*failure.error, ImportError::ActiveElsewhere { .. }), "{failure}");
    assert_eq!((failure.errno(), beating.looks.load(Ordering::Relaxed)), (121, 4));
    heartbeat(&devices[0], &uberblock, 1);
    let found = ImportablePool::examine(&discovered, &with(clock(0)));
    assert_eq!(found.status, PoolStatus::ActiveElsewhere);

    let nobody = ImportOptions { host: HostIdentity::default(), ..ImportOptions::default() };
    let found = ImportablePool::examine(&discovered, &nobody);
    assert_eq!(found.status, PoolStatus::HostIdRequired);
}

/// Commands find it under this name, whatever its internal name.
#[test]
fn a_pool_answers_to_the_name_of_its_labels() {
    let Some(golden) = ReferencePool::golden("g01-default") else { return };
    let devices = overlays(&golden);
    let base: Arc<dyn BlockDevice> = Arc::clone(&devices[0]) as _;
    let [Ok(label), ..] = read_labels(&base).unwrap() else { panic!("no label") };
    let mut config = (*label.config).clone();
    config.insert("name", NvString::new("other").unwrap()).unwrap();
    devices[0].write_config(&config);
    let found = discover_overlays(&devices);
    assert_eq!(found.name(), "other");
    let pool = Pool::import(&found, &options(&found)).unwrap();
    assert_eq!(pool.name(), "other");
}

#[test]
fn unknown_versions_and_features_are_refused() {
    let unsupported = ReferencePool::all_openzfs();
    if let Some(golden) = unsupported.iter().find(|pool| pool.name() == "v999-pool") {
        let failure = failure(&discover_images(golden), &ImportOptions::default());
        assert!(matches!(*failure.error, ImportError::UnsupportedVersion { version: 999 }));
        let text = String::from_utf8(golden.text("import.err").unwrap()).unwrap();
        assert!(text.starts_with("cannot import 'v999-pool': pool is formatted using an uns"));
        assert!(failure.to_string().starts_with(text.trim_end()), "{failure}");
    }
    let Some(golden) = ReferencePool::golden("g01-default") else { return };
    let devices = overlays(&golden);
    let base: Arc<dyn BlockDevice> = Arc::clone(&devices[0]) as _;
    let [Ok(label), ..] = read_labels(&base).unwrap() else { panic!("no label") };
    let mut config = (*label.config).clone();
    let mut features: NvList = config.list("features_for_read").unwrap().clone();
    features.insert("org.example:future", NvValue::Boolean).unwrap();
    config.insert("features_for_read", features).unwrap();
    devices[0].write_config(&config);
    let discovered = discover_overlays(&devices);
    let failure = failure(&discovered, &options(&discovered));
    match &*failure.error {
        ImportError::UnsupportedFeatures { features } => {
            assert_eq!(features[0].guid, "org.example:future");
        }
        error => panic!("{error}"),
    }
    assert_eq!(failure.errno(), 95);
    let expected = ("UNAVAIL".to_owned(), PoolStatus::UnsupportedFeatures);
    assert_eq!(shown(&discovered), expected);
}

#[test]
fn a_wrong_guid_sum_is_noticed() {
    let Some(golden) = ReferencePool::golden("g01-default") else { return };
    let devices = overlays(&golden);
    let mut uberblock = best(&devices[0]);
    let ring = UberblockRing::of_ashift(12);
    uberblock.guid_sum ^= 1;
    let slot = (uberblock.txg.get() % RING_SLOTS as u64) as usize;
    devices[0].write_uberblock(ring, slot, &uberblock);
    let discovered = discover_overlays(&devices);
    let never = ImportOptions { rewind: RewindPolicy::Never, ..options(&discovered) };
    let failure = failure(&discovered, &never);
    assert!(matches!(*failure.error, ImportError::GuidSum { .. }), "{failure}");
    assert_eq!(shown(&discovered).1, PoolStatus::GuidSum);
}
