//! Power cuts while a pool gets a new guid: it has the old one or the new one afterwards, and is
//! found by it, whichever of its labels have been written.

use bytes::Bytes;
use rzfs_blockdev::simulated::{Loss, Moment};
use rzfs_blockdev::{Access, BlockDevice, MemoryDevice, OpenOptions, SimulatedDevice};
use rzfs_dsl::import::{DeviceSource, Discovery, read_labels};
use rzfs_format::Guid;
use rzfs_format::config::LabelConfig;
use rzfs_format::label::{BOOT_AREA, END_SIZE};
use rzfs_proof::crash::Workload;
use rzfs_proof::{Files, OpenPool, Rig, differences, open_for_reading, read_dataset, record, walk};
use rzfs_testkit::FileSystemManifest;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// A pool that gets a new guid, and everything that was written meanwhile.
struct Change {
    rig: Rig,
    old: Guid,
    new: Guid,
    files: FileSystemManifest,
    start: Moment,
    moments: Vec<Moment>,
}

impl Change {
    fn of(workload: Workload) -> Self {
        let rig = Rig::new(workload);
        let open = rig.create().unwrap();
        let (_, fs) = open.root().unwrap();
        Files(fs).put("before", &vec![7; 300_000]).unwrap();
        open.pool.sync().unwrap();
        let files = record(&**open.root().unwrap().1).unwrap();
        let old = open.pool.vdevs().root().guid();
        let all = || rig.devices.values().flat_map(|device| device.history().moments());
        let start = all().max().unwrap();
        let new = open.pool.change_guid().unwrap();
        assert_ne!(old, new);
        let mut moments: Vec<_> = all().filter(|moment| *moment > start).collect();
        moments.sort_unstable();
        moments.dedup();
        rig.devices.values().for_each(|device| device.detach());
        open.pool.give_up_waiting();
        drop(open);
        Self { rig, old, new, files, start, moments }
    }

    /// What a power cut leaves of the writes to labels, by their offsets.
    fn labels(&self, moment: Moment, losses: &[Loss]) -> Vec<BTreeMap<u64, Bytes>> {
        let written = |(device, loss): (&Arc<SimulatedDevice>, &Loss)| {
            let end = device.geometry().size - END_SIZE;
            let writes = device.history().crash_writes(moment, loss).into_iter();
            let before = device.history().crash_writes(self.start, &Loss::Nothing).len();
            writes
                .skip(before)
                .filter(|(offset, _)| *offset < BOOT_AREA.start || *offset >= end)
                .collect()
        };
        self.rig.devices.values().zip(losses).map(written).collect()
    }

    /// The devices after a power cut, each with its own loss.
    fn cut(&self, moment: Moment, loss: impl Fn(usize) -> Loss) -> Vec<Arc<dyn BlockDevice>> {
        let image = |(number, device): (usize, &Arc<SimulatedDevice>)| {
            let content = device.history().crash_image(moment, &loss(number));
            let memory = MemoryDevice::new(device.name(), content, Access::ReadWrite);
            Arc::new(memory) as Arc<dyn BlockDevice>
        };
        self.rig.devices.values().enumerate().map(image).collect()
    }

    /// The guid by which the pool is found, after it was found whole and has gone on.
    fn examine(&self, devices: &[Arc<dyn BlockDevice>], case: &str) -> Guid {
        let (name, settings) = (self.rig.name(), &self.rig.settings);
        let sources = sources(devices);
        let found = Discovery::search(&sources, &OpenOptions::new());
        assert_eq!(found.pools().len(), 1, "{case}: {:?}", guids(devices));
        let pool = open_for_reading(&sources, name, settings)
            .unwrap_or_else(|error| panic!("{case}: {error}: {:?}", guids(devices)));
        let guid = pool.vdevs().root().guid();
        assert!([self.old, self.new].contains(&guid), "{case}");
        assert_eq!(pool.health().to_string(), "ONLINE", "{case}: {:?}", guids(devices));
        assert_eq!(walk(&pool).unwrap(), None, "{case}");
        let files = record(&read_dataset(&pool, name).unwrap()).unwrap();
        assert_eq!(differences(&self.files, &files), Vec::<String>::new(), "{case}");
        drop(pool);
        let open = OpenPool::open(&sources, name, settings).unwrap();
        Files(open.root().unwrap().1).put("after", &vec![8; 300_000]).unwrap();
        open.export().unwrap();
        assert!(guids(devices).iter().all(|labels| *labels == [Some(guid); 4]), "{case}");
        let pool = open_for_reading(&sources, name, settings).unwrap();
        assert_eq!(pool.vdevs().root().guid(), guid, "{case}");
        guid
    }

    /// The last moment at which nothing but the uberblock is missing: all that is written before it
    /// is on the devices.
    fn before_the_uberblock(&self) -> Moment {
        let has_new = |devices: &[Arc<dyn BlockDevice>]| {
            guids(devices).iter().all(|[first, ..]| *first == Some(self.new))
        };
        let cut = |moment: &&Moment| has_new(&self.cut(**moment, |_| Loss::Everything));
        *self.moments.iter().find(cut).unwrap()
    }
}

fn sources(devices: &[Arc<dyn BlockDevice>]) -> Vec<DeviceSource> {
    devices.iter().cloned().map(DeviceSource::Device).collect()
}

/// The guid of the pool in each label of each device.
fn guids(devices: &[Arc<dyn BlockDevice>]) -> Vec<[Option<Guid>; 4]> {
    let guid = |label: Result<rzfs_dsl::import::RawLabel, _>| {
        let config = LabelConfig::from_list(&label.ok()?.config).ok()?;
        Some(config.member()?.pool.guid)
    };
    devices.iter().map(|device| read_labels(device).unwrap().map(guid)).collect()
}

/// Cuts the change before and after every write to a label.
fn is_found_at_every_moment(workload: Workload) {
    let change = Change::of(workload);
    let count = change.rig.devices.len();
    let (mut old, mut new) = (0, 0);
    let mut seen = HashSet::new();
    for moment in &change.moments {
        let seed = moment.0.wrapping_mul(31);
        let random = (0..count as u64).map(|number| Loss::Random { seed: seed + number });
        let mut cuts = vec![vec![Loss::Nothing; count], random.collect()];
        // Larger pools take long to copy.
        cuts.truncate(if count > 2 { 1 } else { 2 });
        for kept in [0, count - 1] {
            let loss = |number| if number == kept { Loss::Nothing } else { Loss::Everything };
            cuts.push((0..count).map(loss).collect());
        }
        for losses in cuts {
            let labels = change.labels(*moment, &losses);
            if labels.iter().all(BTreeMap::is_empty) || !seen.insert(labels) {
                continue;
            }
            let devices = change.cut(*moment, |number| losses[number].clone());
            let guid = change.examine(&devices, &format!("{moment:?}, {losses:?}"));
            if guid == change.old { old += 1 } else { new += 1 }
        }
    }
    assert!(old > 0 && new > 0, "{old} {new}");
}

#[test]
fn a_pool_on_one_device_is_found_whenever_its_guid_changes() {
    is_found_at_every_moment(Workload::Single);
}

#[test]
fn a_mirror_is_found_whenever_its_guid_changes() {
    is_found_at_every_moment(Workload::Mirror);
}

#[test]
fn raidz_is_found_whenever_its_guid_changes() {
    is_found_at_every_moment(Workload::Raidz2);
}

#[test]
fn a_pool_with_many_vdevs_is_found_whenever_its_guid_changes() {
    is_found_at_every_moment(Workload::Classes);
}

#[test]
fn a_device_that_was_away_after_a_change_that_never_happened_comes_back() {
    let change = Change::of(Workload::Mirror);
    let devices = change.cut(change.before_the_uberblock(), |_| Loss::Everything);
    let [here, away] = &*devices else { panic!("two devices") };
    let (name, settings) = (change.rig.name(), &change.rig.settings);
    let alone = sources(std::slice::from_ref(here));
    let open = OpenPool::open(&alone, name, settings).unwrap();
    Files(open.root().unwrap().1).put("alone", &vec![8; 300_000]).unwrap();
    open.export().unwrap();
    assert_eq!(
        guids(std::slice::from_ref(away)),
        [[Some(change.new), Some(change.old), Some(change.new), Some(change.old),]]
    );
    let open = OpenPool::open(&sources(&devices), name, settings).unwrap();
    assert_eq!(open.pool.vdevs().root().guid(), change.old);
    assert!(open.pool.vdevs().leaves().all(|leaf| leaf.health().is_usable()));
    open.export().unwrap();
    assert_eq!(guids(&devices), [[Some(change.old); 4]; 2]);
}
