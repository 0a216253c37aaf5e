//! Several pools at once.

use crate::harness::mounts_on_mounts;
use crate::workshop::Workshop;
use std::fs;

#[test]
fn who_asks_all_pools_passes_over_those_that_end() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 64M -R ROOT tank A");
    std::thread::scope(|scope| {
        let others = ["B", "C"].map(|image| {
            let shop = &shop;
            scope.spawn(move || {
                let pool = format!("other{image}");
                for _ in 0..6 {
                    shop.succeed(&format!("zpool create -f --size 64M -R ROOT {pool} {image}"));
                    shop.succeed(&format!("zpool export {pool}"));
                }
            })
        });
        while others.iter().any(|one| !one.is_finished()) {
            for line in [
                "zpool list -H",
                "zfs list -H",
                "zfs get -H used",
                "zpool get -H size",
                "zpool status -x",
                "zpool sync",
                "zfs mount",
            ] {
                let outcome = shop.run(line);
                assert_eq!((outcome.status, outcome.err.as_str()), (0, ""), "{line}: {outcome:?}");
            }
        }
    });
    shop.succeed("zpool export tank");
}

#[test]
fn outer_mount_points_are_mounted_first_and_unmounted_last() {
    if !mounts_on_mounts() {
        return;
    }
    let shop = Workshop::new();
    let top = shop.rzfs.path("top");
    let (outer, inner) = (top.display(), top.join("inner").display().to_string());
    shop.succeed(&format!("zpool create --size 64M -m {outer} zoo A"));
    shop.succeed(&format!("zpool create --size 64M -m {inner} ant B"));
    fs::write(top.join("inner/file"), "precious").unwrap();
    shop.succeed("zpool export -a");
    assert!(!top.join("inner").exists());
    shop.succeed("zpool import -d IMAGES -aN");
    shop.succeed("zfs mount -a");
    assert_eq!(fs::read_to_string(top.join("inner/file")).unwrap(), "precious");
    shop.succeed("zfs unmount -a");
    assert!(!top.join("inner/file").exists());
    shop.succeed("zpool export -a");
}

#[test]
fn a_file_system_with_another_one_in_it_is_busy() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 64M -R ROOT tank A");
    shop.succeed("zfs create -o mountpoint=/tank/z tank/outer");
    shop.succeed("zfs create -o mountpoint=/tank/z/a tank/inner");
    let place = shop.root().join("z");
    for command in ["zfs unmount tank/outer", "zfs unmount -f tank/outer"] {
        let busy = format!("cannot unmount '{}': pool or dataset is busy\n", place.display());
        assert_eq!(shop.refuse(command, 1), busy);
    }
    fs::write(place.join("a/file"), "").unwrap();
    shop.succeed("zfs unmount tank/inner");
    shop.succeed("zfs unmount tank/outer");
    shop.succeed("zpool export tank");
}
