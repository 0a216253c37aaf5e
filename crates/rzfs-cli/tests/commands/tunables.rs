//! Tunables and their effect.

use crate::harness::{Rzfs, outcome, wait_until};
use crate::workshop::Workshop;
use std::fs;
use std::time::{Duration, Instant};

#[test]
fn tunables_are_listed_with_the_values_of_the_environment() {
    let rzfs = Rzfs::new();
    let all = rzfs.succeed(["tunables"]);
    assert!(all.starts_with("NAME ") && all.contains("\nzfs_arc_max "), "{all}");
    let tuned = |words: &[&str]| {
        outcome(rzfs.command().args(words).env("RZFS_TUNABLES", "zfs_txg_timeout=7"))
    };
    let one = tuned(&["tunables", "zfs_txg_timeout"]);
    let row: Vec<_> = one.out.lines().nth(1).unwrap().split_whitespace().take(4).collect();
    assert_eq!((one.status, row), (0, vec!["zfs_txg_timeout", "7", "5", "s"]));
    let json = tuned(&["tunables", "-j", "zfs_txg_timeout"]).out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let found = &json["tunables"]["zfs_txg_timeout"];
    assert_eq!((found["value"].as_u64(), found["default"].as_u64()), (Some(7), Some(5)));
}

#[test]
fn mistakes_name_what_was_meant() {
    let shop = Workshop::new();
    let wrong = shop.refuse("tunables zfs_txg_timout", 1);
    assert!(wrong.contains("did you mean 'zfs_txg_timeout'?"), "{wrong}");
    let wrong = shop.refuse("mount -o zfs_txg_timout=1 A ROOT", 2);
    assert!(wrong.contains("did you mean 'zfs_txg_timeout'?"), "{wrong}");
    let wrong = shop.refuse("mount -o zfs_txg_timeout=0 A ROOT", 2);
    assert!(wrong.contains("1 to 86400 s"), "{wrong}");
    let wrong = shop.refuse("zpool create -o zfs_txg_timeout=soon tank A", 1);
    assert!(wrong.contains("'soon' is not a number of seconds"), "{wrong}");
    let mut mount = shop.rzfs.command();
    mount.args(["mount", "x", "y"]).env("RZFS_TUNABLES", "zfs_txg_timeout=0");
    let wrong = outcome(&mut mount);
    assert!(wrong.status == 2 && wrong.err.contains("RZFS_TUNABLES"), "{wrong:?}");
}

/// A new directory is on disk once its txg is, unless it is synced earlier.
#[test]
fn a_pool_is_written_as_often_as_it_is_told() {
    let shop = Workshop::new();
    let is_on_disk = |name: &str| shop.run("ls -d A tank").out.lines().any(|line| line == name);
    shop.succeed("zpool create -R ROOT --size 96M -o zfs_txg_timeout=3600 tank A");
    fs::create_dir(shop.root().join("late")).unwrap();
    std::thread::sleep(Duration::from_secs(7));
    assert!(!is_on_disk("late"));
    shop.succeed("zpool export tank");
    assert!(is_on_disk("late"));

    let directory = shop.rzfs.path("mnt");
    fs::create_dir(&directory).unwrap();
    let mount = ["mount", "-o", "zfs_txg_timeout=1", &shop.image("A")].map(str::to_owned);
    shop.rzfs.succeed(mount.into_iter().chain([directory.to_str().unwrap().to_owned()]));
    let start = Instant::now();
    for name in ["a", "b", "c"] {
        fs::create_dir(directory.join(name)).unwrap();
        wait_until("it is on disk", || is_on_disk(name));
    }
    // The last two would take 5 seconds each.
    assert!(start.elapsed() < Duration::from_secs(9), "{:?}", start.elapsed());
    shop.succeed("umount tank");
    shop.judge();
}
