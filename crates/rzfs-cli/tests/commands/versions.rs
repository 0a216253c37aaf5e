//! `zfs upgrade`: file systems of older versions and their files.

use crate::workshop::Workshop;
use rzfs_testkit::has_root;
use std::fs::{self, Permissions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

/// The pool made by `samples/make-old-files`, as `tank`: `tank/three` and `tank/four` have the
/// versions in their names, `tank/raised` was upgraded from 4 to 5 by OpenZFS.
fn shop() -> Workshop {
    let shop = Workshop::new();
    rzfs_testkit::unpack_sample("old-files", shop.image("A").as_ref()).unwrap();
    shop.succeed("zpool import -f -N -d IMAGES -R ROOT old tank");
    shop
}

#[test]
fn file_systems_of_old_versions_are_listed() {
    let shop = shop();
    let listed = shop.succeed("zfs upgrade");
    let (head, rows) = listed.split_once("VER  FILESYSTEM\n---  ------------\n").unwrap();
    let start = "This system is currently running ZFS filesystem version 5.\n\n\
                 The following filesystems are out of date";
    assert!(head.starts_with(start), "{head}");
    assert_eq!(rows, " 4   tank/four\n 3   tank/three\n");
    shop.succeed("zpool export tank");
    // Also for a pool that is not imported.
    assert_eq!(shop.succeed("zfs upgrade -d A"), listed);
    let new = Workshop::new();
    new.succeed("zpool create --size 96M -m none tank A");
    assert_eq!(
        new.succeed("zfs upgrade"),
        "This system is currently running ZFS filesystem version 5.\n\n\
         All filesystems are formatted with the current version.\n"
    );
    new.succeed("zpool export tank");
}

#[test]
fn versions_are_told() {
    let told = Workshop::new().succeed("zfs upgrade -v");
    let start = "The following filesystem versions are supported:\n\n\
                 VER  DESCRIPTION\n\
                 ---  --------------------------------------------------------\n \
                 1   Initial ZFS filesystem version\n";
    assert!(told.starts_with(start), "{told}");
    assert!(told.contains("\n 5   System attributes\n"), "{told}");
}

#[test]
fn versions_are_raised() {
    let shop = shop();
    let version = || shop.succeed("zfs get -Hpo value version tank/four tank/four@then");
    assert_eq!(version(), "4\n4\n");
    let refused = shop.refuse("zfs mount tank/four", 1);
    assert!(refused.ends_with("(-o ro), or upgraded (zfs upgrade)\n"), "{refused}");
    assert_eq!(shop.succeed("zfs upgrade tank/four"), "1 filesystems upgraded\n");
    assert_eq!(version(), "5\n4\n");
    shop.succeed("zfs mount tank/four");
    let again = "0 filesystems upgraded\n1 filesystems already at this version\n";
    assert_eq!(shop.succeed("zfs upgrade -V 5 tank/four"), again);
    let all = shop.run("zfs upgrade -a");
    assert_eq!(all.out, "0 filesystems upgraded\n3 filesystems already at this version\n");
    let problem =
        "tank/three: can not be upgraded; version 3 cannot be raised by this software yet\n";
    assert_eq!((all.status, all.err.as_str()), (1, problem));
    let history = shop.succeed("zpool history tank");
    assert_eq!(history.matches("zfs upgrade tank/four\n").count(), 1, "{history}");
    shop.succeed("zpool export tank");
    shop.judge();
    shop.succeed("zpool import -N -d IMAGES -R ROOT tank");
    assert_eq!(version(), "5\n4\n");
    shop.succeed("zpool export tank");
}

#[test]
fn what_is_not_upgraded_is_told() {
    let shop = shop();
    let none = "0 filesystems upgraded\n";
    for (line, told) in [
        ("zfs upgrade nosuch", "cannot open 'nosuch': dataset does not exist\n"),
        ("zfs upgrade tank/nosuch", "cannot open 'tank/nosuch': dataset does not exist\n"),
        ("zfs upgrade -V 3 tank", "tank: can not be downgraded; it is already at version 5\n"),
        (
            "zfs upgrade tank@then",
            "cannot open 'tank@then': snapshot delimiter '@' is not expected here\n",
        ),
    ] {
        let outcome = shop.run(line);
        assert_eq!((outcome.status, outcome.out.as_str()), (1, none), "{line}: {outcome:?}");
        assert_eq!(outcome.err, told, "{line}");
    }
    let mixed = shop.run("zfs upgrade -r nosuch tank/raised");
    let already = "0 filesystems upgraded\n1 filesystems already at this version\n";
    assert_eq!((mixed.status, mixed.out.as_str()), (1, already));
    let usage = "usage:\n\tupgrade [-v]\n\tupgrade [-r] [-V version] <-a | filesystem ...>\n";
    for (line, told) in [
        ("zfs upgrade -V 9 tank", "invalid version 9\n"),
        ("zfs upgrade -V x tank", "invalid version x\n"),
        ("zfs upgrade -v tank", ""),
        ("zfs upgrade -a tank", ""),
        ("zfs upgrade -r", ""),
        ("zfs upgrade -V 5", ""),
    ] {
        assert_eq!(shop.refuse(line, 2), format!("{told}{usage}"), "{line}");
    }
    shop.succeed("zpool export tank");
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

/// The contents of the long file.
fn numbers() -> String {
    (1..=100_000).map(|number| format!("{number}\n")).collect()
}

/// Checks the initial files.
fn look(root: &Path) {
    assert_eq!(read(&root.join("file")), "a file\n");
    assert_eq!(read(&root.join("directory/second")), "a file\n");
    let file = fs::metadata(root.join("file")).unwrap();
    assert_eq!((file.mode(), file.nlink()), (0o104_751, 2));
    assert_eq!(read(&root.join("long")), numbers());
    let long = fs::metadata(root.join("long")).unwrap();
    assert_eq!((long.uid(), long.gid()), (1000, 100));
    assert_eq!(fs::read_link(root.join("short")).unwrap(), Path::new("file"));
    assert_eq!(fs::read_link(root.join("distant")).unwrap().as_os_str().len(), 200);
    assert!(fs::symlink_metadata(root.join("pipe")).unwrap().file_type().is_fifo());
    let device = fs::symlink_metadata(root.join("device")).unwrap();
    assert_eq!(device.rdev(), 5 << 8 | 1);
    assert_eq!(fs::read_dir(root.join("many")).unwrap().count(), 300);
}

/// Changes files of each type in many ways.
fn change(root: &Path) {
    let at = |name: &str| root.join(name);
    fs::write(at("new"), "new").unwrap();
    fs::create_dir(at("directory/new")).unwrap();
    fs::hard_link(at("long"), at("directory/long")).unwrap();
    chown(at("long"), Some(7), None).unwrap();
    fs::set_permissions(at("directory"), Permissions::from_mode(0o711)).unwrap();
    fs::write(at("directory/below/file"), "changed").unwrap();
    fs::rename(at("directory/below/file"), at("many/moved")).unwrap();
    for link in ["short", "distant"] {
        fs::rename(at(link), at(&format!("many/{link}"))).unwrap();
        std::os::unix::fs::lchown(at(&format!("many/{link}")), Some(8), None).unwrap();
    }
    symlink("new", at("short")).unwrap();
    chown(at("pipe"), Some(9), None).unwrap();
    chown(at("device"), Some(9), None).unwrap();
    for number in 1..=100 {
        let name =
            format!("many/a file with a long name that takes much room in its directory {number}");
        fs::remove_file(at(&name)).unwrap();
    }
    fs::remove_file(at("file")).unwrap();
}

/// Checks the changed files, and removes some of them.
fn look_again(root: &Path) {
    let at = |name: &str| root.join(name);
    let owner = |name: &str| fs::symlink_metadata(at(name)).unwrap().uid();
    assert_eq!(read(&at("new")), "new");
    assert_eq!(read(&at("directory/long")), numbers());
    assert_eq!(
        ["long", "many/short", "many/distant", "pipe", "device"].map(owner),
        [7, 8, 8, 9, 9]
    );
    assert_eq!(fs::metadata(at("long")).unwrap().nlink(), 2);
    assert_eq!(fs::metadata(at("directory")).unwrap().mode(), 0o40_711);
    assert_eq!(read(&at("many/moved")), "changed");
    assert_eq!(fs::read_link(at("many/short")).unwrap(), Path::new("file"));
    assert_eq!(fs::read_link(at("many/distant")).unwrap().as_os_str().len(), 200);
    assert_eq!(fs::read_link(at("short")).unwrap(), Path::new("new"));
    assert_eq!(fs::symlink_metadata(at("device")).unwrap().rdev(), 5 << 8 | 1);
    assert_eq!(fs::read_dir(at("many")).unwrap().count(), 203);
    let second = fs::metadata(at("directory/second")).unwrap();
    assert_eq!((second.mode(), second.nlink()), (0o104_751, 1));
    fs::remove_dir_all(at("many")).unwrap();
    fs::remove_file(at("device")).unwrap();
}

/// As in a file system created with version 5, whether OpenZFS or rzfs has upgraded it.
#[test]
fn files_of_version_4_are_changed_where_the_version_was_raised() {
    if !has_root("files have several owners") {
        return;
    }
    let shop = shop();
    assert_eq!(shop.succeed("zfs upgrade tank/four"), "1 filesystems upgraded\n");
    shop.succeed("zfs mount tank/four");
    shop.succeed("zfs mount tank/raised");
    let roots = ["four", "raised"].map(|name| shop.rzfs.path("root/old").join(name));
    for root in &roots {
        look(root);
        change(root);
    }
    shop.succeed("zpool sync tank");
    // Attributes with objects of their own, such as access control lists, belong to the same user.
    let counted = "0\t211\n7\t3\n8\t2\n9\t2\n";
    for name in ["four", "raised"] {
        let accounts = shop.succeed(&format!("zfs userspace -Hno name,objused tank/{name}"));
        assert_eq!(accounts, counted, "{name}");
    }
    shop.succeed("zpool export tank");
    shop.judge();
    shop.succeed("zpool import -d IMAGES -R ROOT -o readonly=on tank");
    for root in &roots {
        look(&root.join(".zfs/snapshot/then"));
    }
    shop.succeed("zpool export tank");
    shop.succeed("zpool import -N -d IMAGES -R ROOT tank");
    shop.succeed("zfs mount tank/four");
    shop.succeed("zfs mount tank/raised");
    for root in &roots {
        look_again(root);
    }
    shop.succeed("zpool export tank");
    shop.judge();
}
