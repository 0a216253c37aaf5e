//! Only one writer of a pool on a machine.

use crate::harness::{Outcome, Rzfs, outcome, wait_until};
use crate::workshop::Workshop;
use rustix::process::{Pid, Signal, getuid, kill_process};
use rzfs_testkit::has_root;
use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;

/// Tries to import the pool `tank` in another session than that of its process.
fn import_elsewhere(shop: &Workshop, prefix: &[&str]) -> Outcome {
    let mut words = prefix.iter().copied().chain([env!("CARGO_BIN_EXE_rzfs")]);
    let mut command = shop.rzfs.prepared(Command::new(words.next().unwrap()));
    let words = words.chain(["zpool", "import", "-f", "-N", "-d"]);
    command.args(words).arg(shop.rzfs.path("images")).arg("tank");
    outcome(command.env("RZFS_RUNTIME_DIR", shop.rzfs.path("elsewhere")))
}

fn assert_refused(shop: &Workshop, refused: &Outcome) {
    assert_eq!((refused.status, refused.out.as_str()), (1, ""), "{refused:?}");
    let process = shop.rzfs.daemon("tank");
    for text in ["cannot import 'tank': pool is busy\n", &format!("in use by process {process} ")] {
        assert!(refused.err.contains(text), "{text}: {refused:?}");
    }
}

#[test]
fn a_pool_has_one_writer_whatever_its_guid_is_and_wherever_the_other_one_looks() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 128M -R ROOT tank A");
    assert_refused(&shop, &import_elsewhere(&shop, &[]));
    shop.succeed("zpool reguid tank");
    assert_refused(&shop, &import_elsewhere(&shop, &[]));
    if getuid().is_root() {
        assert_refused(&shop, &import_elsewhere(&shop, &["unshare", "--net"]));
    }
    // No other pool can be made from the image meanwhile.
    let create = shop.run("zpool create -f other A");
    assert_eq!(create.status, 1, "{create:?}");
    // Readers do not count.
    fs::write(shop.root().join("kept"), "kept").unwrap();
    shop.succeed("zpool sync");
    let reading = shop.rzfs.path("reading");
    let image = shop.image("A");
    let mut mount = shop.rzfs.command();
    mount.env("RZFS_RUNTIME_DIR", shop.rzfs.path("elsewhere"));
    let mounted = outcome(mount.args(["mount", "-f", "-o", "ro", &image]).arg(&reading));
    assert_eq!(mounted.status, 0, "{mounted:?}");
    assert_eq!(fs::read_to_string(reading.join("kept")).unwrap(), "kept");
    let mut umount = shop.rzfs.command();
    umount.env("RZFS_RUNTIME_DIR", shop.rzfs.path("elsewhere"));
    assert_eq!(outcome(umount.args(["umount", "tank"])).status, 0);
    shop.succeed("zpool export tank");
    shop.judge();
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    shop.succeed("zpool export tank");
}

#[test]
fn the_halves_of_a_mirror_are_not_imported_by_two_processes() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 128M --export tank mirror A B");
    shop.succeed("zpool import -d A -R ROOT tank mine");
    let refused = shop.refuse("mount -f B ROOT", 1);
    let process = shop.rzfs.daemon("mine");
    let message = "cannot import 'tank': pool is busy\n";
    assert_eq!(refused, format!("{message}process {process} has it imported as 'mine'\n"));
    shop.succeed("zpool export mine");
}

#[test]
fn images_are_made_for_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let shop = Workshop::new();
    shop.succeed("zpool create --size 128M --export tank A");
    let mode = fs::metadata(shop.image("A")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// The location of the sockets of root's pools does not depend on the session.
#[test]
fn sockets_of_root_do_not_follow_the_session() {
    let rzfs = Rzfs::new();
    if !has_root("others have sockets of their own") {
        return;
    }
    assert_eq!(rzfs.control().sockets("tank").count(), 1);
    let mut list = rzfs.command();
    list.env_remove("RZFS_RUNTIME_DIR").env("XDG_RUNTIME_DIR", rzfs.path("session"));
    // A directory that is not private is refused by name, which shows where a command looks.
    fs::create_dir_all(rzfs.path("session/rzfs")).unwrap();
    let listed = outcome(list.args(["zpool", "list", "-Ho", "name"]));
    assert_eq!(listed.status, 0, "{listed:?}");
}

fn loop_device(image: &str) -> String {
    let made = outcome(Command::new("losetup").args(["--find", "--show", image]));
    assert_eq!(made.status, 0, "{made:?}");
    made.out.trim().to_owned()
}

/// A block device that is claimed by a user of it, until it is dropped.
struct Claimed {
    path: String,
    claim: Option<File>,
}

impl Claimed {
    fn new(image: &str) -> Self {
        File::create(image).unwrap().set_len(64 << 20).unwrap();
        let path = loop_device(image);
        let exclusive = rustix::fs::OFlags::EXCL.bits() as i32;
        let claim = File::options().read(true).write(true).custom_flags(exclusive).open(&path);
        Self { path, claim: Some(claim.unwrap()) }
    }

    /// A read-only device.
    fn read_only(image: &str) -> Self {
        let made =
            outcome(Command::new("losetup").args(["--read-only", "--find", "--show", image]));
        assert_eq!(made.status, 0, "{made:?}");
        Self { path: made.out.trim().to_owned(), claim: None }
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        self.claim = None;
        let _ = Command::new("losetup").args(["--detach", &self.path]).status();
    }
}

#[test]
fn a_device_in_use_is_refused_beside_file_systems_that_answer_nobody() {
    if !has_root("only root has block devices") {
        return;
    }
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    let device = Claimed::new(&shop.image("B"));
    // Not opened by us: our children inherit it and close it, which would wait as well.
    let mut writer = Command::new("sh");
    writer.args(["-c", "exec 7>\"$0\"; echo open >&7; exec sleep 1000"]);
    let file = shop.root().join("file");
    let mut writer = writer.arg(&file).spawn().unwrap();
    wait_until("a file", || fs::metadata(&file).is_ok_and(|file| file.len() > 0));
    let server = Pid::from_raw(shop.rzfs.daemon("tank") as i32).unwrap();
    kill_process(server, Signal::STOP).unwrap();
    let mut create = shop.rzfs.prepared(Command::new("timeout"));
    create.env("RZFS_RUNTIME_DIR", shop.rzfs.path("elsewhere"));
    create.args(["-s", "KILL", "60", env!("CARGO_BIN_EXE_rzfs"), "zpool", "create", "-f", "new"]);
    let refused = outcome(create.arg(&device.path));
    kill_process(server, Signal::CONT).unwrap();
    writer.kill().unwrap();
    writer.wait().unwrap();
    assert_eq!(refused.status, 1, "{refused:?}");
    assert!(refused.err.contains("is in use"), "{refused:?}");
    shop.succeed("zpool export tank");
}

/// A loop device and its file have one writer, whichever of the two is opened first.
#[test]
fn a_loop_device_and_its_file_have_one_writer() {
    if !has_root("only root has block devices") {
        return;
    }
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M --export tank A");
    let image = shop.image("A");
    let device = Claimed { path: loop_device(&image), claim: None };
    for (first, second) in [(&image, &device.path), (&device.path, &image)] {
        shop.succeed(&format!("zpool import -N -d {first} tank"));
        let server = shop.rzfs.daemon("tank");
        let mut import = shop.rzfs.prepared(Command::new(env!("CARGO_BIN_EXE_rzfs")));
        import.env("RZFS_RUNTIME_DIR", shop.rzfs.path("elsewhere"));
        let refused = outcome(import.args(["zpool", "import", "-N", "-d", second, "tank"]));
        assert_eq!(refused.status, 1, "{refused:?}");
        assert!(refused.err.contains(&format!("process {server}")), "{refused:?}");
        shop.succeed("zpool export tank");
    }
}

#[test]
fn what_another_process_writes_is_neither_cleared_nor_taken() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    let (image, server) = (shop.image("A"), shop.rzfs.daemon("tank"));
    let elsewhere = |line: &str| {
        let mut command = shop.rzfs.prepared(Command::new(env!("CARGO_BIN_EXE_rzfs")));
        command.env("RZFS_RUNTIME_DIR", shop.rzfs.path("elsewhere"));
        outcome(command.args(line.split(' ')).arg(&image))
    };
    let cleared = elsewhere("zpool labelclear -f");
    assert_eq!(cleared.status, 1, "{cleared:?}");
    assert!(cleared.err.contains(&format!("in use by process {server}")), "{cleared:?}");
    let taken = elsewhere("zpool create -f other");
    assert_eq!(taken.status, 1, "{taken:?}");
    assert!(taken.err.contains("is part of active pool 'tank'"), "{taken:?}");
    shop.succeed("zpool export tank");
    shop.succeed("zpool import -N -d IMAGES tank");
    shop.succeed("zpool export tank");
}

/// All devices are claimed before the first byte is written to any of them.
#[test]
fn a_creation_that_is_refused_leaves_what_its_devices_held() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A spare S");
    shop.succeed("zpool create --size 96M -m none other B");
    shop.succeed("zpool create --size 96M --export old C");
    File::create(shop.image("Small")).unwrap().set_len(32 << 20).unwrap();
    let spare = "invalid vdev specification\nthe following errors must be manually repaired:\n\
                 S is reserved as a hot spare for pool tank\n";
    for line in [
        "zpool create -m none new C spare S",
        "zpool create -f -m none new C spare S",
        "zpool create -f --export new C spare S",
        "zpool create -f -m none new C cache S",
        "zpool add other spare S",
        "zpool add -f other C spare S",
    ] {
        assert_eq!(shop.refuse(line, 1), spare, "{line}");
    }
    for (line, reason) in [
        ("zpool create -f -m none new C spare Small", "less than the minimum size (64M)"),
        ("zpool create -f -m none new C log Missing", "No such file or directory"),
        ("zpool create -f -m none new C B", "B is part of active pool 'other'"),
        ("zpool add -f other C log Small", "less than the minimum size (64M)"),
        ("zpool add -f other C spare A", "A is part of active pool 'tank'"),
    ] {
        let refused = shop.refuse(line, 1);
        assert!(refused.contains(reason), "{line}: {refused}");
    }
    // The message is the same without access to the pool that has the device.
    let mut create = shop.rzfs.prepared(Command::new(env!("CARGO_BIN_EXE_rzfs")));
    create.env("RZFS_RUNTIME_DIR", shop.rzfs.path("elsewhere"));
    create.args(["zpool", "create", "-f", "--export", "new", &shop.image("C"), "spare"]);
    let refused = outcome(create.arg(shop.image("S")));
    assert_eq!(refused.status, 1, "{refused:?}");
    assert!(refused.err.contains("S is part of an active pool\n"), "{refused:?}");

    shop.succeed("zpool import -N -d IMAGES old");
    for pool in ["old", "other", "tank"] {
        shop.succeed(&format!("zpool export {pool}"));
    }
}

/// The message about a pool that needs a device which can only be read.
fn can_only_be_read(device: &str) -> String {
    format!(
        "cannot import 'tank': one or more devices is read only\n{device} can only be read.\n\
         The pool can be imported using '-o readonly=on'.\n"
    )
}

#[test]
fn what_the_kernel_only_reads_is_not_imported_for_writing() {
    if !has_root("only root has block devices") {
        return;
    }
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M --export tank A");
    let device = Claimed::read_only(&shop.image("A"));
    let path = &device.path;
    let refused = shop.refuse(&format!("zpool import -N -d {path} tank"), 1);
    assert_eq!(refused, can_only_be_read(path));
    let taken = shop.refuse(&format!("zpool create -f --export new {path}"), 1);
    assert!(taken.contains(&format!("cannot open {path}: Read-only file system")), "{taken}");
    shop.succeed(&format!("zpool import -o readonly=on -N -d {path} tank"));
    shop.succeed("zpool export tank");
}

#[test]
fn a_pool_does_without_what_the_kernel_only_reads_if_it_can() {
    if !has_root("only root has block devices") {
        return;
    }
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M --export -m none tank mirror A B spare S");
    fs::copy(shop.image("A"), shop.image("Copy")).unwrap();
    let [half, spare, copy] = ["B", "S", "Copy"].map(|name| Claimed::read_only(&shop.image(name)));
    let (half, spare, copy) = (&half.path, &spare.path, &copy.path);
    let line = format!("zpool import -R ROOT -d A -d {half} -d {spare} -d {copy} tank");
    let before = fs::read(shop.image("B")).unwrap();
    shop.succeed(&line);
    let status = shop.succeed("zpool status tank");
    let lines = |state: &str| status.lines().filter(|line| line.contains(state)).count();
    assert_eq!(shop.succeed("zpool get -Ho value health tank"), "DEGRADED\n");
    // One half of the mirror, and the spare.
    assert_eq!(lines("UNAVAIL"), 2, "{status}");
    shop.succeed("zfs create tank/newer");
    shop.succeed("zpool export tank");
    assert!(fs::read(shop.image("B")).unwrap() == before, "something was written");
}

#[test]
fn a_pool_does_not_do_without_the_newest_that_the_kernel_only_reads() {
    if !has_root("only root has block devices") {
        return;
    }
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M --export -m none tank mirror A B");
    shop.succeed("zpool import -N -d A tank");
    shop.succeed("zfs create -u tank/newer");
    shop.succeed("zpool export tank");
    let newest = Claimed::read_only(&shop.image("A"));
    let path = &newest.path;
    let refused = shop.refuse(&format!("zpool import -N -d {path} -d B tank"), 1);
    assert_eq!(refused, can_only_be_read(path));
}

#[test]
fn a_pool_that_is_only_read_is_not_destroyed() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    fs::write(shop.root().join("kept"), "kept").unwrap();
    shop.succeed("zpool export tank");
    let assert_refused = |file: &Path| {
        for line in ["zpool destroy tank", "zpool destroy -f tank"] {
            let refused = shop.refuse(line, 1);
            assert_eq!(refused, "cannot destroy 'tank': pool is read-only\n", "{line}");
            assert_eq!(fs::read_to_string(file).unwrap(), "kept", "{line}");
        }
    };
    shop.succeed("zpool import -d IMAGES -R ROOT -o readonly=on tank");
    assert_refused(&shop.root().join("kept"));
    shop.succeed("zpool export tank");
    let directory = shop.rzfs.path("mnt");
    let (image, place) = (shop.image("A"), directory.to_str().unwrap());
    shop.rzfs.succeed(["mount", "-o", "ro", &image, place]);
    assert_refused(&directory.join("kept"));
    shop.rzfs.succeed(["umount", "tank"]);
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    shop.succeed("zpool destroy tank");
}
