//! Properties that running mounts follow.

use crate::workshop::Workshop;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};

#[test]
fn a_mount_in_use_follows_readonly() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    let root = shop.root();
    fs::write(root.join("file"), "one").unwrap();
    // A directory in use keeps the mount from being unmounted.
    let in_use = File::open(&root).unwrap();
    shop.succeed("zfs set readonly=on tank");
    for refused in [
        fs::write(root.join("file"), "two"),
        fs::create_dir(root.join("dir")),
        fs::remove_file(root.join("file")),
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    }
    assert_eq!(fs::read_to_string(root.join("file")).unwrap(), "one");
    shop.succeed("zfs set readonly=off tank");
    fs::write(root.join("file"), "three").unwrap();
    drop(in_use);
    shop.succeed("zpool export tank");
    shop.judge();
}

#[test]
fn files_that_are_open_for_writing_become_read_only() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    let mut file = File::create(shop.root().join("file")).unwrap();
    file.write_all(b"one").unwrap();
    // The kernel does not let a mount with such files be read-only, which is told.
    shop.run("zfs set readonly=on tank");
    assert_eq!(file.write_all(b"two").unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    drop(file);
    shop.succeed("zfs inherit readonly tank");
    fs::write(shop.root().join("file"), "three").unwrap();
}
