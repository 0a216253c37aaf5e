//! Background mounts, and how they end.

use crate::harness::{
    Outcome, Rzfs, copy_program, is_mounted, mounts_on_mounts, outcome, reference, wait_until,
};
use crate::workshop::Workshop;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getuid, kill_process};
use rzfs_testkit::has_root;
use rzfs_testkit::{MountedTree, differences, unpack_sample};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted reference pool.
struct Mounted {
    rzfs: Rzfs,
    directory: PathBuf,
}

impl Mounted {
    fn new(pool: &str, options: &[&str]) -> Self {
        let rzfs = Rzfs::new();
        let directory = rzfs.path("mnt");
        let images = reference(pool).1.into_iter().map(OsString::from);
        let words = options.iter().map(OsString::from).chain(images);
        let warnings = rzfs.mount(words.chain([directory.clone().into()]));
        assert_eq!(warnings, "");
        Self { rzfs, directory }
    }

    fn is_over(&self) -> bool {
        !is_mounted(&self.directory) && self.rzfs.control().mounted().unwrap().clients.is_empty()
    }

    fn umount(&self, words: &[&str]) -> Outcome {
        self.rzfs.run(["umount"].iter().chain(words))
    }
}

#[test]
fn old_file_systems_are_only_read_and_leave_no_directory_where_they_were_to_be_written() {
    let rzfs = Rzfs::new();
    let directory = rzfs.path("new/mnt");
    // Opening a pool for writing changes it.
    let mut words = vec![OsString::from("mount")];
    for (number, image) in reference("g22-v8").1.iter().enumerate() {
        let own = rzfs.path(&format!("image {number}"));
        fs::copy(image, &own).unwrap();
        words.push(own.into());
    }
    words.push(directory.clone().into());
    let refused = rzfs.run(&words);
    assert_eq!(refused.status, 1, "{}", refused.err);
    let expected = "file system version 2 can be read here, but not be changed: \
                    it has to be mounted read-only (-o ro)\n";
    assert!(refused.err.ends_with(expected), "{}", refused.err);
    assert!(!rzfs.path("new").exists());
    words.splice(1..1, ["-o", "ro"].map(OsString::from));
    rzfs.succeed(&words);
    assert!(is_mounted(&directory));
    rzfs.succeed([OsString::from("umount"), directory.into()]);
}

#[test]
fn file_systems_are_below_each_other_and_have_their_files() {
    let mounted = Mounted::new("g01-default", &[]);
    let manifest = reference("g01-default").0.manifest().unwrap();
    for (dataset, files) in manifest.datasets() {
        let (head, snapshot) = match dataset.split_once('@') {
            Some((head, snapshot)) => (head, format!(".zfs/snapshot/{snapshot}")),
            None => (dataset, String::new()),
        };
        let below = head.split_once('/').map_or("", |(_, below)| below);
        let tree = MountedTree(mounted.directory.join(below).join(snapshot));
        assert_eq!(differences(files, &tree), Vec::<String>::new(), "{dataset}");
    }
    let table = mounted.rzfs.succeed(["zfs", "mount"]);
    let at = |dataset: &str, below: &str| {
        format!("{dataset:<30}  {}", mounted.directory.join(below).display())
    };
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines[0].trim_end_matches('/'), at("g01", "").trim_end_matches('/'));
    assert!(lines.contains(&at("g01/sa", "sa").as_str()), "{table}");
    // Commands without devices query the mounted pools.
    let list = mounted.rzfs.succeed(["zfs", "list", "-H", "-o", "name,mounted", "g01/sa"]);
    assert_eq!(list, "g01/sa\tyes\n");
    let path = mounted.directory.join("sa");
    let by_path = mounted.rzfs.succeed(["zfs", "list", "-Ho", "name", path.to_str().unwrap()]);
    assert_eq!(by_path, "g01/sa\n");
    assert_eq!(mounted.rzfs.succeed(["zpool", "list", "-Ho", "name,health"]), "g01\tONLINE\n");
}

#[test]
fn umount_takes_a_directory_or_a_pool() {
    let by_directory = Mounted::new("g15-removed", &[]);
    let path = by_directory.directory.to_str().unwrap().to_owned();
    assert_eq!(by_directory.umount(&[&path]).status, 0);
    assert!(by_directory.is_over());
    assert!(!by_directory.directory.exists(), "it was made for the mount");
    let by_pool = Mounted::new("g15-removed", &[]);
    assert_eq!(by_pool.umount(&["g15"]).status, 0);
    assert!(by_pool.is_over());
    // It can be mounted again immediately: nothing is left of the first mount.
    let images = reference("g15-removed").1;
    by_pool.rzfs.mount(images.iter().chain([&by_pool.directory]));
    assert!(is_mounted(&by_pool.directory));
}

#[test]
fn what_is_in_use_stays_unless_forced() {
    let mounted = Mounted::new("g15-removed", &[]);
    let open = fs::File::open(mounted.directory.join(".")).unwrap();
    let busy = mounted.umount(&["g15"]);
    assert_eq!(busy.status, 1);
    let message = format!(
        "cannot unmount '{}': pool or dataset is busy\n",
        mounted.directory.canonicalize().unwrap().display()
    );
    assert_eq!(busy.err, message);
    assert!(is_mounted(&mounted.directory));
    assert_eq!(mounted.umount(&["-f", "g15"]).status, 0);
    assert!(mounted.is_over());
    drop(open);
}

#[test]
fn signals_end_the_mounts() {
    for signal in [Signal::TERM, Signal::INT] {
        let mounted = Mounted::new("g01-default", &[]);
        let process = i32::try_from(mounted.rzfs.daemon("g01")).unwrap();
        kill_process(Pid::from_raw(process).unwrap(), signal).unwrap();
        wait_until("a signal ends the mounts", || mounted.is_over());
    }
}

#[test]
fn the_last_unmount_by_the_user_ends_the_process() {
    let mounted = Mounted::new("g08-draid2", &[]);
    let mounts = if mounts_on_mounts() { &["fs", ""][..] } else { &[""] };
    for below in mounts {
        let directory = mounted.directory.join(below);
        let unmounted = Command::new("fusermount3").arg("-u").arg(&directory).status().unwrap();
        assert!(unmounted.success());
    }
    wait_until("the process ends with its last mount", || mounted.is_over());
}

#[test]
fn a_pool_is_mounted_once() {
    let mounted = Mounted::new("g15-removed", &[]);
    let images = reference("g15-removed").1.into_iter().map(OsString::from);
    let other = mounted.rzfs.path("other");
    let words = [OsString::from("mount")].into_iter().chain(images);
    let again = mounted.rzfs.run(words.chain([other.clone().into()]));
    assert_eq!(again.status, 1);
    assert_eq!(again.err, "cannot mount 'g15': a pool with that name is mounted\n");
    assert!(!other.exists());
}

#[test]
fn a_snapshot_can_be_all_there_is() {
    let mounted = Mounted::new("g01-default", &["-o", "snapshot=g01/sa@s1"]);
    let manifest = reference("g01-default").0.manifest().unwrap();
    let files = manifest.get("g01/sa@s1").unwrap();
    let tree = MountedTree(mounted.directory.clone());
    assert_eq!(differences(files, &tree), Vec::<String>::new());
    assert!(!mounted.directory.join(".zfs").exists());
    assert_eq!(mounted.rzfs.succeed(["zfs", "mount"]).lines().count(), 1);
}

#[test]
fn encrypted_file_systems_need_their_keys() {
    let rzfs = Rzfs::new();
    let (image, key, directory) = (rzfs.path("garden.img"), rzfs.path("key"), rzfs.path("mnt"));
    unpack_sample("garden", &image).unwrap();
    fs::write(&key, "open sesame\n").unwrap();
    let secret = directory.join("secret");
    let warnings = rzfs.mount([&image, &directory]);
    assert_eq!(warnings, "'garden/secret' is left out: its key is not loaded\n");
    assert!(is_mounted(&directory) && !is_mounted(&secret));
    rzfs.succeed(["umount", "garden"]);
    let option = format!("garden/secret={}", key.display());
    let words = ["-k".as_ref(), option.as_ref(), image.as_os_str(), directory.as_os_str()];
    assert_eq!(rzfs.mount(words), "");
    assert_eq!(is_mounted(&secret), mounts_on_mounts());
    let status = rzfs.succeed(["zfs", "get", "-Ho", "value", "keystatus", "garden/secret"]);
    assert_eq!(status, "available\n");
}

#[test]
fn the_foreground_lasts_until_the_end() {
    let rzfs = Rzfs::new();
    let directory = rzfs.path("mnt");
    let mut command = rzfs.command();
    command
        .args(["mount", "--foreground", "-o", "ro"])
        .args(reference("g15-removed").1)
        .arg(&directory);
    let mut child = command.spawn().unwrap();
    wait_until("mounted", || is_mounted(&directory));
    assert_eq!(rzfs.daemon("g15"), child.id());
    rzfs.succeed(["umount", "g15"]);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn processors_stay_awake_for_many_requests_only() {
    let rzfs = Rzfs::new();
    let (image, device, directory) = (rzfs.path("garden.img"), rzfs.path("dev"), rzfs.path("mnt"));
    unpack_sample("garden", &image).unwrap();
    fs::write(&device, "").unwrap();
    let mount = |device: &OsStr| {
        let mut command = rzfs.command();
        command.env("RZFS_LATENCY_DEVICE", device).args(["mount", "-o", "ro"]);
        let mounted = outcome(command.args([&image, &directory]));
        assert_eq!(mounted.status, 0, "{mounted:?}");
        format!("/proc/{}", rzfs.daemon("garden"))
    };
    let process = mount(device.as_os_str());
    let is_awake = || {
        let mut files = fs::read_dir(format!("{process}/fd")).unwrap().flatten();
        files.any(|file| fs::read_link(file.path()).is_ok_and(|open| open == device))
    };
    let first = Cell::new(0);
    wait_until("awake", || {
        // The kernel sends requests for names that it has not cached.
        let names = first.replace(first.get() + 100)..first.get();
        names.for_each(|name| assert!(!directory.join(name.to_string()).exists()));
        is_awake()
    });
    wait_until("asleep", || !is_awake());
    rzfs.succeed(["umount", "garden"]);

    let process = mount(OsStr::new(""));
    let threads = fs::read_dir(format!("{process}/task")).unwrap().flatten();
    let names = threads.map(|thread| fs::read_to_string(thread.path().join("comm")).unwrap());
    assert!(!names.into_iter().any(|name| name == "rzfs-awake\n"));
}

/// Runs the binary unprivileged: as `nobody` if the tests run as root.
pub(crate) fn unprivileged(rzfs: &Rzfs, binary: &Path) -> Command {
    if !getuid().is_root() {
        return rzfs.prepared(Command::new(binary));
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(binary);
    rzfs.prepared(command)
}

#[test]
fn images_need_no_rights_of_root() {
    let rzfs = Rzfs::new();
    let home = rzfs.path("home");
    let (binary, image, directory) = (home.join("rzfs"), home.join("garden.img"), home.join("mnt"));
    fs::create_dir(&home).unwrap();
    // The binary cannot be run in a directory closed to other users.
    copy_program(&binary);
    unpack_sample("garden", &image).unwrap();
    fs::create_dir(&directory).unwrap();
    fs::create_dir(rzfs.path("run")).unwrap();
    fs::set_permissions(home.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    if getuid().is_root() {
        for path in [&home, &image, &directory, &rzfs.path("run")] {
            std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
        }
    }
    let run = |words: &[&Path]| outcome(unprivileged(&rzfs, &binary).args(words));
    let mounted = run(&["mount".as_ref(), "-oro".as_ref(), &image, &directory]);
    assert_eq!(mounted.status, 0, "{mounted:?}");
    assert!(is_mounted(&directory));
    let script = "cd \"$1\" && \"$0\" umount garden";
    let mut shell = unprivileged(&rzfs, Path::new("sh"));
    let busy = outcome(shell.args(["-c", script]).args([&binary, &directory]));
    assert_eq!(busy.status, 1, "{busy:?}");
    assert!(busy.err.contains("pool or dataset is busy"), "{busy:?}");
    // All file systems are in one mount.
    let plan = directory.join("plan");
    assert!(!is_mounted(&plan));
    let read = outcome(unprivileged(&rzfs, Path::new("ls")).args(["-F"]).arg(&plan));
    assert_eq!(read.out, "beds/\ndiary\ntoday@\n", "{read:?}");
    let numbers = "find . -printf '%i %y\n' | sort | uniq -d";
    let mut shell = unprivileged(&rzfs, Path::new("sh"));
    let same = outcome(shell.args(["-c", &format!("cd \"$0\" && {numbers}")]).arg(&directory));
    assert_eq!((same.status, same.out.as_str()), (0, ""), "one number for two files");
    let snapshot = directory.join("notes/.zfs/snapshot/monday");
    let listed = outcome(unprivileged(&rzfs, Path::new("ls")).arg(&snapshot));
    assert!(listed.status == 0 && !listed.out.is_empty(), "{listed:?}");
    let table = run(&["zfs".as_ref(), "mount".as_ref()]);
    assert!(table.out.contains(&format!("{}\n", plan.display())), "{table:?}");
    let unmounted = run(&["umount".as_ref(), &directory]);
    assert_eq!(unmounted.status, 0, "{unmounted:?}");
    assert!(!is_mounted(&directory));
}

/// Files opened through the detached mount and through the next one belong to one file system.
#[test]
fn a_file_system_in_use_behind_a_detached_mount_is_not_opened_twice() {
    if !mounts_on_mounts() {
        eprintln!("SKIPPED: an ordinary user mounts a pool as a whole");
        return;
    }
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    shop.succeed("zfs create tank/a");
    let place = shop.root().join("a");
    let behind = File::open(&place).unwrap();
    let create = |name: &str| {
        let new = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
        openat(&behind, name, new, Mode::RUSR).map(File::from)
    };
    let mut nameless = create("nameless").unwrap();
    nameless.write_all(b"no name").unwrap();
    nameless.sync_all().unwrap();
    fs::remove_file(place.join("nameless")).unwrap();
    shop.succeed("zfs unmount -f tank/a");
    create("earlier").unwrap().write_all(b"behind").unwrap();
    shop.succeed("zfs mount tank/a");

    create("later").unwrap();
    fs::write(place.join("in front"), "in front").unwrap();
    assert_eq!(create("in front").unwrap_err(), Errno::EXIST);
    let names = fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name());
    let names: BTreeSet<_> = names.collect();
    assert_eq!(names, ["earlier", "in front", "later"].map(Into::into).into());
    let mut text = String::new();
    nameless.rewind().unwrap();
    nameless.read_to_string(&mut text).unwrap();
    assert_eq!(text, "no name");
    drop((nameless, behind));
    shop.succeed("zpool export tank");
    shop.judge();
}

/// A mount persists in bind mounts, and in the namespaces of containers; those would also keep the
/// mounts of other tests.
#[test]
fn whoever_has_a_mount_elsewhere_holds_up_no_command() {
    if !has_root("only root makes bind mounts") {
        return;
    }
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    shop.succeed("zfs create tank/home");
    shop.succeed("zfs create tank/other");
    let (home, elsewhere) = (shop.root().join("home"), shop.rzfs.path("elsewhere"));
    fs::create_dir(&elsewhere).unwrap();
    let system = |words: &[&OsStr]| {
        assert!(Command::new(words[0]).args(&words[1..]).status().unwrap().success());
    };
    let bind = || system(&["mount".as_ref(), "--bind".as_ref(), home.as_ref(), elsewhere.as_ref()]);
    let unbind = || system(&["umount".as_ref(), elsewhere.as_ref()]);
    bind();
    shop.succeed("zfs unmount tank/home");
    assert!(!is_mounted(&home) && is_mounted(&elsewhere));
    assert!(!shop.succeed("zfs mount").contains("tank/home"));
    fs::write(elsewhere.join("file"), "from elsewhere").unwrap();
    shop.succeed("zfs mount tank/home");
    assert_eq!(fs::read_to_string(home.join("file")).unwrap(), "from elsewhere");
    shop.succeed("zfs set atime=off tank/other");
    shop.succeed("zfs rename tank/other tank/renamed");
    unbind();
    bind();

    let mounts = shop.succeed("zfs mount");
    let refused = shop.refuse("zpool export tank", 1);
    assert!(refused.starts_with("cannot export 'tank': pool is busy\n"), "{refused}");
    assert_eq!(shop.succeed("zfs mount"), mounts);
    // The mount that was made again may itself be unused.
    for line in ["zpool export tank", "zpool destroy tank", "zpool export tank"] {
        assert!(shop.refuse(line, 1).contains("busy"), "{line}");
        assert_eq!(shop.succeed("zfs mount"), mounts, "{line}");
        assert_eq!(fs::read_to_string(elsewhere.join("file")).unwrap(), "from elsewhere");
    }
    unbind();
    shop.succeed("zpool export tank");
    shop.judge();
}

#[test]
fn mounts_that_have_ended_leave_no_descriptors() {
    if !has_root("what fusermount3 has mounted keeps a descriptor") {
        return;
    }
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    let process = shop.rzfs.daemon("tank");
    let descriptors = || {
        let all = fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
        let targets = all.filter_map(|fd| fs::read_link(fd.path()).ok());
        targets.filter(|target| target.starts_with("/dev/fuse")).count()
    };
    let before = descriptors();
    for _ in 0..4 {
        shop.succeed("zfs unmount tank");
        shop.succeed("zfs mount tank");
    }
    wait_until("descriptors are given back", || descriptors() <= before);
    shop.succeed("zpool export tank");
}

/// Every mount in the new place must be unmounted before anything is changed.
#[test]
fn a_place_around_a_busy_mount_is_refused_as_a_whole() {
    if !mounts_on_mounts() {
        return;
    }
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    for name in ["tank/c", "tank/c/b", "tank/other"] {
        shop.succeed(&format!("zfs create {name}"));
    }
    let table = || shop.succeed("zfs get -Ho name,property,value mounted,mountpoint");
    let (before, mounted) = (table(), shop.succeed("zfs mount"));
    let held = fs::File::create(shop.root().join("other/file")).unwrap();
    let refused = shop.refuse("zfs set mountpoint=/ tank/c", 255);
    assert!(refused.contains("busy"), "{refused}");
    assert_eq!((table(), shop.succeed("zfs mount")), (before, mounted));
    drop(held);
    shop.succeed("zfs set mountpoint=/ tank/c");
    let root = shop.rzfs.path("root").canonicalize().unwrap();
    let mounted = shop.succeed("zfs mount");
    let is_there =
        |line: &str| line.starts_with("tank/c ") && line.ends_with(root.to_str().unwrap());
    assert!(mounted.lines().any(is_there), "{mounted}");
    shop.succeed("zpool export tank");
}

/// Force overrides open files, but not mounts of other file systems.
#[test]
fn what_others_have_mounted_on_a_file_system_keeps_it_also_by_force() {
    if !has_root("only root mounts on mounts") {
        return;
    }
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    shop.succeed("zfs create tank/a");
    let place = shop.root().join("a/t");
    fs::create_dir(&place).unwrap();
    let mount = |program: &str, words: &[&str]| {
        assert!(Command::new(program).args(words).arg(&place).status().unwrap().success());
    };
    mount("mount", &["-t", "tmpfs", "none"]);
    fs::write(place.join("file"), "kept").unwrap();
    for line in [
        "zfs unmount -f tank/a",
        "zfs rename -f tank/a tank/b",
        "zfs destroy -f tank/a",
        "zpool export -f tank",
    ] {
        let refused = shop.run(line);
        assert!(refused.status == 1 && refused.err.contains("busy"), "{line}: {refused:?}");
        assert_eq!(fs::read_to_string(place.join("file")).unwrap(), "kept", "{line}");
    }
    mount("umount", &[]);
    shop.succeed("zfs unmount -f tank/a");
    // Automatic mounting takes effect at the next import.
    shop.succeed("zfs set canmount=noauto tank/a");
    shop.succeed("zfs set canmount=on tank/a");
    assert!(!is_mounted(&shop.root().join("a")));
    shop.succeed("zpool export -f tank");
}
