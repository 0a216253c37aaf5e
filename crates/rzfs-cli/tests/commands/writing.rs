//! Pools created, mounted, changed and exported by commands, and checked with OpenZFS's zdb.

use crate::harness::{is_mounted, mounts_on_mounts};
use crate::workshop::Workshop;
use std::fs;

#[test]
fn a_pool_is_made_filled_changed_and_imported_again() {
    if !mounts_on_mounts() {
        eprintln!("SKIPPED: this user cannot mount on a mount");
        return;
    }
    let shop = Workshop::new();
    let create = "zpool create --size 128M -R ROOT -o ashift=12 -O compression=zstd tank";
    shop.succeed(&format!("{create} mirror A B"));
    let root = shop.root();
    assert!(is_mounted(&root));
    fs::write(root.join("hello"), "world\n").unwrap();
    shop.succeed("zfs create -o recordsize=1M -o org.example:note=mine tank/a");
    shop.succeed("zfs create -p tank/b/c/d");
    assert!(is_mounted(&root.join("a")) && is_mounted(&root.join("b/c/d")));
    fs::write(root.join("a/large"), vec![7; 3 << 20]).unwrap();
    fs::write(root.join("b/c/d/deep"), "down here").unwrap();
    shop.succeed("zfs set atime=off quota=64M tank/a");
    assert_eq!(shop.succeed("zfs get -Hpo value,source quota tank/a"), "67108864\tlocal\n");
    shop.succeed("zfs set checksum=sha512 tank/b");
    let inherited = "tank/b/c/d\tchecksum\tsha512\tinherited from tank/b\n";
    assert_eq!(shop.succeed("zfs get -H checksum tank/b/c/d"), inherited);
    shop.succeed("zfs inherit checksum tank/b");
    assert_eq!(shop.succeed("zfs get -Ho value,source checksum tank/b"), "on\tdefault\n");
    shop.succeed("zfs rename tank/b/c tank/moved");
    assert_eq!(fs::read_to_string(root.join("moved/d/deep")).unwrap(), "down here");
    assert!(!is_mounted(&root.join("b/c/d")));
    shop.succeed("zfs destroy -r tank/moved");
    assert!(!root.join("moved").exists());
    shop.succeed("zpool set comment=ours tank");
    assert_eq!(shop.succeed("zpool get -Ho value comment,readonly tank"), "ours\noff\n");
    shop.succeed("zpool sync");
    let busy = fs::File::open(root.join("a/large")).unwrap();
    assert!(shop.refuse("zpool export tank", 1).contains("busy"));
    drop(busy);
    shop.succeed("zpool export tank");
    assert!(!is_mounted(&root));
    shop.judge();

    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    assert_eq!(fs::read_to_string(root.join("hello")).unwrap(), "world\n");
    assert_eq!(fs::read(root.join("a/large")).unwrap(), vec![7; 3 << 20]);
    let names = shop.succeed("zfs list -Ho name");
    assert_eq!(names, "tank\ntank/a\ntank/b\n");
    let history = shop.succeed("zpool history tank");
    for command in ["zpool create ", "zfs create -p tank/b/c/d", "zfs destroy -r", "zpool export"] {
        assert!(history.contains(command), "{command}: {history}");
    }
    assert_eq!(
        history.matches("zpool export").count(),
        1,
        "what was refused was not done: {history}"
    );
    assert!(shop.succeed("zpool events").contains("sysevent.fs.zfs.pool_import"));
    shop.succeed("zpool export tank");
    shop.judge();
}

#[test]
fn a_mount_is_for_writing_and_its_end_an_export() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 128M --export tank A");
    let mounted = shop.rzfs.path("mnt");
    let words = ["mount", &shop.image("A"), mounted.to_str().unwrap()];
    shop.rzfs.succeed(words);
    fs::create_dir(mounted.join("dir")).unwrap();
    fs::write(mounted.join("dir/file"), "kept").unwrap();
    shop.rzfs.succeed(["umount", "tank"]);
    shop.judge();
    shop.rzfs.mount(&words[1..]);
    assert_eq!(fs::read_to_string(mounted.join("dir/file")).unwrap(), "kept");
    let refused = fs::write(mounted.join("dir/file"), "lost").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    let readonly = shop.run("zfs create tank/x");
    assert_eq!(readonly.err, "cannot create 'tank/x': pool is read-only\n");
}

#[test]
fn shapes_of_all_kinds_are_whole() {
    for shape in [
        "-o ashift=9 tank A B",
        "-d tank raidz A B C",
        "-o compatibility=openzfs-2.1-linux tank raidz2 A B C D",
        "-f tank A log B special C cache D spare E",
        "-o version=28 tank A",
    ] {
        let shop = Workshop::new();
        shop.succeed(&format!("zpool create --size 96M --export {shape}"));
        shop.judge();
        let listed = shop.succeed("zpool import -d IMAGES");
        assert!(listed.contains("state: ONLINE"), "{shape}: {listed}");
    }
}

#[test]
fn destroyed_pools_can_be_brought_back() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -m none tank A");
    shop.succeed("zpool destroy tank");
    assert_eq!(
        shop.refuse("zpool import -d IMAGES tank", 1),
        "cannot import 'tank': no such pool available\n"
    );
    let listed = shop.succeed("zpool import -d IMAGES -D");
    let action = "action: The pool was destroyed: 'zpool import -Df' brings it back.\n";
    assert!(listed.contains(action), "{listed}");
    shop.succeed("zpool import -d IMAGES -D tank");
    shop.succeed("zpool reguid tank");
    shop.succeed("zpool export tank");
    shop.judge();
    let kept =
        "use '-f' to override the following error:\nA is a member of exported pool \"tank\"\n";
    assert_eq!(shop.refuse("zpool labelclear A", 1), kept);
    shop.succeed("zpool labelclear -f A");
    assert_eq!(shop.refuse("zpool import -d IMAGES", 0), "no pools available to import\n");
}

#[test]
fn mistakes_have_the_texts_of_openzfs() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -m none tank A");
    for (line, status, text) in [
        (
            "zpool create other A",
            1,
            "invalid vdev specification\nthe following errors must be manually repaired:\nA is part of active pool 'tank'\n",
        ),
        ("zpool create --size 96M tank B", 1, "cannot create 'tank': pool already exists\n"),
        (
            "zpool create --size 96M mirror1 B",
            1,
            "cannot create 'mirror1': name is reserved\npool name may have been omitted\n",
        ),
        (
            "zpool create --size 96M -o ashift=99 other B",
            1,
            "cannot create 'other': property 'ashift' number 99 is invalid, only values between 9 and 16 are allowed.\n",
        ),
        (
            "zpool create --size 96M other mirror B",
            1,
            "invalid vdev specification: mirror requires at least 2 devices\n",
        ),
        (
            "zpool create --size 32M other B",
            1,
            "cannot create 'other': one or more devices is less than the minimum size (64M)\n",
        ),
        ("zpool export nope", 1, "cannot open 'nope': no such pool\n"),
        ("zpool set size=1 tank", 1, "cannot set property for 'tank': 'size' is readonly\n"),
        ("zfs create nope/x", 1, "cannot create 'nope/x': no such pool 'nope'\n"),
        ("zfs create tank/x/y", 1, "cannot create 'tank/x/y': parent does not exist\n"),
        ("zfs create tank/b^", 1, "cannot create 'tank/b^': invalid character '^' in name\n"),
        (
            "zfs set atime=maybe tank",
            255,
            "cannot set property for 'tank': 'atime' must be one of 'on | off'\n",
        ),
        ("zfs set used=1 tank", 255, "cannot set property for 'tank': 'used' is readonly\n"),
        (
            "zfs destroy tank",
            1,
            "cannot destroy 'tank': operation does not apply to pools\nuse 'zfs destroy -r tank' to destroy all datasets in the pool\nuse 'zpool destroy tank' to destroy the pool itself\n",
        ),
        ("zfs mount tank", 1, "cannot mount 'tank': no mountpoint set\n"),
        ("zfs rename tank/x tank/y", 1, "cannot open 'tank/x': dataset does not exist\n"),
    ] {
        assert_eq!(shop.refuse(line, status), text, "{line}");
    }
    assert_eq!(shop.run("zfs create").status, 2);
    assert_eq!(shop.run("zpool create tank").status, 2);
}

#[test]
fn a_dry_run_shows_the_layout() {
    let shop = Workshop::new();
    let out = shop.succeed("zpool create -n --size 96M tank raidz A B C log D cache E spare F");
    let images = format!("{}/", shop.rzfs.path("images").display());
    let expected = "would create 'tank' with the following layout:\n\n\ttank\n\t  raidz1\n\t    A\n\
                    \t    B\n\t    C\n\tlogs\n\t  D\n\tcache\n\t  E\n\tspares\n\t  F\n";
    assert_eq!(out.replace(&images, ""), expected);
    assert_eq!(fs::read_dir(shop.rzfs.path("images")).unwrap().count(), 0, "nothing is left");
    fs::write(shop.image("A"), "in the way").unwrap();
    let refused = shop.refuse("zpool create --size 96M -m IMAGES tank B", 1);
    assert!(refused.contains("exists and is not empty\n"), "{refused}");
    assert_eq!(shop.refuse("zpool create -n --size 96M -m IMAGES tank B", 1), refused);
}
