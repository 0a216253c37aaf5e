//! What is said of pools whose devices answer nothing at all.

use super::{answer_of, prompt};
use crate::harness::wait_until;
use crate::workshop::Workshop;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;

/// A pool `tank` on an image in a file system of the pool `host`, whose process has died.
fn without_devices() -> Workshop {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 512M -R ROOT host A");
    let host = shop.rzfs.path("root").join("host");
    let image = host.join("image").to_str().unwrap().to_owned();
    shop.succeed(&format!("zpool create --size 96M -R ROOT tank {image}"));
    fs::write(shop.root().join("kept"), "kept").unwrap();
    // What was written is in the cache, what is read is not.
    shop.succeed("zpool export tank");
    shop.succeed(&format!("zpool import -d {} -R ROOT tank", host.display()));
    let process = i32::try_from(shop.rzfs.daemon("host")).unwrap();
    kill_process(Pid::from_raw(process).unwrap(), Signal::KILL).unwrap();
    wait_until("the process has gone", || fs::metadata(&image).is_err());
    shop
}

#[test]
fn a_pool_without_devices_is_reported_and_let_go_of() {
    let shop = without_devices();
    let file = shop.root().join("late");
    let writer = std::thread::spawn(move || {
        fs::write(&file, "late").and_then(|()| fs::File::open(&file)?.sync_all())
    });
    wait_until("the pool is suspended", || {
        prompt(&shop, "zpool get -Ho value health tank").out == "SUSPENDED\n"
    });
    let status = prompt(&shop, "zpool status tank");
    assert_eq!(status.status, 0, "{status:?}");
    assert!(status.out.contains(" state: SUSPENDED\n"), "{status:?}");
    assert!(status.out.contains("image"), "{status:?}");
    let list = prompt(&shop, "zpool list -Ho name,health,size tank");
    assert_eq!(list.out.split_whitespace().take(2).collect::<Vec<_>>(), ["tank", "SUSPENDED"]);
    assert_ne!(prompt(&shop, "zpool export -f tank").status, 0);
    assert!(answer_of("the writer is told", || writer.join().unwrap()).is_err());
    // The host's mount that is left is taken away, and everything goes on.
    shop.succeed("zpool import -d IMAGES -R ROOT host");
    let host = shop.rzfs.path("root").join("host");
    shop.succeed(&format!("zpool import -f -d {} -R ROOT tank", host.display()));
    assert_eq!(fs::read_to_string(shop.root().join("kept")).unwrap(), "kept");
    shop.succeed("zpool export tank");
    shop.succeed("zpool export host");
}
