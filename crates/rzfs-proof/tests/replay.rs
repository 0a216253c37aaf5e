//! The intent log of a pool that OpenZFS left behind is replayed, the replay is cut off at moments
//! that a seed chooses, and goes on when the pool is opened again.

use rzfs_blockdev::simulated::{CompletionOrder, Loss, Moment};
use rzfs_blockdev::{Access, BlockDevice, MemoryDevice, SimulatedDevice, Simulation};
use rzfs_dsl::import::DeviceSource;
use rzfs_format::zil::ZilFlags;
use rzfs_hostile::Random;
use rzfs_proof::crash::Workload;
use rzfs_proof::{OpenPool, Settings, differences, open_for_reading, walk};
use rzfs_testkit::{FileSystemManifest, ReferencePool};
use std::sync::Arc;

const POOL: &str = "g24";
const LOGGED: &str = "g24/fs";
const CRASHES: u64 = 20;
const SEED: u64 = 11;

/// A change begins when nothing is dirty any more: those before it are on disk, and what it does
/// itself comes in a later group. So replay takes many groups, whatever the threads do.
fn settings(seed: u64) -> Settings {
    let mut settings = Workload::Single.settings(seed);
    settings.pool.tunables.zfs_dirty_data_max = 0;
    settings.pool.tunables.zfs_dirty_data_max_max = 1;
    settings
}

/// What users see, but for the times of changes.
fn see(open: &OpenPool) -> FileSystemManifest {
    open.record().unwrap().remove(LOGGED).unwrap().timeless()
}

fn sources(devices: impl IntoIterator<Item = Arc<dyn BlockDevice>>) -> Vec<DeviceSource> {
    devices.into_iter().map(DeviceSource::Device).collect()
}

/// How far a replay had got: nothing was claimed, the number of the last record, or all was done.
fn progress(sources: &[DeviceSource]) -> Option<u64> {
    let pool = open_for_reading(sources, POOL, &settings(SEED)).unwrap();
    assert_eq!(walk(&pool).unwrap(), None);
    let header = pool.datasets().open(LOGGED).unwrap().open_locked().unwrap().log_header().unwrap();
    header.flags.has(ZilFlags::REPLAY_NEEDED).then_some(header.replayed_seq)
}

#[test]
fn a_replay_that_was_cut_off_goes_on() {
    let Some(golden) = ReferencePool::golden("g24-zil") else { return };
    let simulation = Simulation::new(SEED);
    let images = golden.images().unwrap();
    let devices: Vec<Arc<SimulatedDevice>> = images
        .iter()
        .map(|image| {
            let name = image.display().to_string();
            Arc::new(simulation.device(name, std::fs::read(image).unwrap()))
        })
        .collect();
    devices.iter().for_each(|device| device.set_order(CompletionOrder::Shuffled));
    let as_blocks = devices.iter().map(|device| Arc::clone(device) as Arc<dyn BlockDevice>);
    let open = OpenPool::open(&sources(as_blocks), POOL, &settings(SEED)).unwrap();
    let replayed = simulation.now();
    let expected = see(&open);
    open.export().unwrap();
    let manifest = golden.manifest().unwrap();
    let shown = manifest.get(LOGGED).unwrap().clone().timeless();
    assert!(shown.entries.keys().eq(expected.entries.keys()));

    let histories: Vec<_> = devices.iter().map(|device| device.history()).collect();
    let mut moments: Vec<Moment> = histories
        .iter()
        .flat_map(|history| history.moments())
        .filter(|at| *at <= replayed)
        .collect();
    moments.sort_unstable();
    let mut midway = 0;
    for number in 0..CRASHES {
        let mut random = Random::of_place(SEED, &[number]);
        let moment = moments[random.below(moments.len() as u64) as usize];
        let left = histories.iter().zip(&images).map(|(history, image)| {
            let loss = Loss::Random { seed: random.draw() };
            let content = history.crash_image(moment, &loss);
            let name = image.display().to_string();
            Arc::new(MemoryDevice::new(name, content, Access::ReadWrite)) as Arc<dyn BlockDevice>
        });
        let sources = sources(left);
        midway += u64::from(progress(&sources).is_some_and(|seq| seq > 0));
        let open = OpenPool::open(&sources, POOL, &settings(number)).unwrap();
        let found = differences(&expected, &see(&open));
        assert_eq!(found, Vec::<String>::new(), "crash {number} at {moment:?}");
        open.export().unwrap();
        assert_eq!(progress(&sources), None, "crash {number}: the log was not replayed");
    }
    assert!(midway > 0, "no crash was in the midst of the replay");
}
