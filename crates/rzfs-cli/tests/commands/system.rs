//! mount(8) and its options.

use crate::harness::{Outcome, Rzfs, kill_server, outcome};
use crate::workshop::Workshop;
use rzfs_testkit::has_root;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The options of the mount at a directory, as the system shows them.
fn flags(directory: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let at = mounts.lines().find(|line| line.split(' ').nth(1) == directory.to_str()).unwrap();
    assert_eq!(at.split(' ').nth(2), Some("fuse.rzfs"), "{at}");
    at.split(' ').nth(3).unwrap().split(',').map(str::to_owned).collect()
}

#[test]
fn options_hold_for_a_mount_and_are_shown() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M --export -O setuid=off tank A");
    let directory = shop.rzfs.path("mnt");
    let mount = |options: &str| {
        let image = shop.image("A");
        let words = ["mount", "-o", options, &image, directory.to_str().unwrap()];
        shop.rzfs.run(words)
    };
    assert_eq!(mount("noexec,noatime").status, 0);
    let shown = flags(&directory);
    for flag in ["noexec", "noatime", "nosuid", "nodev", "rw"] {
        assert!(shown.iter().any(|one| one == flag), "{flag}: {shown:?}");
    }
    let get = || shop.succeed("zfs get -Ho property,value,source exec,atime,relatime,setuid tank");
    let expected =
        "exec\toff\ttemporary\natime\toff\ttemporary\nrelatime\ton\tdefault\nsetuid\toff\tlocal\n";
    assert_eq!(get(), expected);
    let script = directory.join("script");
    fs::write(&script, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert!(Command::new(&script).status().is_err(), "it cannot be executed");
    // Setting a property also changes the current mount.
    shop.succeed("zfs set atime=on tank");
    assert!(get().contains("atime\ton\tlocal\n"));
    shop.succeed("zpool export tank");
    for unknown in ["sync", "noexec,remount", "key="] {
        let refused = mount(unknown);
        assert_eq!(refused.status, 2, "{unknown}: {refused:?}");
    }
    shop.judge();
}

#[test]
fn an_image_is_trusted_with_set_id_bits_where_that_is_asked_for() {
    if !has_root("nobody else may") {
        return;
    }
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M --export tank A");
    let directory = shop.rzfs.path("mnt");
    let image = shop.image("A");
    shop.rzfs.succeed(["mount", "-o", "suid,dev", &image, directory.to_str().unwrap()]);
    let shown = flags(&directory);
    assert!(!shown.iter().any(|one| one == "nosuid" || one == "nodev"), "{shown:?}");
    shop.succeed("zpool export tank");
}

#[test]
fn options_of_zfs_mount_hold_until_it_is_unmounted() {
    if !has_root("ordinary users have one mount for all") {
        return;
    }
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    shop.succeed("zfs create -o canmount=noauto tank/a");
    let place = shop.root().join("a");
    let get = || shop.succeed("zfs get -Ho value,source readonly tank/a");
    shop.succeed("zfs mount -o ro,noatime tank/a");
    assert_eq!(get(), "on\ttemporary\n");
    fs::write(place.join("file"), "new").unwrap_err();
    shop.succeed("zfs mount -o remount,rw tank/a");
    assert_eq!(get(), "off\tdefault\n");
    fs::write(place.join("file"), "new").unwrap();
    assert!(flags(&place).iter().any(|one| one == "noatime"));
    // A mount that is moved keeps its options.
    shop.succeed("zfs rename tank/a tank/b");
    let place = shop.root().join("b");
    shop.succeed("zfs mount -o remount,ro tank/b");
    fs::write(place.join("file"), "newer").unwrap_err();
    shop.succeed("zfs set quota=10M tank/b");
    assert_eq!(shop.succeed("zfs get -Ho value readonly tank/b"), "on\n");
    shop.succeed("zfs unmount tank/b");
    shop.succeed("zfs mount tank/b");
    assert_eq!(shop.succeed("zfs get -Ho value,source readonly tank/b"), "off\tdefault\n");
    fs::write(place.join("file"), "newest").unwrap();
    // The property is read-only, and the mount is read-write.
    shop.succeed("zfs set readonly=on tank/b");
    shop.succeed("zfs mount -o remount,rw tank/b");
    fs::write(place.join("file"), "all the same").unwrap();
    assert_eq!(shop.succeed("zfs get -Ho value,source readonly tank/b"), "off\ttemporary\n");
    for (line, status) in [
        ("zfs mount -o nosuch tank/b", 2),
        ("zfs mount tank tank/b", 2),
        ("zfs mount -a tank", 2),
        ("zfs mount -a -o remount,ro", 2),
        ("zfs mount -o remount,ro tank/none", 1),
    ] {
        shop.refuse(line, status);
    }
    // A file open for writing keeps the mount writable.
    let held = fs::File::options().append(true).open(place.join("file")).unwrap();
    let refused = shop.refuse("zfs mount -o remount,ro tank/b", 1);
    assert!(refused.starts_with("cannot remount 'tank/b': "), "{refused}");
    // But the file system becomes read-only if its property is.
    fs::write(place.join("file"), "still").unwrap();
    shop.succeed("zfs mount -o remount,rw tank/b");
    let told = shop.run("zfs set readonly=on tank/b");
    assert!(told.status == 1 && told.err.contains("unable to remount"), "{told:?}");
    fs::write(place.join("file"), "not any more").unwrap_err();
    shop.succeed("zfs set readonly=off tank/b");
    drop(held);
    fs::write(place.join("file"), "kept").unwrap();
    // Data written before is on disk.
    shop.succeed("zfs mount -o remount,ro tank/b");
    kill_server(&shop.rzfs, "tank");
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    shop.succeed("zfs mount tank/b");
    assert_eq!(fs::read_to_string(place.join("file")).unwrap(), "kept");
    shop.succeed("zpool export tank");
    shop.judge();
}

/// Runs a script in its own mount namespace, in which mount(8) finds rzfs as its helper.
fn with_helper(rzfs: &Rzfs, names: &[&str], script: &str) -> Outcome {
    let programs = rzfs.path("programs");
    fs::create_dir_all(&programs).unwrap();
    for name in names {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_rzfs"), programs.join(name)).unwrap();
    }
    let alone = "mount --make-rprivate /\numount -a -c -i -l -t fuse.rzfs || true";
    let helpers = "mount --bind \"$PROGRAMS\" /sbin";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-ec"]).arg(format!("{alone}\n{helpers}\n{script}"));
    command.env("RZFS", env!("CARGO_BIN_EXE_rzfs")).env("PROGRAMS", &programs);
    command.env("MNT", rzfs.path("mnt")).env("IMAGE", rzfs.path("images").join("A"));
    fs::create_dir_all(rzfs.path("mnt")).unwrap();
    outcome(&mut rzfs.prepared(command))
}

#[test]
fn mount_8_mounts_what_fstab_names_and_remounts_it() {
    if !has_root("only root has mounts of its own") {
        return;
    }
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M --export tank A");
    let script = r#"
        echo "$IMAGE $MNT rzfs defaults,nofail,noexec,x-systemd.automount 0 0" > "$PROGRAMS/fstab"
        mount -T "$PROGRAMS/fstab" "$MNT"
        grep " $MNT fuse.rzfs rw,nosuid,nodev,noexec," /proc/self/mounts | grep -c allow_other
        echo one > "$MNT/file"
        mount -o remount,ro "$MNT"
        ! echo two > "$MNT/file"
        $RZFS zfs get -Ho value,source readonly tank
        mount -o remount,rw,exec "$MNT"
        echo two > "$MNT/file"
        cat "$MNT/file"
        $RZFS zfs get -Ho value,source readonly,exec,setuid,atime tank
        mount -o remount,nosuch "$MNT" || echo $?
        umount "$MNT"
        cd /
        mount -t rzfs -o ro "$IMAGE" "$MNT"
        cat "$MNT/file"
        ! mount -o remount,rw "$MNT" 2> "$PROGRAMS/told"
        grep -c "cannot remount 'tank': pool is read-only" "$PROGRAMS/told"
        umount "$MNT"
        mount -t rzfs -o nosuch,nodiratime "$IMAGE" "$MNT" || echo $?
        mount -t rzfs -o ro "$IMAGE.none" "$MNT" || echo $?
        cd "${IMAGE%/*}"
        mount -t rzfs "$IMAGE.absent" "$MNT" || echo $?
    "#;
    let done = with_helper(&shop.rzfs, &["mount.rzfs", "mount.fuse.rzfs"], script);
    let expected = "1\non\ttemporary\ntwo\noff\tdefault\non\tdefault\non\tdefault\non\tdefault\n1\ntwo\n1\n1\n32\n32\n";
    assert_eq!((done.status, done.out.as_str()), (0, expected), "{done:?}");
    assert!(done.err.contains("A.absent: No such file or directory"), "{done:?}");
    shop.judge();
}

#[test]
fn mount_8_mounts_file_systems_whose_mount_point_is_legacy() {
    if !has_root("only root has mounts of its own") {
        return;
    }
    let shop = Workshop::new();
    let script = r#"
        mkdir "$PROGRAMS/root" "$MNT/a" "$MNT/b"
        $RZFS zpool create --size 96M -R "$PROGRAMS/root" tank "$IMAGE"
        $RZFS zfs create -o mountpoint=legacy tank/a
        $RZFS zfs create tank/b
        $RZFS zfs mount tank/a || echo $?
        mount -t rzfs -o noatime tank/a "$MNT/a"
        echo one > "$MNT/a/file"
        $RZFS zfs mount | grep -c "^tank/a *$MNT/a$"
        mount -t rzfs tank/a "$MNT/b" || echo $?
        mount -t rzfs tank/b "$MNT/b" || echo $?
        mount -t rzfs none/b "$MNT/b" || echo $?
        # What lies in the working directory is not meant.
        mkdir -p "$PROGRAMS/evil/tank" "$PROGRAMS/evil/none"
        truncate -s 96M "$PROGRAMS/evil/tank/b" "$PROGRAMS/evil/none/b"
        cd "$PROGRAMS/evil"
        mount -t rzfs tank/b "$MNT/b" || echo $?
        mount -t rzfs none/b "$MNT/b" || echo $?
        cd /
        # It stays where it was, under its new name, and as it was.
        $RZFS zfs rename tank/a tank/c
        grep "^tank/c $MNT/a fuse.rzfs rw,noatime" /proc/self/mounts | wc -l
        cat "$MNT/a/file"
        $RZFS zfs unmount tank/c || echo $?
        umount "$MNT/a"
        unshare -m mount -t rzfs tank/c "$MNT/b" || echo $?
        $RZFS zfs get -Ho value mounted tank/c
        mount -t rzfs tank/c "$MNT/b"
        cat "$MNT/b/file"
        $RZFS zfs set mountpoint=/own tank/c
        cat "$PROGRAMS/root/own/file"
        ls "$MNT/b" | wc -l
        $RZFS zpool export tank
    "#;
    let done = with_helper(&shop.rzfs, &["mount.rzfs", "mount.fuse.rzfs"], script);
    let expected = "1\n1\n32\n32\n32\n32\n32\n1\none\n1\n32\nno\none\none\n0\n";
    assert_eq!((done.status, done.out.as_str()), (0, expected), "{done:?}");
    for told in [
        "cannot mount 'tank/a': legacy mountpoint\nuse mount(8) to mount this filesystem\n",
        "cannot mount 'tank/a': filesystem already mounted\n",
        "cannot unmount 'tank/c': legacy mountpoint\nuse umount(8) to unmount this filesystem\n",
        "filesystem 'tank/b' cannot be mounted using 'mount'",
        "the pool 'none' is not imported",
        "cannot mount 'tank/c': the process that has the pool is in another mount namespace",
    ] {
        assert!(done.err.contains(told), "{told}: {done:?}");
    }
    shop.judge();
}

/// If our helper is not installed, mount.fuse(8) calls the program itself.
#[test]
fn a_call_by_mount_fuse_is_understood() {
    if !has_root("ordinary users cannot remount") {
        return;
    }
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    let root = shop.root();
    let options = "rw,relatime,user_id=0,group_id=0,default_permissions,allow_other,remount,ro";
    shop.rzfs.succeed(["tank", root.to_str().unwrap(), "-o", options]);
    assert_eq!(shop.succeed("zfs get -Ho value,source readonly tank"), "on\ttemporary\n");
    assert!(flags(&root).iter().any(|one| one == "ro"));
    shop.succeed("zpool export tank");
}

#[test]
fn a_pool_without_a_mount_point_says_why_nothing_is_mounted() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M --export -O mountpoint=none tank A");
    let told = shop.refuse("mount A MNT", 1);
    let reason = "cannot mount 'tank': no file system to mount ('tank' has mountpoint=none); \
                  'rzfs mount -a ... DIRECTORY' mounts all of its file systems\n";
    assert_eq!(told, reason);
}
