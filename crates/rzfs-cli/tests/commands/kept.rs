//! What the process that serves a pool keeps of its parent, and of secrets.

use crate::workshop::Workshop;
use rzfs_testkit::has_root;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

/// Scripts that hold a lock while they create a pool must be able to release it.
#[test]
fn nothing_stays_open_of_whoever_starts_the_process() {
    let shop = Workshop::new();
    let lock = shop.rzfs.path("lock");
    let script = "exec 9> $LOCK && flock -n 9 && $RZFS zpool create -m none --size 96M tank $IMAGE";
    let mut shell = shop.rzfs.prepared(Command::new("sh"));
    shell.args(["-c", script]).env("LOCK", &lock).env("IMAGE", shop.image("A"));
    shell.env("RZFS", env!("CARGO_BIN_EXE_rzfs"));
    assert!(shell.status().unwrap().success());
    let free = Command::new("flock").arg("-n").arg(&lock).arg("true").status().unwrap();
    shop.succeed("zpool export tank");
    assert!(free.success());
}

/// How often a byte string occurs in the memory of a process.
fn count_in_memory(process: u32, wanted: &[u8]) -> usize {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let memory = File::open(format!("/proc/{process}/mem")).unwrap();
    let mut count = 0;
    for line in maps.lines().filter(|line| line.contains(" rw-p ")) {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [start, end] = [start, end].map(|at| u64::from_str_radix(at, 16).unwrap());
        let mut bytes = vec![0; usize::try_from(end - start).unwrap()];
        // A mapping that no longer exists has no bytes.
        let read = memory.read_at(&mut bytes, start).unwrap_or(0);
        count += bytes[..read].windows(wanted.len()).filter(|part| *part == wanted).count();
    }
    count
}

#[test]
fn keys_that_are_unloaded_are_in_memory_no_more() {
    if !has_root("only root may look into the memory of processes that are not its own children") {
        return;
    }
    let shop = Workshop::new();
    let mut keys = [[0; 32]; 2];
    keys.iter_mut()
        .for_each(|key| File::open("/dev/urandom").unwrap().read_exact_at(key, 0).unwrap());
    let places = ["first", "second"].map(|name| shop.rzfs.path(name));
    places.iter().zip(&keys).for_each(|(place, key)| fs::write(place, key).unwrap());
    let [first, second] = places.map(|place| format!("file://{}", place.display()));
    shop.succeed("zpool create -m none --size 96M tank A");
    let process = shop.rzfs.daemon("tank");
    let create = "zfs create -o encryption=on -o keyformat=raw -o keylocation=";
    shop.succeed(&format!("{create}{first} tank/secret"));
    assert_ne!(count_in_memory(process, &keys[0]), 0, "it is loaded");
    shop.succeed(&format!("zfs change-key -o keylocation={second} tank/secret"));
    shop.succeed("zfs unload-key tank/secret");
    let found = keys.map(|key| count_in_memory(process, &key));
    shop.succeed("zfs load-key tank/secret");
    assert_ne!(count_in_memory(process, &keys[1]), 0, "it is loaded");
    shop.succeed("zfs unload-key tank/secret");
    let left = count_in_memory(process, &keys[1]);
    shop.succeed("zpool export tank");
    assert_eq!((found, left), ([0, 0], 0));
}
