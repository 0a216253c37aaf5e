//! Crashes of programs that wait for what they do, at moments that a seed chooses.

use rzfs_proof::crash::{SyncedRecording, Workload};

const CRASHES: u64 = 15;

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
