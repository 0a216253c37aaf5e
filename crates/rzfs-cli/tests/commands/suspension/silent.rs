//! Processes and devices that neither reply nor fail: a device is an image in a file system whose
//! process is stopped.

use super::{Stopped, answer_of, prompt};
use crate::harness::{is_mounted, outcome, wait_until};
use crate::workshop::Workshop;
use rzfs_testkit::has_root;
use std::fs::{self, File};
use std::io::Write;
use std::process::Command;
use std::thread;
use std::time::Duration;

#[test]
fn a_pool_whose_process_is_stopped_is_left_out_and_that_is_told() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT other A");
    shop.succeed("zpool create --size 96M -R ROOT tank B");
    let process = shop.rzfs.daemon("tank");
    let told = format!("pool 'tank' does not answer (process {process}): it is left out\n");
    let stopped = Stopped::stop(process);
    for line in ["zpool list -Ho name", "zfs list -Ho name"] {
        let listed = prompt(&shop, line);
        let listed = (listed.status, listed.out.as_str(), listed.err.as_str());
        assert_eq!(listed, (1, "other\n", told.as_str()), "{line}");
    }
    shop.succeed("zpool export other");
    for line in ["zpool list", "zpool status", "zfs list", "stats"] {
        let listed = prompt(&shop, line);
        assert_eq!((listed.status, listed.out.as_str()), (1, ""), "{line}: {listed:?}");
        assert!(listed.err.starts_with(&told), "{line}: {listed:?}");
        assert!(!listed.err.contains("no pools available"), "{line}: {listed:?}");
    }
    drop(stopped);
    assert_eq!(shop.succeed("zpool list -Ho name"), "tank\n");
    shop.succeed("zpool export tank");
}

#[test]
fn a_pool_that_is_given_up_is_taken_from_all_who_have_its_mounts() {
    if !has_root("only root's file systems have mounts of their own") {
        return;
    }
    let shop = Workshop::new();
    shop.succeed("zpool create --size 300M -R ROOT host A");
    let image = shop.rzfs.path("root/host/inner");
    shop.succeed(&format!("zpool create --size 128M -R ROOT tank {}", image.display()));
    shop.succeed("zfs create tank/child");
    let (root, child) = (shop.root(), shop.root().join("child"));
    let mut durable = File::create(root.join("durable")).unwrap();
    let inside = File::open(&child).unwrap();
    let stopped = Stopped::stop(shop.rzfs.daemon("host"));
    let writer = thread::spawn(move || {
        durable.write_all(&vec![7; 8 << 20]).and_then(|()| durable.sync_all())
    });
    // A rename through the mount keeps a directory locked.
    let renaming = root.clone();
    let renamer = thread::spawn(move || {
        fs::create_dir(renaming.join("a")).and_then(|()| {
            File::create(renaming.join("a/file"))?.sync_all()?;
            fs::rename(renaming.join("a"), renaming.join("b"))
        })
    });
    thread::sleep(Duration::from_millis(500));
    let mut export = shop.rzfs.prepared(Command::new("timeout"));
    export.args(["-s", "KILL", "240", env!("CARGO_BIN_EXE_rzfs"), "zpool", "export", "-f", "tank"]);
    let exported = outcome(&mut export);
    assert_eq!(exported.status, 1, "{exported:?}");
    assert!(exported.err.contains("its devices do not answer"), "{exported:?}");
    wait_until("the mounts are gone", || !is_mounted(&root) && !is_mounted(&child));
    let written = answer_of("who writes is told", move || writer.join().unwrap());
    written.unwrap_err();
    let _ = answer_of("who renames is told", move || renamer.join().unwrap());
    let looked = answer_of("who is inside is told", move || inside.sync_all());
    looked.unwrap_err();
    drop(stopped);
    assert_eq!(shop.succeed("zpool list -Ho name"), "host\n");
    // The kernel aborts the requests of the process to the device.
    wait_until("nobody has the image", || shop.run("zpool export host").status == 0);
}
