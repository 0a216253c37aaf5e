//! Adding vdevs to a running pool.

use crate::harness::mounts_on_mounts;
use crate::workshop::Workshop;
use std::fs;
use std::os::unix::fs::symlink;

/// The allocated bytes of a vdev according to `zpool list -v`.
fn allocated(shop: &Workshop, device: &str) -> u64 {
    let listed = shop.succeed("zpool list -Hpv tank");
    let line = listed.lines().find(|line| line.split_whitespace().next() == Some(device));
    let line = line.unwrap_or_else(|| panic!("no {device}: {listed}"));
    line.split_whitespace().nth(2).unwrap().parse().unwrap()
}

#[test]
fn a_pool_grows_while_it_is_written() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT -o ashift=12 -O compression=off tank A");
    let root = shop.root();
    fs::write(root.join("before"), vec![1; 24 << 20]).unwrap();
    shop.succeed("zpool add --size 96M tank B");
    // More than the free space of the first device.
    fs::write(root.join("after"), vec![2; 40 << 20]).unwrap();
    shop.succeed("zpool sync");
    assert!(allocated(&shop, &shop.image("B")) > 8 << 20, "blocks go to the new vdev");
    shop.succeed("zpool export tank");
    shop.judge();
    if let Some(config) = shop.zdb(&["-C"]) {
        assert!(config.contains("vdev_children: 2"), "{config}");
    }
    shop.zdb(&["-mmm"]);
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    assert_eq!(fs::read(root.join("before")).unwrap(), vec![1; 24 << 20]);
    assert_eq!(fs::read(root.join("after")).unwrap(), vec![2; 40 << 20]);
    let history = shop.succeed("zpool history tank");
    assert!(history.contains("zpool add --size 96M tank "), "{history}");
    shop.succeed("zpool export tank");
    shop.judge();
}

#[test]
fn vdevs_of_all_kinds_join() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank mirror A B");
    shop.succeed("zpool add --size 96M tank mirror C D log E");
    shop.succeed("zpool add --size 96M tank special mirror F G dedup mirror H I");
    shop.succeed("zpool add --size 96M tank cache J spare K");
    shop.succeed("zpool add --size 96M tank spare L");
    for number in 0..400 {
        fs::write(shop.root().join(format!("file-{number}")), [7; 600]).unwrap();
    }
    shop.succeed("zpool sync");
    assert!(allocated(&shop, "mirror-3") > 0, "metadata go to the special vdev");
    let status = shop.succeed("zpool status tank");
    for name in ["mirror-1", "logs", "special", "dedup", "cache", "spares", "AVAIL"] {
        assert!(status.contains(name), "{name}: {status}");
    }
    assert_eq!(status.matches("AVAIL").count(), 2, "{status}");
    assert!(shop.succeed("zpool events").contains("sysevent.fs.zfs.vdev_add"));
    assert_eq!(shop.succeed("zpool get -Ho value feature@allocation_classes tank"), "active\n");
    shop.succeed("zpool export tank");
    shop.judge();
    shop.zdb(&["-mmm"]);
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    assert_eq!(fs::read(shop.root().join("file-399")).unwrap(), [7; 600]);
    assert_eq!(shop.succeed("zpool status tank"), status);
}

#[test]
fn adding_has_the_texts_of_openzfs() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -m none -o ashift=12 tank mirror A B");
    let mismatch = "invalid vdev specification\nuse '-f' to override the following errors:\n\
                    mismatched replication level: pool uses mirror and new vdev is file\n";
    let active = "invalid vdev specification\nthe following errors must be manually repaired:\n\
                  A is part of active pool 'tank'\n";
    let sectors = "cannot add to 'tank': new device has a different optimal sector size; use the \
                   option '-o ashift=N' to override the optimal size\n";
    let range = "invalid 'ashift=99' property: only values between 9 and 16 are allowed.\n";
    for (line, text) in [
        ("zpool add --size 96M tank C", mismatch),
        ("zpool add -f tank A", active),
        ("zpool add --size 96M -o ashift=9 tank mirror C D", sectors),
        ("zpool add --size 96M -o ashift=99 tank mirror C D", range),
        (
            "zpool add --size 32M tank mirror C D",
            "cannot add to 'tank': one or more devices is less than the minimum size (64M)\n",
        ),
        ("zpool add --size 96M nope C", "cannot open 'nope': no such pool\n"),
    ] {
        assert_eq!(shop.refuse(line, 1), text, "{line}");
    }
    assert!(!shop.rzfs.path("images").join("C").exists(), "files that were made are gone again");
    assert_eq!(shop.run("zpool add tank").status, 2);
    assert_eq!(shop.run("zpool add -f --allow-in-use tank C").status, 2);

    let out = shop.succeed("zpool add -n --size 96M tank mirror C D log E spare F");
    let images = format!("{}/", shop.rzfs.path("images").display());
    let expected = "would update 'tank' to the following configuration:\n\n\ttank\n\t  mirror-0\n\
                    \t    A\n\t    B\n\t  mirror\n\t    C\n\t    D\n\tlogs\n\t  E\n\tspares\n\t  F\n";
    assert_eq!(out.replace(&images, ""), expected);
    shop.succeed("zpool add -f --size 96M -o ashift=9 tank C");
    shop.succeed("zpool export tank");
    shop.judge();
}

/// Such a device would wait for itself forever, and survive even a SIGKILL.
#[test]
fn no_device_is_in_a_file_system_of_its_own_pool() {
    if !mounts_on_mounts() {
        eprintln!("SKIPPED: this user cannot mount on a mount");
        return;
    }
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank mirror A B");
    shop.succeed("zfs create tank/images");
    let own = shop.root().join("images/own");
    let own = own.to_str().unwrap();
    let refused = shop.run(&format!("zpool add -f --size 64M tank {own}"));
    let expected = format!("cannot add to 'tank': {own} is in a file system of this pool\n");
    assert_eq!((refused.status, refused.err), (1, expected));
    assert!(!fs::exists(own).unwrap());

    // The creator of an image chooses the paths of its devices.
    shop.succeed("zpool export tank");
    let (second, kept) = (shop.image("B"), shop.rzfs.path("kept"));
    fs::rename(&second, &kept).unwrap();
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    fs::copy(&kept, own).unwrap();
    symlink(own, &second).unwrap();
    shop.run("zpool clear tank");
    let status = shop.succeed("zpool status tank");
    assert!(status.contains("DEGRADED"), "{status}");
    fs::remove_file(&second).unwrap();
    fs::rename(&kept, &second).unwrap();
    shop.succeed("zpool clear tank");
    shop.succeed("zpool export tank");
    shop.judge();
}

#[test]
fn a_pool_answers_while_vdevs_are_added() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 64M -R ROOT tank A");
    std::thread::scope(|scope| {
        let adding = scope.spawn(|| {
            for number in 0..12 {
                shop.succeed(&format!("zpool add --size 64M tank V{number}"));
            }
        });
        while !adding.is_finished() {
            assert!(shop.succeed("zpool list -v tank").contains("tank"));
            assert!(shop.succeed("zpool get -H size").contains("tank"));
        }
    });
    assert_eq!(shop.succeed("zpool list -Hv tank").lines().count(), 14);
    shop.succeed("zpool export tank");
    shop.judge();
}
