//! Devices that fail while a pool is written: nobody waits for ever, a pool that cannot go on
//! says why, and what was on disk stays there.

use rzfs_blockdev::simulated::{Fault, FaultKind};
use rzfs_blockdev::{BlockDevice, SimulatedDevice};
use rzfs_clock::Clock;
use rzfs_dsl::import::HostIdentity;
use rzfs_dsl::live::Environment;
use rzfs_proof::crash::{FaultRound, Workload};
use rzfs_proof::{Files, OpenPool, Rig, differences, record};
use rzfs_testkit::FileSystemManifest;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const EIO: i32 = 5;
const ENXIO: i32 = 6;
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

#[test]
fn a_pool_is_not_made_without_a_block_that_could_not_be_written() {
    const LABELS: u64 = 4 << 20;
    let mut refusals = 0;
    for failing in 1..=16 {
        let rig = Rig::new(Workload::Single);
        for device in rig.devices.values() {
            let blocks = LABELS..device.geometry().size - LABELS;
            let first = Fault::new(FaultKind::FailWrite(EIO)).within(blocks);
            device.inject(first.times(failing));
        }
        let (rig, created) = in_time("create", move || {
            let created = rig.create();
            (rig, created)
        });
        let faults: u64 = rig.devices.values().map(|device| device.counts().faults).sum();
        assert!(faults > 0, "{failing}");
        match created {
            // One of the copies of a block is enough.
            Ok(open) => {
                let made = record(&**open.root().unwrap().1).unwrap();
                open.export().unwrap();
                check(&rig, &made);
            }
            Err(_) => refusals += 1,
        }
    }
    assert!(refusals > 0);
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

/// Files of a file system that is destroyed, and others.
const OLD: usize = 20;
const LATER: usize = 8;

/// A pool that has just lost a file system whose indirect blocks nobody has in memory, and whose
/// only device fails after so many reads of the txg that frees them.
fn destroy_unread(spared: u64) -> (Rig, OpenPool) {
    let rig = Rig::new(Workload::Single);
    let name = format!("{}/old", rig.name());
    let mut open = rig.create().unwrap();
    open.create_file_system(&name).unwrap();
    let old = Files(&open.file_systems[&name]);
    (0..OLD).for_each(|number| old.put(&format!("{number}"), &vec![7; 600_000]).unwrap());
    // An import reads what is new.
    let files = Files(open.root().unwrap().1);
    for number in 0..LATER {
        files.put(&format!("later-{number}"), b"x").unwrap();
        open.pool.sync().unwrap();
    }
    open.export().unwrap();
    let mut open = rig.open().unwrap();
    open.destroy_file_system(&name).unwrap();
    rig.devices.values().for_each(|device| {
        device.inject(Fault::new(FaultKind::FailRead(EIO)).after(spared));
    });
    (rig, open)
}

/// Whether a pool waits whose device fails after so many reads; it goes on when that is mended.
fn waits_for_reads(spared: u64) -> bool {
    let (rig, open) = destroy_unread(spared);
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
    assert_eq!(expected.entries.len(), LATER + 1);
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
    // The group that frees may have been written before the device fails.
    let exported = (0..20).find_map(|_| {
        let (_rig, open) = destroy_unread(8);
        in_time("sync and export", move || {
            let is_stopped = open.pool.sync().is_err();
            let exported = open.export();
            is_stopped.then_some(exported)
        })
    });
    let exported = exported.expect("it never stops");
    assert!(exported.unwrap_err().to_string().contains("suspended"));
}

/// An environment that notes why the machine was to be stopped.
#[derive(Debug)]
struct Stopped {
    inner: Arc<dyn Environment>,
    reason: Mutex<Option<String>>,
}

impl Environment for Stopped {
    fn clock(&self) -> Clock {
        self.inner.clock()
    }

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
fn what_a_device_misses_at_the_end_of_an_export_is_stored() {
    let mut has_missed = false;
    for spared in 0..12 {
        let rig = Rig::new(Workload::Mirror);
        let open = rig.create().unwrap();
        write(&open, "file");
        open.pool.sync().unwrap();
        let vdevs = open.pool.vdevs();
        let first = rig.devices.values().next().unwrap();
        first.inject(Fault::new(FaultKind::FailFlush(EIO)).after(spared).times(2));
        in_time("export", move || open.export()).unwrap();
        let lacking = vdevs.leaves().filter_map(|leaf| leaf.missing_txgs());
        has_missed |= lacking.into_iter().any(|txgs| !txgs.is_empty());
        assert!(!vdevs.has_changed_dirty_times(), "after {spared} flushes");
    }
    assert!(has_missed);
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

fn inject(rig: &Rig, fault: &Fault) {
    rig.devices.values().for_each(|device| {
        device.inject(fault.clone());
    });
}

/// The pool has these files once its log is replayed, and is whole then.
fn check_replayed(rig: &Rig, expected: &FileSystemManifest) {
    let open = rig.open().unwrap();
    let found = record(&**open.root().unwrap().1).unwrap();
    assert_eq!(
        differences(&expected.clone().timeless(), &found.clone().timeless()),
        Vec::<String>::new()
    );
    open.export().unwrap();
    check(rig, &found);
}

/// A pool that is told once that something was lost, with all that was not durable gone, has it
/// nevertheless: `fail` is done to it before a txg is written.
fn loses_nothing(workload: Workload, fail: impl Fn(&SimulatedDevice)) {
    let rig = Rig::new(workload);
    let open = rig.create().unwrap();
    write(&open, "before");
    open.pool.sync().unwrap();
    write(&open, "written again");
    fail(rig.devices.values().next().unwrap());
    let open = in_time("sync", move || {
        open.pool.sync().unwrap();
        open
    });
    let errors = open.pool.vdevs().leaves().map(|leaf| leaf.errors().write).sum::<u64>();
    assert!(errors > 0, "the administrator is told");
    let expected = record(&**open.root().unwrap().1).unwrap();
    rig.cut_power(open);
    check(&rig, &expected);
}

#[test]
fn what_a_failed_flush_has_lost_is_written_again() {
    for workload in [Workload::Single, Workload::Mirror, Workload::Raidz2] {
        // The blocks, and the uberblock.
        for spared in [0, 1] {
            loses_nothing(workload, |device| {
                device.inject(Fault::new(FaultKind::DropOnFlush(EIO)).after(spared).times(1));
            });
        }
    }
}

#[test]
fn a_pool_that_was_suspended_by_a_failed_flush_writes_everything_again() {
    let rig = Rig::new(Workload::Single);
    let open = rig.create().unwrap();
    write(&open, "before");
    open.pool.sync().unwrap();
    for (number, errno) in [(0, EIO), (1, ENXIO)] {
        write(&open, &format!("lost with a flush {number}"));
        inject(&rig, &Fault::new(FaultKind::DropOnFlush(errno)));
        assert!(open.pool.sync().is_err());
        assert!(open.pool.is_suspended());
        assert!(open.pool.clear(None).is_err(), "nothing was mended");
        rig.heal();
        open.pool.clear(None).unwrap();
        assert!(!open.pool.is_suspended());
    }
    let expected = record(&**open.root().unwrap().1).unwrap();
    rig.cut_power(open);
    check(&rig, &expected);
}

#[test]
fn a_pool_that_is_let_go_of_after_a_failed_flush_stays_at_its_last_txg() {
    let rig = Rig::new(Workload::Single);
    let open = rig.create().unwrap();
    write(&open, "before");
    open.pool.sync().unwrap();
    let before = record(&**open.root().unwrap().1).unwrap();
    write(&open, "lost");
    inject(&rig, &Fault::new(FaultKind::DropOnFlush(EIO)));
    assert!(open.pool.sync().is_err());
    rig.heal();
    let exported = in_time("export", move || open.export());
    assert!(exported.unwrap_err().to_string().contains("suspended"));
    check(&rig, &before);
}

/// What somebody has waited for is there after a power cut, although so many flushes failed
/// meanwhile and took with them what was written.
fn keeps_what_was_waited_for(workload: Workload, flushes: u64) {
    let rig = Rig::new(workload);
    let open = rig.create().unwrap();
    write(&open, "before");
    open.pool.sync().unwrap();
    let fs = Arc::clone(open.root().unwrap().1);
    // The first commit begins the chain, and waits for its txg.
    Files(&fs).put("first", b"x").unwrap();
    fs.commit_all().unwrap();
    // A txg that waits for nobody's log would be suspended by more than one failure.
    for number in 0..if flushes == 1 { 3 } else { 1 } {
        rig.heal();
        // Into the log, and to the places where they stay.
        Files(&fs).put(&format!("short {number}"), b"a few words").unwrap();
        write(&open, &format!("long {number}"));
        inject(&rig, &Fault::new(FaultKind::DropOnFlush(EIO)).times(flushes));
        let waiting = Arc::clone(&fs);
        in_time("fsync", move || waiting.commit_all().unwrap());
    }
    rig.heal();
    let expected = record(&*fs).unwrap();
    drop(fs);
    rig.cut_power(open);
    check_replayed(&rig, &expected);
}

#[test]
fn what_was_waited_for_survives_flushes_that_fail() {
    for workload in [Workload::Single, Workload::Mirror, Workload::Raidz2, Workload::Classes] {
        keeps_what_was_waited_for(workload, 1);
    }
    // The log gives up, and its txg succeeds.
    keeps_what_was_waited_for(Workload::Single, 2);
    keeps_what_was_waited_for(Workload::Single, 3);
}

#[test]
fn a_side_of_a_mirror_that_cannot_flush_lacks_what_the_other_has() {
    let rig = Rig::new(Workload::Mirror);
    let open = rig.create().unwrap();
    write(&open, "before");
    open.pool.sync().unwrap();
    let fs = Arc::clone(open.root().unwrap().1);
    let first = rig.devices.values().next().unwrap();
    first.inject(Fault::new(FaultKind::DropOnFlush(EIO)));
    write(&open, "on one side");
    fs.commit_all().unwrap();
    write(&open, "on one side, too");
    open.pool.sync().unwrap();
    let vdevs = open.pool.vdevs();
    let lacking = vdevs
        .leaves()
        .filter(|leaf| leaf.missing_txgs().is_some_and(|missing| !missing.is_empty()));
    assert_eq!(lacking.count(), 1, "one side is known to lack something");
    // The other side must not be left without it: nothing is acknowledged that neither has.
    first.heal_all();
    let second = rig.devices.values().nth(1).unwrap();
    write(&open, "on the other side");
    second.inject(Fault::new(FaultKind::DropOnFlush(EIO)).times(2));
    let waiting = Arc::clone(&fs);
    in_time("fsync", move || waiting.commit_all().unwrap());
    let expected = record(&*fs).unwrap();
    drop(fs);
    rig.cut_power(open);
    check_replayed(&rig, &expected);
}

/// Rounds of failing devices; `cargo xtask faults` has many more of them.
#[test]
fn nothing_that_was_waited_for_is_lost_while_devices_fail() {
    for (seed, workload) in (1..).zip(Workload::FAULTY) {
        let round = FaultRound { workload, seed };
        let again =
            format!("cargo xtask faults --shape {} --seed {seed} --rounds 1", workload.name());
        assert_eq!(round.finding(), None, "{again}");
    }
}

/// When the power is cut after a group whose log device has lost a flush, no block of the log is
/// left behind that nobody finds. It depends on what threads do at the same moment.
#[test]
fn a_log_that_is_lost_on_its_device_leaves_no_blocks_behind() {
    const SEED: u64 = 2287;
    for _ in 0..6 {
        let round = FaultRound { workload: Workload::LogDevice, seed: SEED };
        assert_eq!(round.finding(), None, "{SEED}");
    }
}
