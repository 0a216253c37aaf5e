//! Pools whose devices fail.

use crate::harness::wait_until;
use crate::workshop::Workshop;
use std::fs;
use std::process::Command;

/// A host file system of so many bytes, which goes with the value.
struct SmallHost(std::path::PathBuf);

impl SmallHost {
    /// Mounts it below the images; not where nobody may mount.
    fn mount(place: std::path::PathBuf, size: &str) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(&place);
        if mount.output().is_ok_and(|output| output.status.success()) {
            return Some(Self(place));
        }
        eprintln!("SKIPPED: this user may not mount a file system");
        None
    }

    fn resize(&self, size: &str) {
        let mut mount = Command::new("mount");
        mount.args(["-o", &format!("remount,size={size}")]).arg(&self.0);
        assert!(mount.status().unwrap().success());
    }

    /// Gets room again. The pool `tank`, which nobody has any more, is imported, still has the
    /// file `kept`, and is whole.
    fn recover(&self, shop: &Workshop) {
        self.resize("400M");
        shop.succeed("zpool import -f -d IMAGES -R ROOT tank");
        assert_eq!(fs::read_to_string(shop.root().join("kept")).unwrap(), "kept");
        shop.succeed("zpool export tank");
        shop.judge();
    }
}

impl Drop for SmallHost {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_pool_waits_while_its_host_is_full_and_goes_on_after_clear() {
    let shop = Workshop::new();
    let Some(host) = SmallHost::mount(shop.rzfs.path("images"), "48M") else { return };
    shop.succeed("zpool create --size 256M -R ROOT -O compression=off tank A");
    let file = shop.root().join("large");
    let writer = {
        let file = file.clone();
        std::thread::spawn(move || fs::write(file, vec![7; 64 << 20]))
    };
    wait_until("the pool is suspended", || {
        shop.run("zpool get -Ho value health tank").out == "SUSPENDED\n"
    });
    let status = shop.succeed("zpool status tank");
    for text in [" state: SUSPENDED\n", "in response to IO failures", "ZFS-8000-HC"] {
        assert!(status.contains(text), "{text}: {status}");
    }
    assert!(!shop.succeed("zpool status -x").contains("healthy"));
    assert_eq!(
        shop.refuse("zpool export tank", 1),
        "cannot export 'tank': pool I/O is currently suspended\n"
    );
    assert!(shop.refuse("zfs create tank/x", 1).contains("pool I/O is currently suspended"));
    assert_eq!(
        shop.refuse("zpool clear tank", 1),
        "cannot clear errors for tank: I/O error\n",
        "the host is still full"
    );
    assert_eq!(
        shop.refuse("zpool clear tank nothing", 1),
        "cannot clear errors for nothing: no such device in pool\n"
    );
    host.resize("400M");
    shop.succeed("zpool clear tank");
    writer.join().unwrap().unwrap();
    assert_eq!(fs::read(&file).unwrap(), vec![7; 64 << 20]);
    assert_eq!(shop.succeed("zpool get -Ho value health tank"), "ONLINE\n");
    assert!(shop.succeed("zpool events").contains("sysevent.fs.zfs.vdev_clear"));
    shop.succeed("zpool export tank");
    shop.judge();
}

#[test]
fn a_sync_that_fails_is_no_reason_for_the_next_ones_to_fail() {
    let shop = Workshop::new();
    let Some(host) = SmallHost::mount(shop.rzfs.path("images"), "48M") else { return };
    shop.succeed("zpool create --size 256M -R ROOT -O compression=off -o failmode=continue tank A");
    let kept = fs::File::create(shop.root().join("kept")).unwrap();
    kept.sync_all().unwrap();
    let _ = fs::write(shop.root().join("large"), vec![7; 64 << 20]);
    wait_until("the pool is suspended", || {
        shop.run("zpool get -Ho value health tank").out == "SUSPENDED\n"
    });
    kept.set_modified(std::time::UNIX_EPOCH).and_then(|()| kept.sync_all()).unwrap_err();
    host.resize("400M");
    shop.succeed("zpool clear tank");
    fs::write(shop.root().join("kept"), "kept").unwrap();
    kept.sync_all().unwrap();
    let again = fs::File::create(shop.root().join("again")).unwrap();
    again.sync_all().unwrap();
    drop((kept, again));
    shop.succeed("zpool export tank");
    host.recover(&shop);
}

#[test]
fn a_suspended_pool_can_be_given_up() {
    let shop = Workshop::new();
    let Some(host) = SmallHost::mount(shop.rzfs.path("images"), "48M") else { return };
    shop.succeed("zpool create --size 256M -R ROOT -O compression=off tank A");
    fs::write(shop.root().join("kept"), "kept").unwrap();
    shop.succeed("zpool sync");
    shop.succeed("zpool set failmode=continue tank");
    let file = shop.root().join("large");
    // Some of it gets in before the host is found full.
    let written = fs::write(&file, vec![7; 64 << 20]);
    wait_until("the pool is suspended", || {
        shop.run("zpool get -Ho value health tank").out == "SUSPENDED\n"
    });
    assert!(written.is_err() || fs::write(&file, "more").is_err(), "writers are told");
    assert_eq!(fs::read_to_string(shop.root().join("kept")).unwrap(), "kept");
    // Nothing waits for ever.
    assert_ne!(shop.run("zpool export -f tank").status, 0);
    host.recover(&shop);
}

#[test]
fn a_pool_that_is_to_panic_takes_its_process_along_and_nothing_else() {
    let shop = Workshop::new();
    let Some(host) = SmallHost::mount(shop.rzfs.path("images"), "48M") else { return };
    shop.succeed("zpool create --size 256M -R ROOT -O compression=off tank A");
    fs::write(shop.root().join("kept"), "kept").unwrap();
    shop.succeed("zpool sync");
    shop.succeed("zpool set failmode=panic tank");
    assert_eq!(shop.succeed("zpool get -Ho value failmode tank"), "panic\n");
    // It may all fit into memory; then the next group finds the host full.
    let _ = fs::write(shop.root().join("large"), vec![7; 64 << 20]);
    wait_until("the process is gone", || shop.run("zpool list -Ho name").out.is_empty());
    let mut umount = Command::new("umount");
    assert!(umount.arg("-l").arg(shop.root()).status().unwrap().success());
    host.recover(&shop);
}

/// `zpool status` says that the image B, and no other, lacks something, and counts no errors.
fn assert_lacks_data(shop: &Workshop) {
    let status = shop.succeed("zpool status tank");
    assert!(status.contains("lack data that was written while they were away"), "{status}");
    let lacking: Vec<_> = status.lines().filter(|line| line.contains("(lacks data of")).collect();
    let [line] = lacking.as_slice() else { panic!("{status}") };
    let words: Vec<_> = line.split_whitespace().collect();
    assert!(words[0].ends_with('B'), "{status}");
    assert_eq!(words[1..5], ["ONLINE", "0", "0", "0"], "{status}");
    assert!(!shop.succeed("zpool status -x").contains("healthy"));
    assert!(shop.succeed("zpool status -e tank").contains(line), "{status}");
}

#[test]
fn a_device_that_was_missing_is_used_again_after_clear() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 128M -R ROOT tank mirror A B");
    fs::write(shop.root().join("before"), "both have it").unwrap();
    shop.succeed("zpool export tank");
    let (here, away) = (shop.image("B"), shop.rzfs.path("B"));
    fs::copy(&here, &away).unwrap();
    fs::remove_file(&here).unwrap();
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    assert_eq!(shop.succeed("zpool get -Ho value health tank"), "DEGRADED\n");
    fs::write(shop.root().join("meanwhile"), "one has it").unwrap();
    shop.succeed("zpool sync");
    // Nothing is there, so nothing comes back.
    shop.succeed("zpool clear tank");
    assert_eq!(shop.succeed("zpool get -Ho value health tank"), "DEGRADED\n");
    // A device of another pool is none of this one.
    let other = shop.image("C");
    shop.succeed("zpool create --size 128M --export other C");
    fs::copy(&other, &here).unwrap();
    shop.succeed("zpool clear tank");
    assert_eq!(shop.succeed("zpool get -Ho value health tank"), "DEGRADED\n");
    fs::remove_file(&here).unwrap();
    fs::copy(&away, &here).unwrap();
    shop.succeed("zpool clear tank");
    assert_eq!(shop.succeed("zpool get -Ho value health tank"), "ONLINE\n");
    assert_lacks_data(&shop);
    fs::write(shop.root().join("after"), vec![9; 4 << 20]).unwrap();
    shop.succeed("zpool export tank");
    fs::remove_file(other).unwrap();
    shop.judge();
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    assert_eq!(fs::read_to_string(shop.root().join("meanwhile")).unwrap(), "one has it");
    // Nobody asked the device that lacks it, not when the pool was opened either.
    assert_lacks_data(&shop);
    assert_eq!(fs::read(shop.root().join("after")).unwrap(), vec![9; 4 << 20]);
    shop.succeed("zpool export tank");
}
