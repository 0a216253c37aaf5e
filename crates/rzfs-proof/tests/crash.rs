//! Crashes at moments that a seed chooses; `cargo xtask crash` has many more of them.

use rzfs_proof::crash::{CrashCase, Depth, Recording, Workload};

const CRASHES: u64 = 40;

fn survives(workload: Workload) {
    let recording = Recording::make(workload, 7).unwrap();
    assert!(recording.moments() > 100, "{} moments", recording.moments());
    for number in 0..CRASHES {
        let depth = if number % 8 == 0 { Depth::GoOn } else { Depth::Import };
        let finding = CrashCase { recording: &recording, number }.finding(depth);
        let again = format!("--workload {} --seed 7 --number {number}", workload.name());
        assert_eq!(finding, None, "cargo xtask crash {again}");
    }
}

#[test]
fn crashes_leave_the_end_of_a_group_on_one_device() {
    survives(Workload::Single);
}

#[test]
fn crashes_leave_the_end_of_a_group_on_raidz() {
    survives(Workload::Raidz2);
}

#[test]
fn crashes_leave_space_accounted_for() {
    survives(Workload::Logs);
}

#[test]
fn crashes_leave_datasets_as_administrators_had_them() {
    survives(Workload::Datasets);
}

#[test]
fn crashes_leave_snapshots_and_clones_as_administrators_had_them() {
    survives(Workload::Snapshots);
}

#[test]
fn crashes_leave_what_was_received_or_nothing_of_it() {
    survives(Workload::Receive);
}

#[test]
fn blocks_that_files_share_survive_crashes() {
    survives(Workload::Shared);
}

#[test]
fn vdevs_are_added_or_not_whenever_a_crash_comes() {
    survives(Workload::Add);
}

#[test]
fn crashes_leave_the_accounts_of_users_at_their_limits_right() {
    survives(Workload::Limits);
}

#[test]
fn a_device_that_ignores_flushes_is_found_out() {
    let recording = Recording::without_flushes(Workload::Single, 7).unwrap();
    let survives = |number| {
        let case = CrashCase { recording: &recording, number };
        case.finding(Depth::Import).is_none()
    };
    assert!((0..CRASHES).any(|number| !survives(number)));
}
