//! Ending pools while their devices fail.

use super::{SmallHost, answer_of, prompt};
use crate::harness::{is_mounted, wait_until};
use crate::workshop::Workshop;
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// The size option for a host with this many KiB of free space.
pub(super) fn with_room(host: &Path, more: u64) -> String {
    let statistics = rustix::fs::statvfs(host).unwrap();
    let blocks = statistics.f_blocks - statistics.f_bfree;
    format!("{}k", blocks * statistics.f_frsize / 1024 + more)
}

#[test]
fn an_export_that_is_refused_when_everything_is_unmounted_leaves_everything_mounted() {
    let shop = Workshop::new();
    let images = shop.rzfs.path("images");
    let Some(host) = SmallHost::mount(images.clone(), "48M") else { return };
    shop.succeed("zpool create --size 256M -R ROOT -O compression=off tank A");
    shop.succeed("zfs create tank/inner");
    let root = shop.root();
    fs::write(root.join("inner/kept"), "kept").unwrap();
    shop.succeed("zpool sync");
    host.resize(&with_room(&images, 0));
    // It fits into memory, and no sync has been requested yet.
    fs::write(root.join("late"), vec![7; 4 << 20]).unwrap();
    // `zpool export` requires a sync before anything is unmounted.
    let refused = prompt(&shop, "umount tank");
    assert_eq!(refused.status, 1, "{refused:?}");
    assert!(refused.err.contains("pool I/O is currently suspended"), "{refused:?}");
    assert!(is_mounted(&root) && is_mounted(&root.join("inner")));
    let read = root.clone();
    answer_of("who reads gets an answer", move || {
        assert_eq!(fs::read(read.join("inner/kept")).unwrap(), b"kept");
        assert_eq!(fs::read(read.join("late")).unwrap(), vec![7; 4 << 20]);
    });
    host.resize("400M");
    shop.succeed("zpool clear tank");
    assert_eq!(fs::read(root.join("late")).unwrap(), vec![7; 4 << 20]);
    shop.succeed("zpool export tank");
    shop.judge();
}

#[test]
fn a_process_whose_devices_fail_while_it_mounts_ends() {
    let shop = Workshop::new();
    let images = shop.rzfs.path("images");
    let Some(host) = SmallHost::mount(images.clone(), "48M") else { return };
    shop.succeed("zpool create --size 256M -R ROOT -O compression=off tank A");
    let root = shop.root();
    fs::write(root.join("kept"), "kept").unwrap();
    shop.succeed("zpool sync");
    // Small writes to replay, so that their data is in the log.
    let mut durable = fs::File::options();
    let durable = durable.create_new(true).write(true).custom_flags(OFlags::SYNC.bits() as i32);
    let mut logged = durable.open(root.join("logged")).unwrap();
    (0..256).for_each(|_| logged.write_all(&[7; 16 << 10]).unwrap());
    drop(logged);
    let daemon = Pid::from_raw(shop.rzfs.daemon("tank") as i32).unwrap();
    kill_process(daemon, Signal::KILL).unwrap();
    wait_until("the process is gone", || shop.run("zpool list -Ho name").out.is_empty());
    assert!(Command::new("umount").arg("-l").arg(&root).status().unwrap().success());
    // That is enough to open the pool.
    host.resize(&with_room(&images, 1024));
    let mut import = shop.rzfs.command();
    import.args(["zpool", "import", "-f", "-d"]).arg(&images).arg("-R").arg(shop.rzfs.path("root"));
    let mut import = import.arg("tank").stdout(Stdio::null()).spawn().unwrap();
    // There is no room for its writes, and no user who could be told to make some.
    let status = answer_of("the import ends", move || import.wait().unwrap());
    assert_eq!(status.code(), Some(1));
    assert!(!is_mounted(&root));
    host.recover(&shop);
}

/// Nothing fails before the signal arrives: the device is an image in a file system whose process
/// is stopped, and killed later.
#[test]
fn a_process_that_is_to_end_answers_meanwhile_and_ends_when_its_device_fails_then() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 300M -R ROOT host A");
    let image = shop.rzfs.path("root/host/inner");
    shop.succeed(&format!("zpool create --size 128M -R ROOT tank {}", image.display()));
    shop.succeed("zfs create tank/inner");
    let [host, tank] =
        ["host", "tank"].map(|pool| Pid::from_raw(shop.rzfs.daemon(pool) as i32).unwrap());
    let root = shop.root();
    fs::write(root.join("late"), vec![7; 4 << 20]).unwrap();
    kill_process(host, Signal::STOP).unwrap();
    kill_process(tank, Signal::TERM).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    let listed = prompt(&shop, "zpool list -Ho name tank");
    kill_process(host, Signal::KILL).unwrap();
    assert_eq!((listed.status, listed.out.as_str(), listed.err.as_str()), (0, "tank\n", ""));
    wait_until("the process is gone", || shop.run("zpool list -Ho name").out.is_empty());
    assert!(!is_mounted(&root) && !is_mounted(&root.join("inner")));
    let host = shop.rzfs.path("root/host");
    assert!(Command::new("umount").arg("-l").arg(&host).status().unwrap().success());
}
