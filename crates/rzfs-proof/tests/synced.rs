//! Crashes of programs that wait for what they do: at moments that a seed chooses, and while a
//! group is held at its last step.

use rzfs_blockdev::simulated::{CompletionOrder, Loss};
use rzfs_blockdev::{Access, BlockDevice, MemoryDevice, SimulatedDevice, Simulation};
use rzfs_dsl::import::DeviceSource;
use rzfs_proof::crash::{SyncedRecording, Workload};
use rzfs_proof::{Files, OpenPool, open_for_reading, walk};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

const CRASHES: u64 = 15;
/// Much longer than a commit takes that waits for nothing.
const A_WHILE: Duration = Duration::from_secs(1);
/// Bytes of several blocks.
const LENGTH: usize = 500_000;

fn keeps_its_word(workload: Workload) {
    let recording = SyncedRecording::make(workload, 5).unwrap();
    assert!(recording.moments() > 100, "{} moments", recording.moments());
    assert!(recording.waits() > 30, "{} waits", recording.waits());
    let needs_its_log = |number| recording.needs_its_log(number).unwrap();
    assert!((0..CRASHES).any(needs_its_log), "nothing was in the log only");
    for number in 0..CRASHES {
        assert_eq!(recording.finding(number), None, "{} {number}", workload.name());
    }
}

#[test]
fn what_was_waited_for_is_there_on_one_device() {
    keeps_its_word(Workload::Single);
}

#[test]
fn what_was_waited_for_is_there_on_a_mirror() {
    keeps_its_word(Workload::Mirror);
}

#[test]
fn what_was_waited_for_is_there_on_raidz() {
    keeps_its_word(Workload::Raidz2);
}

#[test]
fn what_was_waited_for_is_there_on_a_log_device() {
    keeps_its_word(Workload::Classes);
}

#[test]
fn what_was_waited_for_is_there_on_an_encrypted_device() {
    keeps_its_word(Workload::Encrypted);
}

/// Answers what a device is asked for until the blocks of a group are flushed: its labels, and so
/// the group that is being written, wait from now on; all else goes on.
fn hold_after_flush(device: &SimulatedDevice) {
    let before = device.counts().flushes;
    loop {
        // Nothing is flushed while writes are not answered: what is held now is no flush unless it
        // has been counted.
        let held = device.held();
        if device.counts().flushes > before {
            break;
        }
        device.release(held);
        std::thread::yield_now();
    }
    device.release(usize::MAX);
    while device.held() == 0 {
        std::thread::yield_now();
    }
    device.set_order(CompletionOrder::Submitted);
}

/// What a crash leaves now that takes everything that was not flushed.
fn crash(simulation: &Simulation, device: &SimulatedDevice) -> [DeviceSource; 1] {
    let content = device.history().crash_image(simulation.now(), &Loss::Everything);
    let left = MemoryDevice::new("A", content, Access::ReadWrite);
    [DeviceSource::Device(Arc::new(left))]
}

/// The contents of files after a crash and the replay, `None` of those that are not there.
fn survivors(sources: &[DeviceSource], names: &[&str]) -> Vec<Option<Vec<u8>>> {
    let (settings, name) = (Workload::Single.settings(2), Workload::Single.shape().name);
    let open = OpenPool::open(sources, name, &settings).unwrap();
    let (_, fs) = open.root().unwrap();
    let contents = |name: &&str| {
        let object = Files(fs).find(name).ok()?;
        Some(fs.read_segments(object, 0, LENGTH as u64).unwrap().concat())
    };
    let found = names.iter().map(contents).collect();
    open.export().unwrap();
    assert_eq!(walk(&open_for_reading(sources, name, &settings).unwrap()).unwrap(), None);
    found
}

/// A file is copied while the group that its blocks were born in is written: they are on the
/// device, but a crash takes them away until the uberblock is there. Whatever a commit says to be
/// durable is, before and afterwards.
#[test]
fn no_record_shares_blocks_of_a_group_that_is_being_written() {
    let (shape, settings) = (Workload::Single.shape(), Workload::Single.settings(1));
    let simulation = Simulation::new(1);
    let size = usize::try_from(shape.device_size).unwrap();
    let device = Arc::new(simulation.device("A", vec![0; size]));
    let devices = [("A", Arc::clone(&device) as Arc<dyn BlockDevice>)].into();
    let open = OpenPool::create(&shape, &devices, &settings).unwrap();
    let (_, fs) = open.root().unwrap();
    let files = Files(fs);
    let [old, new] = [3, 4].map(|value| vec![value; LENGTH]);
    files.put("source", &old).unwrap();
    // The first commit begins the log.
    fs.commit_all().unwrap();
    open.sync().unwrap();

    files.write("source", 0, &new).unwrap();
    device.set_order(CompletionOrder::Held);
    let written = fs.request_sync();
    hold_after_flush(&device);
    files.put("noted", b"a commit says so").unwrap();
    fs.commit_all().unwrap();
    files.copy("source", "copy", LENGTH as u64).unwrap();
    let engine = open.pool.engine();
    assert!(engine.synced_txg() < written, "the group is on disk too early");

    let (done, waiting) = mpsc::channel();
    let (is_early, left) = std::thread::scope(|scope| {
        scope.spawn(move || done.send(fs.commit_all().is_ok()));
        let early = waiting.recv_timeout(A_WHILE).ok();
        let left = crash(&simulation, &device);
        device.release(usize::MAX);
        let is_durable = early.unwrap_or_else(|| waiting.recv().unwrap());
        assert!(is_durable, "a commit fails");
        (early.is_some(), left)
    });
    assert!(!is_early, "a commit does not wait for the group whose blocks the copy shares");
    assert!(survivors(&left, &["noted"]) == [Some(b"a commit says so".to_vec())]);
    let found = survivors(&crash(&simulation, &device), &["source", "copy"]);
    assert!(found == [Some(new.clone()), Some(new)]);
}
