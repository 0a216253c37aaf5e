//! Devices that fail while a pool is written: nobody waits for ever, a pool that cannot go on
//! says why, and what was on disk stays there.

use rzfs_blockdev::SimulatedDevice;
use rzfs_blockdev::simulated::{Fault, FaultKind};
use rzfs_dsl::import::HostIdentity;
use rzfs_dsl::live::Environment;
use rzfs_proof::crash::Workload;
use rzfs_proof::{Files, OpenPool, Rig, record};
use rzfs_testkit::FileSystemManifest;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const EIO: i32 = 5;
/// Longer than anything here takes on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The pool is whole and has these files.
fn check(rig: &Rig, expected: &FileSystemManifest) {
    assert_eq!(rig.findings(expected).unwrap(), Vec::<String>::new());
}

/// Fails when something takes too long.
fn in_time<T: Send + 'static>(what: &str, act: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, waiting) = mpsc::channel();
    std::thread::spawn(move || done.send(act()));
    waiting.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what} does not end"))
}

fn write(open: &OpenPool, name: &str) {
    let (_, fs) = open.root().unwrap();
    Files(fs).put(name, &vec![7; 300_000]).unwrap();
}

/// A pool that loses its only device in this way stops, says why, and is what it was.
fn stops(fail: impl Fn(&SimulatedDevice)) {
    let rig = Rig::new(Workload::Single);
    let open = rig.create().unwrap();
    // Writers are told; otherwise they would wait.
    open.pool.set_pool_property("failmode", 1_u64.into()).unwrap();
    write(&open, "before");
    open.pool.sync().unwrap();
    let before = record(&**open.root().unwrap().1).unwrap();
    write(&open, "lost");
    rig.devices.values().for_each(|device| fail(device));
    let (open, synced) = in_time("sync", move || {
        let synced = open.pool.sync();
        (open, synced)
    });
    assert!(synced.is_err());
    assert!(open.pool.failure().is_some(), "the pool says why it stopped");
    let open = in_time("a change of a suspended pool", move || {
        let (_, fs) = open.root().unwrap();
        assert!(Files(fs).put("more", b"x").is_err());
        open
    });
    let exported = in_time("export", move || open.export());
    assert!(exported.unwrap_err().to_string().contains("suspended"));
    for device in rig.devices.values() {
        device.heal_all();
        device.attach();
    }
    check(&rig, &before);
}

/// A pool that loses its only device in this way waits, with everybody who writes, and goes on
/// where it was when the device is mended.
fn waits(fail: impl Fn(&SimulatedDevice)) {
    let rig = Rig::new(Workload::Single);
    let open = rig.create().unwrap();
    write(&open, "before");
    open.pool.sync().unwrap();
    write(&open, "waits");
    rig.devices.values().for_each(|device| fail(device));
    let open = in_time("sync", move || {
        // How many writes a group takes depends on how they are put together.
        while open.pool.sync().is_ok() {
            write(&open, "waits, too");
        }
        open
    });
    assert!(open.pool.is_suspended());
    assert!(open.pool.clear(None).is_err(), "nothing was mended");
    assert!(open.pool.is_suspended());
    let open = Arc::new(open);
    let writer = std::thread::spawn({
        let open = Arc::clone(&open);
        move || write(&open, "more")
    });
    assert!(!writer.is_finished());
    for device in rig.devices.values() {
        device.heal_all();
        device.attach();
    }
    let open = in_time("a pool that was mended", move || {
        open.pool.clear(None).unwrap();
        writer.join().unwrap();
        open
    });
    assert!(!open.pool.is_suspended() && open.pool.failure().is_none());
    let errors = open.pool.vdevs().leaves().map(|leaf| leaf.errors().write).sum::<u64>();
    assert_eq!(errors, 0, "errors were forgotten");
    let expected = record(&**open.root().unwrap().1).unwrap();
    let open = Arc::into_inner(open).unwrap();
    in_time("export", move || open.export()).unwrap();
    check(&rig, &expected);
}

#[test]
fn a_pool_goes_on_when_its_device_is_mended() {
    waits(|device| {
        device.inject(Fault::new(FaultKind::FailWrite(EIO)));
    });
    waits(|device| {
        device.inject(Fault::new(FaultKind::FailFlush(EIO)));
    });
    waits(SimulatedDevice::detach);
    for spared in [2, 5, 9, 14] {
        waits(|device| {
            device.inject(Fault::new(FaultKind::FailWrite(EIO)).after(spared));
        });
    }
}

/// Files that are there before a pool is imported, and come later.
const OLD: usize = 20;
const LATER: usize = 8;

/// A pool that was just imported, whose only device fails after so many reads while files are
/// removed whose indirect blocks nobody has in memory; and how many files were removed.
fn remove_unread(spared: u64) -> (Rig, OpenPool, usize) {
    let rig = Rig::new(Workload::Single);
    let open = rig.create().unwrap();
    let files = Files(open.root().unwrap().1);
    (0..OLD).for_each(|number| files.put(&format!("old-{number}"), &vec![7; 600_000]).unwrap());
    // An import reads what is new.
    for number in 0..LATER {
        files.put(&format!("later-{number}"), b"x").unwrap();
        open.pool.sync().unwrap();
    }
    open.export().unwrap();
    let open = rig.open().unwrap();
    rig.devices.values().for_each(|device| {
        device.inject(Fault::new(FaultKind::FailRead(EIO)).after(spared));
    });
    let (open, removed) = in_time("a removal", move || {
        let files = Files(open.root().unwrap().1);
        let removed = (0..OLD).filter(|number| files.unlink(&format!("old-{number}")).is_ok());
        let removed = removed.count();
        (open, removed)
    });
    (rig, open, removed)
}

/// Whether a pool waits whose device fails after so many reads; it goes on when that is mended.
fn waits_for_reads(spared: u64) -> bool {
    let (rig, open, removed) = remove_unread(spared);
    let (open, synced) = in_time("sync", move || {
        let synced = open.pool.sync();
        (open, synced)
    });
    let open = match synced {
        Ok(()) => open,
        Err(_) => in_time("a suspended pool", move || {
            assert!(open.pool.is_suspended(), "{:?}", open.pool.failure());
            assert!(open.pool.clear(None).is_err(), "nothing was mended");
            assert!(open.pool.is_suspended());
            // Others can still look at it, as far as it can be read.
            let _ = open.pool.view().map(|pool| pool.datasets().root().map(drop));
            open
        }),
    };
    rig.devices.values().for_each(|device| device.heal_all());
    let open = in_time("a pool that was mended", move || {
        open.pool.clear(None).unwrap();
        write(&open, "after");
        open.pool.sync().unwrap();
        open
    });
    let expected = record(&**open.root().unwrap().1).unwrap();
    assert_eq!(expected.entries.len(), OLD - removed + LATER + 1);
    in_time("export", move || open.export()).unwrap();
    check(&rig, &expected);
    synced.is_err()
}

#[test]
fn a_pool_goes_on_when_a_device_can_be_read_again() {
    let waited = (0..24).filter(|spared| waits_for_reads(*spared)).count();
    assert!(waited > 4, "{waited}");
}

#[test]
fn a_pool_that_cannot_be_read_can_be_given_up() {
    let (_rig, open, removed) = remove_unread(8);
    assert_eq!(removed, OLD);
    let exported = in_time("sync and export", move || {
        assert!(open.pool.sync().is_err());
        open.export()
    });
    assert!(exported.unwrap_err().to_string().contains("suspended"));
}

/// An environment that notes why the machine was to be stopped.
#[derive(Debug)]
struct Stopped {
    inner: Arc<dyn Environment>,
    reason: Mutex<Option<String>>,
}

impl Environment for Stopped {
    fn now(&self) -> u64 {
        self.inner.now()
    }

    fn random(&self) -> u64 {
        self.inner.random()
    }

    fn host(&self) -> &HostIdentity {
        self.inner.host()
    }

    fn halt(&self, reason: &str) {
        *self.reason.lock().unwrap() = Some(reason.to_owned());
    }
}

#[test]
fn a_pool_that_is_to_panic_stops_the_machine_and_writes_nothing_more() {
    let mut rig = Rig::new(Workload::Single);
    let inner = Arc::clone(&rig.settings.environment);
    let stopped = Arc::new(Stopped { inner, reason: Mutex::default() });
    rig.settings.environment = Arc::clone(&stopped) as _;
    let open = rig.create().unwrap();
    open.pool.set_pool_property("failmode", 2_u64.into()).unwrap();
    write(&open, "before");
    open.pool.sync().unwrap();
    let before = record(&**open.root().unwrap().1).unwrap();
    assert_eq!(*stopped.reason.lock().unwrap(), None);
    write(&open, "lost");
    rig.devices.values().for_each(|device| {
        device.inject(Fault::new(FaultKind::FailWrite(EIO)));
    });
    let open = in_time("sync", move || {
        assert!(open.pool.sync().is_err());
        open
    });
    let reason = stopped.reason.lock().unwrap().clone().unwrap();
    assert!(reason.starts_with("pool 'crash': "), "{reason}");
    // Whoever goes on nevertheless changes nothing, not even when the devices are mended.
    rig.devices.values().for_each(|device| device.heal_all());
    assert!(open.pool.clear(None).is_err());
    in_time("export", move || assert!(open.export().is_err()));
    check(&rig, &before);
}

#[test]
fn whoever_waits_for_a_device_is_told_when_the_pool_is_let_go_of() {
    let rig = Rig::new(Workload::Single);
    let open = rig.create().unwrap();
    write(&open, "before");
    open.pool.sync().unwrap();
    write(&open, "lost");
    rig.devices.values().for_each(|device| device.detach());
    assert!(open.pool.sync().is_err());
    let fs = Arc::clone(open.root().unwrap().1);
    let writer = std::thread::spawn(move || Files(&fs).put("more", b"x").is_err());
    let exported = in_time("export", move || open.export());
    assert!(exported.unwrap_err().to_string().contains("suspended"));
    assert!(in_time("a writer", move || writer.join().unwrap()));
}

#[test]
fn a_write_that_fails_once_is_nobodys_business() {
    let rig = Rig::new(Workload::Single);
    let open = rig.create().unwrap();
    write(&open, "before");
    rig.devices.values().for_each(|device| {
        device.inject(Fault::new(FaultKind::FailWrite(EIO)).times(1));
    });
    open.pool.sync().unwrap();
    let errors = open.pool.vdevs().leaves().map(|leaf| leaf.errors().write).sum::<u64>();
    assert_eq!(errors, 0);
    let expected = record(&**open.root().unwrap().1).unwrap();
    open.export().unwrap();
    check(&rig, &expected);
}

#[test]
fn writes_that_fail_suspend_a_pool() {
    stops(|device| {
        device.inject(Fault::new(FaultKind::FailWrite(EIO)));
    });
}

#[test]
fn writes_that_fail_later_in_a_txg_suspend_a_pool() {
    // A group takes more writes than these: the labels and uberblocks alone are eight.
    for spared in [1, 3, 6] {
        stops(|device| {
            device.inject(Fault::new(FaultKind::FailWrite(EIO)).after(spared));
        });
    }
}

#[test]
fn writes_that_end_early_suspend_a_pool() {
    stops(|device| {
        device.inject(Fault::new(FaultKind::TearWrite(EIO)));
    });
}

#[test]
fn flushes_that_fail_suspend_a_pool() {
    stops(|device| {
        device.inject(Fault::new(FaultKind::FailFlush(EIO)));
    });
}

#[test]
fn a_device_that_goes_away_suspends_a_pool() {
    stops(SimulatedDevice::detach);
}

/// A redundant pool goes on without the first device, and has everything afterwards.
fn goes_on(workload: Workload, fail: impl Fn(&SimulatedDevice)) {
    let rig = Rig::new(workload);
    let open = rig.create().unwrap();
    write(&open, "before");
    open.pool.sync().unwrap();
    let first = rig.devices.values().next().unwrap();
    fail(first);
    write(&open, "while one is away");
    let open = in_time("sync", move || {
        open.pool.sync().unwrap();
        open
    });
    assert!(open.pool.failure().is_none());
    let expected = record(&**open.root().unwrap().1).unwrap();
    in_time("export", move || open.export()).unwrap();
    check(&rig, &expected);
    // What the first device lacks is not taken for data when it is back.
    first.heal_all();
    first.attach();
    check(&rig, &expected);
}

#[test]
fn a_mirror_goes_on_when_writes_to_one_side_fail() {
    goes_on(Workload::Mirror, |device| {
        device.inject(Fault::new(FaultKind::FailWrite(EIO)));
    });
}

#[test]
fn redundant_pools_go_on_without_a_device() {
    goes_on(Workload::Mirror, SimulatedDevice::detach);
    goes_on(Workload::Raidz2, SimulatedDevice::detach);
}

#[test]
fn a_mirror_goes_on_when_one_side_cannot_flush() {
    goes_on(Workload::Mirror, |device| {
        device.inject(Fault::new(FaultKind::FailFlush(EIO)));
    });
}
