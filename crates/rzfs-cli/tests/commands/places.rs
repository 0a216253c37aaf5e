//! Where mounts go: the contents of a pool cannot redirect them.

use crate::harness::{Outcome, is_mounted, outcome, wait_until};
use crate::workshop::Workshop;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getuid, kill_process};
use rzfs_testkit::has_root;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A pool with the children `tank/sub` and `tank/sub/deep`; in place of their directory, the root
/// file system has a link to a directory outside.
fn with_a_link(shop: &Workshop) -> PathBuf {
    let outside = shop.rzfs.path("outside");
    fs::create_dir_all(outside.join("deep")).unwrap();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    shop.succeed("zfs create -p tank/sub/deep");
    shop.succeed("zfs unmount tank/sub");
    symlink(&outside, shop.root().join("sub")).unwrap();
    shop.succeed("zpool export tank");
    outside
}

fn assert_refused(outcome: &Outcome, name: &str) {
    assert_eq!(outcome.status, 1, "{outcome:?}");
    let lines: Vec<_> = outcome.err.lines().collect();
    let line = lines.iter().find(|line| line.starts_with(&format!("cannot mount '{name}'")));
    let says = "sub: symbolic links are not followed here";
    assert!(line.is_some_and(|line| line.ends_with(says)), "{name}: {outcome:?}");
}

/// The mounts at or below a directory.
fn mounts_below(directory: &Path) -> Vec<String> {
    let directory = directory.to_str().unwrap().to_owned();
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let places = table.lines().filter_map(|line| line.split(' ').nth(1));
    let mut below: Vec<_> =
        places.filter(|place| place.starts_with(&directory)).map(str::to_owned).collect();
    below.sort();
    below
}

#[test]
fn a_link_in_a_file_system_leads_no_mount_astray() {
    if !has_root("only root mounts on mounts") {
        return;
    }
    let shop = Workshop::new();
    let outside = with_a_link(&shop);
    let (image, mounted) = (shop.image("A"), shop.rzfs.path("mnt"));
    for options in ["ro", "rw"] {
        let words = ["mount", "-o", options, &image, mounted.to_str().unwrap()];
        let partly = shop.rzfs.run(words);
        assert_refused(&partly, "tank/sub");
        assert_refused(&partly, "tank/sub/deep");
        assert_eq!(mounts_below(&outside), Vec::<String>::new());
        // The other file systems are mounted.
        assert_eq!(mounts_below(&mounted).len(), 1, "{options}");
        shop.rzfs.succeed(["umount", "tank"]);
    }
    let imported = shop.run("zpool import -d IMAGES -R ROOT tank");
    assert_refused(&imported, "tank/sub");
    assert_refused(&shop.run("zfs mount tank/sub"), "tank/sub");
    assert_eq!(mounts_below(&outside), Vec::<String>::new());
    // Once the link is removed, the directory is made.
    fs::remove_file(shop.root().join("sub")).unwrap();
    shop.succeed("zfs mount -a");
    assert!(is_mounted(&shop.root().join("sub/deep")));
    shop.succeed("zpool export tank");
    shop.judge();
}

#[test]
fn mount_points_stay_below_the_alternate_root() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    shop.succeed("zfs create -o mountpoint=/../outside tank/x");
    let inside = shop.rzfs.path("root").join("outside");
    assert!(is_mounted(&inside) || !getuid().is_root());
    assert!(!shop.rzfs.path("outside").exists());
    shop.succeed("zpool export tank");
    // Links within the path would also lead outside.
    let outside = shop.rzfs.path("elsewhere");
    fs::create_dir(&outside).unwrap();
    let _ = fs::remove_dir(&inside);
    symlink(&outside, &inside).unwrap();
    let imported = shop.run("zpool import -d IMAGES -R ROOT tank");
    assert_eq!(imported.status, 1, "{imported:?}");
    assert_eq!(mounts_below(&outside), Vec::<String>::new());
    shop.succeed("zpool export tank");
}

#[test]
fn an_unmount_ends_its_own_mount_wherever_that_is() {
    if !has_root("only root moves mounts") {
        return;
    }
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    shop.succeed("zfs create -o mountpoint=/tank/a/b tank/moved");
    shop.succeed("zfs create -o mountpoint=/other/b tank/other");
    let (root, other) = (shop.root(), shop.rzfs.path("root").join("other"));
    fs::rename(root.join("a"), root.join("a2")).unwrap();
    symlink(&other, root.join("a")).unwrap();
    assert!(is_mounted(&root.join("a2/b")) && is_mounted(&other.join("b")));
    shop.succeed("zfs unmount tank/moved");
    assert!(!is_mounted(&root.join("a2/b")) && is_mounted(&other.join("b")));
    shop.succeed("zpool export tank");
    assert_eq!(mounts_below(&shop.rzfs.path("root")), Vec::<String>::new());
}

#[test]
fn an_import_takes_the_mounts_away_that_a_killed_process_has_left() {
    let shop = Workshop::new();
    let below = shop.rzfs.path("root");
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    shop.succeed("zfs create -p tank/a/b");
    shop.succeed("zfs create -o mountpoint=/away tank/c");
    let before = mounts_below(&below);
    let _in_use = fs::File::open(shop.root().join("a")).unwrap();
    for _ in 0..2 {
        let process = i32::try_from(shop.rzfs.daemon("tank")).unwrap();
        kill_process(Pid::from_raw(process).unwrap(), Signal::KILL).unwrap();
        // Another test's import of a `tank` may have removed the mounts already.
        wait_until("the process has gone", || {
            fs::read_dir(shop.root()).is_err_and(|error| error.raw_os_error() == Some(107))
                || !is_mounted(&shop.root())
        });
        shop.succeed("zpool import -d IMAGES -R ROOT tank");
        assert_eq!(mounts_below(&below), before);
        fs::write(shop.root().join("a/b/file"), "alive").unwrap();
    }
    shop.succeed("zpool export tank");
    assert_eq!(mounts_below(&below), Vec::<String>::new());
    shop.judge();
}

/// With the outer mount's attributes in the kernel's cache, the path to the inner one ends in it.
#[test]
fn dead_mounts_are_taken_away_though_the_kernel_remembers_their_attributes() {
    let shop = Workshop::new();
    let below = shop.rzfs.path("root");
    // With this name, no other test's import can remove them.
    shop.succeed("zpool create --size 96M -R ROOT killed A");
    shop.succeed("zfs create killed/s");
    let before = mounts_below(&below);
    let inner = below.join("killed/s");
    for _ in 0..2 {
        fs::metadata(&inner).unwrap();
        let process = i32::try_from(shop.rzfs.daemon("killed")).unwrap();
        kill_process(Pid::from_raw(process).unwrap(), Signal::KILL).unwrap();
        wait_until("the process has gone", || {
            rustix::fs::statfs(below.join("killed")).is_err_and(|error| error == Errno::NOTCONN)
        });
        shop.succeed("zpool import -d IMAGES -R ROOT killed");
        assert_eq!(mounts_below(&below), before);
        fs::write(inner.join("file"), "alive").unwrap();
    }
    shop.succeed("zpool export killed");
    assert_eq!(mounts_below(&below), Vec::<String>::new());
}

/// The flags of the mount at a directory.
fn flags(directory: &Path) -> String {
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let directory = directory.to_str().unwrap();
    let line = table.lines().find(|line| line.split(' ').nth(1) == Some(directory)).unwrap();
    line.split(' ').nth(3).unwrap().to_owned()
}

#[test]
fn the_flags_of_a_mount_tell_what_its_properties_say() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    let root = shop.root();
    let has = |flag: &str| flags(&root).split(',').any(|one| one == flag);
    assert!(!has("noatime"));
    if getuid().is_root() {
        shop.succeed("zfs set atime=off tank");
        assert!(has("noatime") && has("rw"));
        shop.succeed("zfs set readonly=on tank");
        assert!(has("noatime") && has("ro"));
        shop.succeed("zfs set readonly=off tank");
        assert!(has("noatime") && has("rw"));
        shop.succeed("zfs inherit atime tank");
        assert!(!has("noatime"));
    }
    shop.succeed("zfs set atime=off tank");
    shop.succeed("zpool export tank");
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    assert!(has("noatime") && has("rw"));
    shop.succeed("zpool export tank");
}

#[test]
fn what_is_in_a_directory_is_respected_with_overlay_off() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    shop.succeed("zfs create -o overlay=off tank/sub");
    shop.succeed("zfs create tank/other");
    let place = shop.root().join("sub");
    shop.succeed("zfs unmount tank/sub");
    fs::create_dir_all(&place).unwrap();
    fs::write(place.join("file"), "in the way").unwrap();
    let said = format!("cannot mount '{}': directory is not empty\n", place.display());
    assert_eq!(shop.refuse("zfs mount tank/sub", 1), said);
    shop.succeed("zpool export tank");
    // The others are still mounted.
    assert_eq!(shop.refuse("zpool import -d IMAGES -R ROOT tank", 1), said);
    assert!(is_mounted(&shop.root()) && !is_mounted(&place));
    shop.succeed("zfs set overlay=on tank/sub");
    shop.succeed("zfs mount tank/sub");
    assert!(!place.join("file").exists());
    // A mount that is moved away for a moment is restored.
    shop.succeed("zfs set overlay=off tank/sub");
    shop.succeed("zfs set readonly=on tank");
    assert!(shop.run("zfs get -Ho value mounted tank/sub").out.starts_with("yes"));
    shop.succeed("zfs unmount tank/sub");
    fs::remove_file(place.join("file")).unwrap_err();
    shop.succeed("zfs set readonly=off tank");
    fs::remove_file(place.join("file")).unwrap();
    shop.succeed("zfs mount tank/sub");
    shop.succeed("zpool export tank");
}

/// Runs a script in its own mount namespace, which can hide `/proc`; not as an ordinary user.
fn apart(shop: &Workshop, script: &str) -> Option<Outcome> {
    if !has_root("only root has mounts of its own") {
        return None;
    }
    let mut command = Command::new("unshare");
    // The copied mounts of other tests could not be exported as long as they are here.
    let alone = "mount --make-rprivate /\numount -a -c -i -l -t fuse.rzfs || true";
    command.args(["-m", "sh", "-ec"]).arg(format!("{alone}\n{script}"));
    command.env("RZFS", env!("CARGO_BIN_EXE_rzfs")).env("EMPTY", shop.rzfs.path("empty"));
    command.env("IMAGE", shop.image("A")).env("ROOT", shop.rzfs.path("root"));
    fs::create_dir_all(shop.rzfs.path("empty")).unwrap();
    Some(outcome(&mut shop.rzfs.prepared(command)))
}

#[test]
fn mounts_end_while_something_covers_the_file_system_of_processes() {
    let shop = Workshop::new();
    let script = r#"
        $RZFS zpool create --size 96M -R "$ROOT" tank "$IMAGE"
        $RZFS zfs create tank/a
        $RZFS zfs create tank/b
        mount --bind "$EMPTY" /proc
        $RZFS zfs unmount tank/a
        $RZFS zfs set atime=off tank/b
        $RZFS zfs set mountpoint=/tank/c tank/b
        umount /proc
        grep -o "$ROOT/tank[^ ]*" /proc/self/mounts
        grep "$ROOT/tank/c " /proc/self/mounts | grep -c noatime
        mount --bind "$EMPTY" /proc
        $RZFS zpool export tank
        umount /proc
        ! grep "$ROOT/tank" /proc/self/mounts
    "#;
    let Some(outcome) = apart(&shop, script) else { return };
    let root = shop.root();
    let expected = format!("{0}\n{0}/c\n1\n", root.display());
    let said = (outcome.status, outcome.out.as_str(), outcome.err.as_str());
    assert_eq!(said, (0, expected.as_str(), ""));
    shop.judge();
}

#[test]
fn nothing_is_mounted_that_could_not_be_unmounted() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M --export tank A");
    let script = r#"
        mkdir "$ROOT"
        mount --bind "$EMPTY" /proc
        set +e
        MALLOC_CONF=narenas:1 timeout 60 $RZFS mount --foreground "$IMAGE" "$ROOT"
        echo $?
        umount /proc
        ! grep "$ROOT" /proc/self/mounts
    "#;
    let Some(outcome) = apart(&shop, script) else { return };
    assert_eq!((outcome.status, outcome.out.as_str()), (0, "1\n"), "{outcome:?}");
    assert!(outcome.err.contains("/proc/self: No such file or directory"), "{outcome:?}");
}

#[test]
fn the_reason_of_a_failed_mount_is_told_without_its_number() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M --export tank A");
    fs::write(shop.rzfs.path("root"), "a file").unwrap();
    let told = shop.run("zpool import -d IMAGES -R ROOT tank");
    assert!(told.err.starts_with("cannot mount 'tank': "), "{told:?}");
    assert!(!told.err.contains("os error"), "{told:?}");
    shop.succeed("zpool export tank");
}

#[test]
fn the_process_of_a_pool_is_kept_from_what_it_never_does() {
    if !has_root("others need a helper to mount") {
        return;
    }
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    let status = format!("/proc/{}/status", shop.rzfs.daemon("tank"));
    let status = fs::read_to_string(status).unwrap();
    assert!(status.contains("Seccomp:\t2\n") && status.contains("NoNewPrivs:\t1\n"), "{status}");
    // To change owners, send signals, load modules, trade identities, configure networks, ...
    const NEEDLESS: u64 = !(1 << 1 | 1 << 2 | 1 << 3 | 1 << 14 | 1 << 19 | 1 << 21 | 1 << 24);
    let threads = format!("/proc/{}/task", shop.rzfs.daemon("tank"));
    for thread in fs::read_dir(threads).unwrap().flatten() {
        let Ok(status) = fs::read_to_string(thread.path().join("status")) else { continue };
        for kind in ["CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb"] {
            let line = status.lines().find_map(|line| line.strip_prefix(kind)?.strip_prefix(":\t"));
            let capabilities = u64::from_str_radix(line.unwrap(), 16).unwrap();
            assert_eq!(capabilities & NEEDLESS, 0, "{kind}: {status}");
        }
    }
}

#[test]
fn mounts_for_which_descriptors_are_lacking_are_not_there() {
    if !has_root("only root mounts without a helper") {
        return;
    }
    let shop = Workshop::new();
    shop.succeed("zpool create --size 64M -R ROOT tank A");
    shop.succeed("zfs create tank/a");
    shop.succeed("zpool export tank");
    let (root, images) = (shop.rzfs.path("root"), shop.rzfs.path("images"));
    for most in 20..32 {
        let script = format!(
            "ulimit -n {most}; exec timeout 30 \"$0\" zpool import -R \"$1\" -d \"$2\" tank"
        );
        let mut command = shop.rzfs.prepared(Command::new("sh"));
        command.args(["-c", &script, env!("CARGO_BIN_EXE_rzfs")]).args([&root, &images]);
        let imported = outcome(&mut command);
        assert!(imported.status <= 1, "{most}: {imported:?}");
        // No mount is left without a process, which `ls` would wait for.
        let mut listing = Command::new("timeout");
        listing.args(["30", "ls", "-R"]).arg(&root);
        assert_eq!(outcome(&mut listing).status, 0, "{most}: {imported:?}");
        let exported = shop.run("zpool export tank");
        let is_there = !exported.err.ends_with("no such pool\n");
        assert_eq!(exported.status, i32::from(!is_there), "{most}: {exported:?}");
        assert!(is_there || imported.status == 1, "{most}: {imported:?}");
    }
    shop.judge();
}
