//! Reports on pools whose devices return only errors.

use super::{answer_of, prompt};
use crate::harness::wait_until;
use crate::workshop::Workshop;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Write;

/// A pool `tank` on an image in a file system of the pool `host`, whose process was killed.
fn without_devices() -> Workshop {
    without_devices_of("96M", |_| ())
}

/// The same, of an image of this size, for a pool in which something is done before.
pub(super) fn without_devices_of(size: &str, prepare: impl FnOnce(&Workshop)) -> Workshop {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 512M -R ROOT host A");
    let host = shop.rzfs.path("root").join("host");
    let image = host.join("image").to_str().unwrap().to_owned();
    shop.succeed(&format!("zpool create --size {size} -R ROOT tank {image}"));
    prepare(&shop);
    fs::write(shop.root().join("kept"), "kept").unwrap();
    // Written data is cached; after a new import, nothing is.
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
    // The leftover mount of the host is removed, and the pool can be imported.
    shop.succeed("zpool import -d IMAGES -R ROOT host");
    let host = shop.rzfs.path("root").join("host");
    shop.succeed(&format!("zpool import -f -d {} -R ROOT tank", host.display()));
    assert_eq!(fs::read_to_string(shop.root().join("kept")).unwrap(), "kept");
    shop.succeed("zpool export tank");
    shop.succeed("zpool export host");
}

#[test]
fn a_pool_whose_device_has_come_back_elsewhere_goes_on_after_clear() {
    let shop = without_devices();
    let root = shop.root();
    let write = move |name: &str, contents: Vec<u8>| {
        let mut file = fs::File::create(root.join(name))?;
        file.write_all(&contents)?;
        file.sync_all()
    };
    let write = std::sync::Arc::new(write);
    let writers = ["one", "two"].map(|name| {
        let write = std::sync::Arc::clone(&write);
        std::thread::spawn(move || write(name, vec![7; 3 << 20]))
    });
    wait_until("the pool is suspended", || {
        prompt(&shop, "zpool get -Ho value health tank").out == "SUSPENDED\n"
    });
    let refused = "cannot clear errors for tank: I/O error\n";
    assert_eq!(prompt(&shop, "zpool clear tank").err, refused, "it is not back");
    shop.succeed("zpool import -d IMAGES -R ROOT host");
    let host = shop.rzfs.path("root").join("host");
    // A file under the device's name must be the device.
    fs::rename(host.join("image"), host.join("away")).unwrap();
    fs::write(host.join("image"), vec![0; 96 << 20]).unwrap();
    assert_eq!(prompt(&shop, "zpool clear tank").err, refused, "it is another one");
    assert!(fs::read(host.join("image")).unwrap().iter().all(|byte| *byte == 0));
    fs::rename(host.join("away"), host.join("image")).unwrap();
    let cleared = prompt(&shop, "zpool clear tank");
    assert_eq!((cleared.status, cleared.err.as_str()), (0, ""));
    for writer in writers {
        answer_of("the writer goes on", || writer.join().unwrap()).unwrap();
    }
    assert_eq!(shop.succeed("zpool get -Ho value health tank"), "ONLINE\n");
    shop.succeed("zpool export tank");
    let walked = shop.run(&format!("zdb -bcc -e -p {} tank", host.display()));
    assert!(walked.status == 0 && walked.out.contains("No leaks"), "{walked:?}");
    shop.succeed(&format!("zpool import -d {} -R ROOT tank", host.display()));
    assert_eq!(fs::read_to_string(shop.root().join("kept")).unwrap(), "kept");
    for name in ["one", "two"] {
        assert!(fs::read(shop.root().join(name)).unwrap() == vec![7; 3 << 20], "{name}");
    }
    shop.succeed("zpool export tank");
    shop.succeed("zpool export host");
}
