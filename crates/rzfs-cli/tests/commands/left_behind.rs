//! File systems that were unmounted but are still in use.

use crate::harness::{
    CHANGE_IN_MEMORY, PYTHON, Rzfs, has_python, is_mounted, kill_server, mounts_on_mounts, outcome,
    wait_until,
};
use crate::workshop::Workshop;
use rustix::fs::{Mode, OFlags, openat, statfs};
use rustix::io::Errno;
use rzfs_testkit::has_root;
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A shell in its own mount namespace, which has a copy of one mount.
struct Container {
    shell: Child,
    said: BufReader<ChildStdout>,
}

impl Container {
    fn with(place: &Path) -> Self {
        // It detaches the mounts of other tests immediately.
        let script = "
            awk -v p=\"$P\" '$3 == \"fuse.rzfs\" && index(p \"/\", $2 \"/\") != 1 { print $2 }' /proc/self/mounts |
                sort -r | while read -r other; do umount -l \"$other\"; done 2> /dev/null
            echo there; while read -r line; do eval \"$line\" 2>&1; echo done; done";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", script]);
        command.env("P", place).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = command.spawn().unwrap();
        let said = BufReader::new(shell.stdout.take().unwrap());
        let mut this = Self { shell, said };
        assert_eq!(this.line(), "there");
        this
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Makes it run a line; returns the output.
    fn run(&mut self, line: &str) -> Vec<String> {
        writeln!(self.shell.stdin.as_mut().unwrap(), "{line}").unwrap();
        let mut lines = Vec::new();
        loop {
            match self.line() {
                line if line == "done" => return lines,
                line => lines.push(line),
            }
        }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // The shell ends when its input is closed.
        drop(self.shell.stdin.take());
        self.shell.wait().unwrap();
    }
}

/// A pool with a file in its file system `tank/a`, and the mount point of `tank/a`.
fn mounted() -> (Workshop, PathBuf) {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    shop.succeed("zfs create tank/a");
    let place = shop.root().join("a");
    fs::write(place.join("file"), "kept\n").unwrap();
    (shop, place)
}

/// The same, and a container with a copy of the mount.
fn mounted_in_container() -> (Workshop, PathBuf, Container) {
    let (shop, place) = mounted();
    let container = Container::with(&place);
    (shop, place, container)
}

fn unmounted_by_somebody(place: &Path, options: &[&str]) {
    assert!(Command::new("umount").args(options).arg(place).status().unwrap().success());
}

#[test]
fn a_file_system_that_a_container_has_is_not_taken_from_it() {
    if !has_root("only root has namespaces of mounts that others see nothing of") {
        return;
    }
    let (shop, place, mut container) = mounted_in_container();
    let busy = "cannot destroy 'tank/a': dataset is busy\n";

    // While it is mounted; it is mounted again afterwards.
    assert_eq!(shop.refuse("zfs destroy tank/a", 1), busy);
    assert!(is_mounted(&place));
    assert_eq!(container.run("cat $P/file"), ["kept"]);
    shop.succeed("zfs unmount tank/a");
    assert!(!is_mounted(&place));
    assert_eq!(container.run("cat $P/file; echo from inside > $P/new"), ["kept"]);
    for line in ["zfs destroy tank/a", "zfs destroy -r tank"] {
        assert_eq!(shop.refuse(line, 1), busy, "{line}");
        assert_eq!(container.run("cat $P/file $P/new"), ["kept", "from inside"], "{line}");
    }
    assert_eq!(shop.succeed("zfs get -Ho value mounted tank/a"), "no\n");
    for line in ["zpool export tank", "zpool destroy tank"] {
        assert!(shop.refuse(line, 1).contains("pool is busy"), "{line}");
        assert_eq!(container.run("cat $P/file"), ["kept"], "{line}");
    }
    shop.succeed("zfs mount tank/a");
    assert_eq!(fs::read_to_string(place.join("new")).unwrap(), "from inside\n");
    shop.succeed("zfs rename tank/a tank/b");
    let renamed = shop.root().join("b");
    fs::write(renamed.join("file"), "changed\n").unwrap();
    assert_eq!(container.run("cat $P/file"), ["changed"], "one file system, one cache");
    drop(container);

    wait_until("nobody has it any more", || shop.run("zfs destroy tank/b").status == 0);
    assert!(!renamed.exists(), "it was made for the mount");
    shop.succeed("zpool export tank");
    shop.judge();
}

#[test]
fn what_somebody_has_unmounted_is_mounted_again_though_others_have_it() {
    if !has_root("only root's file systems have mounts of their own") {
        return;
    }
    let (shop, place) = mounted();
    shop.succeed("zfs create tank/a/below");
    let behind = File::open(&place).unwrap();
    let append = OFlags::CREATE | OFlags::APPEND | OFlags::RDWR;
    let mut first = File::from(openat(&behind, "list", append, Mode::RUSR | Mode::WUSR).unwrap());
    first.write_all(b"1").unwrap();
    unmounted_by_somebody(&place, &["-l"]);

    assert_eq!(shop.succeed("zfs get -Ho value mounted tank/a tank/a/below"), "no\nno\n");
    assert!(!shop.succeed("zfs mount").contains("tank/a"));
    let refused = shop.refuse("zfs unmount tank/a", 1);
    assert_eq!(refused, "cannot unmount 'tank/a': not currently mounted\n");
    shop.succeed("zfs mount tank/a");
    shop.succeed("zfs mount -a");
    assert!(is_mounted(&place) && is_mounted(&place.join("below")));
    assert_eq!(shop.succeed("zfs get -Ho value mounted tank/a"), "yes\n");

    // Two handles append to one file, and read what the other has written.
    let mut second = File::options().append(true).read(true).open(place.join("list")).unwrap();
    for round in [b"2", b"3", b"4"] {
        second.write_all(round).unwrap();
        first.write_all(b"-").unwrap();
    }
    assert_eq!(fs::read_to_string(place.join("list")).unwrap(), "12-3-4-");
    let mut text = String::new();
    File::from(openat(&behind, "list", OFlags::RDONLY, Mode::empty()).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, "12-3-4-");
    drop(second);

    // It is unmounted once more, now by the command; open files still work and prevent a destroy.
    shop.succeed("zfs unmount tank/a");
    first.write_all(b".").unwrap();
    let busy = "cannot destroy 'tank/a': dataset is busy\n";
    shop.succeed("zfs destroy tank/a/below");
    assert_eq!(shop.refuse("zfs destroy tank/a", 1), busy);
    drop((first, behind));
    // Programs that other tests are just starting also have the files open for a moment.
    wait_until("nobody has it any more", || shop.run("zfs destroy tank/a").status == 0);
    shop.succeed("zpool export tank");
    shop.judge();
}

/// The mount-related properties may have changed meanwhile.
#[test]
fn what_is_mounted_again_is_so_as_its_properties_say() {
    if !has_root("only root's file systems have mounts of their own") {
        return;
    }
    let (shop, place) = mounted();
    let options = || {
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        let line = table.lines().find(|line| line.split(' ').nth(1) == place.to_str());
        line.unwrap_or_else(|| panic!("{table}")).split(' ').nth(3).unwrap().to_owned()
    };
    let behind = File::open(&place).unwrap();
    for (line, option) in [
        ("zfs set exec=off tank/a", "noexec"),
        ("zfs set readonly=on tank/a", "ro"),
        ("zfs inherit readonly tank/a", "rw"),
        ("zfs set acltype=posix tank/a", "rw"),
    ] {
        shop.succeed("zfs unmount -f tank/a");
        shop.succeed(line);
        shop.succeed("zfs mount tank/a");
        let options = options();
        assert!(options.split(',').any(|one| one == option), "{line}: {options}");
        assert_eq!(fs::write(place.join("file"), "kept").is_ok(), option != "ro", "{line}");
    }
    let set = |list: &str| {
        let mut command = Command::new("setfacl");
        command.args(["-m", list]).arg(place.join("file")).status().unwrap().success()
    };
    assert!(set("u:1234:r--"), "lists need a mount of their own");
    drop(behind);
    wait_until("nobody has it any more", || shop.run("zpool export tank").status == 0);
    shop.judge();
}

/// They share a connection: two would each cache files and overwrite each other's changes.
#[test]
fn who_mounts_read_only_what_a_container_has_sees_what_that_changes() {
    if !has_root("only root has namespaces of mounts that others see nothing of") {
        return;
    }
    let (shop, place, mut container) = mounted_in_container();
    let file = place.join("file");
    shop.succeed("zfs unmount tank/a");
    shop.succeed("zfs set readonly=on tank/a");
    // The read-only file system has no directory for it, and none can be made.
    shop.succeed("zfs create tank/a/below");
    shop.succeed("zfs mount tank/a");
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept\n");
    assert!(fs::write(&file, "no").is_err());
    shop.run("zfs mount tank/a/below");
    assert!(is_mounted(&place.join("below")));

    shop.succeed("zfs set readonly=off tank/a");
    let seen = container.run("stat -c %d $P");
    assert_eq!(seen, [fs::metadata(&place).unwrap().dev().to_string()]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept\n");
    assert_eq!(container.run("cat $P/file; echo new > $P/file"), ["kept"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "new\n");
    fs::write(&file, "newer\n").unwrap();
    assert_eq!(container.run("cat $P/file; echo newest >> $P/file"), ["newer"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "newer\nnewest\n");
    drop(container);
    wait_until("nobody has it any more", || shop.run("zpool export tank").status == 0);
    shop.judge();
}

#[test]
fn what_a_container_removes_is_freed_though_nobody_else_has_the_file_system() {
    if !has_root("only root has namespaces of mounts that others see nothing of") {
        return;
    }
    /// More blocks than are freed at once.
    const BLOCKS: usize = 110_000;
    let shop = Workshop::new();
    shop.succeed("zpool create --size 256M -o ashift=9 -R ROOT tank A");
    for (name, unmount) in [("a", "umount -l"), ("b", "zfs unmount -f")] {
        let dataset = format!("tank/{name}");
        shop.succeed(&format!("zfs create -o recordsize=512 -o compression=off {dataset}"));
        let place = shop.root().join(name);
        fs::write(place.join("large"), vec![7; BLOCKS * 512]).unwrap();
        shop.succeed("zpool sync tank");
        let mut container = Container::with(&place);
        match unmount {
            "umount -l" => unmounted_by_somebody(&place, &["-l"]),
            _ => drop(shop.succeed(&format!("{unmount} {dataset}"))),
        }
        // The next command notices that it is not mounted any more.
        shop.succeed(&format!("zfs create {dataset}-next"));
        assert_eq!(container.run("rm $P/large; ls $P"), [""; 0]);
        wait_until("it is freed", || {
            shop.succeed("zpool sync tank");
            let used = shop.succeed(&format!("zfs get -Hpo value used {dataset}"));
            used.trim().parse::<u64>().unwrap() < 1 << 20
        });
        shop.succeed(&format!("zfs mount {dataset}"));
        drop(container);
        shop.succeed(&format!("zfs destroy {dataset}"));
    }
    shop.succeed("zpool export tank");
    shop.judge();
}

#[test]
fn all_are_destroyed_or_none_if_a_container_has_one() {
    if !has_root("only root has namespaces of mounts that others see nothing of") {
        return;
    }
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    for name in ["a", "a/first", "a/middle", "a/last"] {
        shop.succeed(&format!("zfs create tank/{name}"));
    }
    // The others come first in the order of destruction.
    let place = shop.root().join("a/first");
    fs::write(place.join("file"), "kept\n").unwrap();
    let mut container = Container::with(&place);
    unmounted_by_somebody(&place, &["-l"]);
    let refused = shop.refuse("zfs destroy -r tank/a", 1);
    assert_eq!(refused, "cannot destroy 'tank/a/first': dataset is busy\n");
    assert_eq!(
        shop.succeed("zfs list -rHo name,mounted tank/a"),
        "tank/a\tyes\ntank/a/first\tno\ntank/a/last\tyes\ntank/a/middle\tyes\n"
    );
    assert_eq!(container.run("cat $P/file"), ["kept"]);
    drop(container);
    wait_until("nobody has it any more", || shop.run("zfs destroy -r tank/a").status == 0);
    shop.succeed("zpool export tank");
    shop.judge();
}

#[test]
fn file_systems_that_somebody_has_unmounted_cost_one_moment_together() {
    if !has_root("only root's file systems have mounts of their own") {
        return;
    }
    const COUNT: usize = 12;
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    let mut behind = Vec::new();
    for number in 0..COUNT {
        shop.succeed(&format!("zfs create tank/{number}"));
        behind.push(File::open(shop.root().join(number.to_string())).unwrap());
    }
    for number in 0..COUNT {
        unmounted_by_somebody(&shop.root().join(number.to_string()), &["-l"]);
    }
    let start = Instant::now();
    shop.succeed("zfs create tank/next");
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    drop(behind);
    wait_until("nobody has them any more", || shop.run("zpool export tank").status == 0);
}

#[test]
fn only_the_directory_that_was_made_for_a_mount_is_removed_after_it() {
    if !has_root("ordinary users have one mount for all") {
        return;
    }
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    let (root, moved) = (shop.rzfs.path("root"), shop.rzfs.path("moved"));
    fs::rename(&root, &moved).unwrap();
    fs::create_dir_all(root.join("tank")).unwrap();
    shop.succeed("zfs unmount tank");
    assert!(!is_mounted(&moved.join("tank")));
    assert!(root.join("tank").exists(), "somebody else has made it");
    fs::remove_dir(root.join("tank")).unwrap();
    shop.succeed("zfs mount tank");
    shop.succeed("zfs unmount tank");
    assert!(!root.join("tank").exists(), "it was made for the mount");
    shop.succeed("zpool export tank");
}

#[test]
fn all_directories_that_were_made_for_a_mount_are_removed_after_it() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M --export tank A");
    let place = shop.rzfs.path("m");
    fs::create_dir(&place).unwrap();
    let innermost = place.join("d/x/y");
    for kept in [None, Some("d/x"), Some("d")] {
        shop.succeed(&format!("mount A {}", innermost.display()));
        assert!(is_mounted(&innermost));
        let file = kept.map(|directory| place.join(directory).join("kept"));
        file.iter().for_each(|file| fs::write(file, "").unwrap());
        shop.succeed("umount tank");
        assert!(!innermost.exists());
        for directory in ["d", "d/x"] {
            let has_file = kept.is_some_and(|kept| Path::new(kept).starts_with(directory));
            assert_eq!(place.join(directory).exists(), has_file, "{directory}: {kept:?}");
        }
        if file.is_some() {
            fs::remove_dir_all(place.join("d")).unwrap();
        }
    }
    assert!(place.exists());
}

#[test]
fn who_ends_a_pool_is_told_that_a_container_has_it() {
    if !has_root("only root has namespaces of mounts that others see nothing of") {
        return;
    }
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    let place = shop.root();
    fs::write(place.join("file"), "kept\n").unwrap();
    let mut container = Container::with(&place);
    for verb in ["export", "destroy"] {
        let refused = shop.refuse(&format!("zpool {verb} tank"), 1);
        let lines: Vec<_> = refused.lines().collect();
        assert_eq!(lines.len(), 2, "{refused}");
        assert_eq!(lines[0], format!("cannot {verb} 'tank': pool is busy"));
        assert!(lines[1].contains("mount namespace"), "{refused}");
        assert!(lines[1].contains(&format!("'zpool {verb} -f tank'")), "{refused}");
        assert!(is_mounted(&place));
        assert_eq!(container.run("cat $P/file"), ["kept"], "{verb}");
    }
    shop.succeed("zpool export -f tank");
    assert_eq!(container.run("cat $P/file 2> /dev/null || echo gone"), ["gone"]);
    shop.judge();
}

#[test]
fn what_a_container_has_is_taken_from_it_by_force() {
    if !has_root("only root has namespaces of mounts that others see nothing of") {
        return;
    }
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    for name in ["a", "b", "c", "c/clean"] {
        shop.succeed(&format!("zfs create tank/{name}"));
    }
    let [a, b, c] = ["a", "b", "c"].map(|name| {
        let place = shop.root().join(name);
        fs::write(place.join("file"), "kept\n").unwrap();
        (Container::with(&place), place)
    });
    // One that was mounted, one that was already unmounted, and one with file systems below it.
    let ((mut mounted, _), (mut unmounted, place), (mut above, _)) = (a, b, c);
    unmounted_by_somebody(&place, &["-l"]);
    shop.succeed("zfs destroy -f tank/a");
    let read = "cat $P/file 2> /dev/null || echo gone";
    assert_eq!(mounted.run(read), ["gone"]);
    for one in [&mut unmounted, &mut above] {
        assert_eq!(one.run("cat $P/file"), ["kept"], "nobody has touched it");
    }
    shop.succeed("zfs destroy -f tank/b");
    assert_eq!(unmounted.run(read), ["gone"]);
    shop.succeed("zfs destroy -rf tank/c");
    assert_eq!(above.run(read), ["gone"]);
    assert_eq!(shop.succeed("zfs list -rHo name tank"), "tank\n");

    shop.succeed("zfs create tank/d");
    let place = shop.root().join("d");
    let mut last = Container::with(&place);
    assert!(shop.refuse("zpool export tank", 1).contains("busy"));
    assert_eq!(last.run("echo written > $P/file; cat $P/file"), ["written"]);
    shop.succeed("zpool export -f tank");
    assert_eq!(last.run(read), ["gone"]);
    shop.judge();
}

#[test]
fn what_a_container_has_shows_what_snapdir_says_when_it_is_mounted_again() {
    if !has_root("only root has namespaces of mounts that others see nothing of") {
        return;
    }
    let (shop, place, mut container) = mounted_in_container();
    for (word, is_there) in [("hidden", true), ("disabled", false), ("visible", true)] {
        shop.succeed("zfs unmount tank/a");
        container.run("test -e $P/.zfs");
        shop.succeed(&format!("zfs set snapdir={word} tank/a"));
        shop.succeed("zfs mount tank/a");
        assert_eq!(place.join(".zfs").exists(), is_there, "{word}");
        let seen = container.run("test -e $P/.zfs && echo there");
        assert_eq!(seen.len() == 1, is_there, "{word}");
    }
    drop(container);
    wait_until("nobody has it any more", || shop.run("zpool export tank").status == 0);
}

/// The kernel would go on with the cached modes and without the access control lists.
#[test]
fn nobody_keeps_old_permissions_when_a_file_system_is_mounted_with_lists() {
    if !has_root("only root has namespaces of mounts that others see nothing of") {
        return;
    }
    let (shop, place, mut container) = mounted_in_container();
    let file = place.join("file");
    assert_eq!(container.run("cat $P/file"), ["kept"]);
    shop.succeed("zfs set acltype=posix tank/a");
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept\n");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    fs::write(&file, "secret\n").unwrap();
    let said = container.run("cat $P/file").join("\n");
    assert!(said.contains("Transport endpoint is not connected"), "{said}");
    drop(container);
    wait_until("nobody has it any more", || shop.run("zpool export tank").status == 0);
    shop.judge();
}

/// Changes through a mapping have not been sent in a request yet.
#[test]
fn what_a_container_has_in_memory_is_written_before_it_is_cut_off() {
    if !has_root("only root has namespaces of mounts that others see nothing of") || !has_python() {
        return;
    }
    let (shop, place, mut container) = mounted_in_container();
    let page = place.join("page");
    fs::write(&page, [b'.'; 4096]).unwrap();
    let [program, ready] = ["map.py", "ready"].map(|name| shop.rzfs.path(name));
    fs::write(&program, CHANGE_IN_MEMORY).unwrap();
    let (script, told) = (program.display(), ready.display());
    container.run(&format!("{PYTHON} {script} $P/page {told} mapped > /dev/null 2>&1 &"));
    wait_until("it is changed", || ready.exists());
    shop.succeed("zfs set acltype=posix tank/a");
    assert!(container.run("cat $P/file").join("\n").contains("not connected"));
    let text = fs::read(&page).unwrap();
    assert_eq!((&text[..6], text.len()), (&b"mapped"[..], 4096));
    container.run("kill $!");
    drop(container);
    wait_until("nobody has it any more", || shop.run("zpool export tank").status == 0);
    shop.judge();
}

#[test]
fn what_cannot_be_mounted_otherwise_is_not_taken_from_a_container() {
    if !has_root("only root has namespaces of mounts that others see nothing of") {
        return;
    }
    // The mounts of other tests are detached immediately.
    let script = "
        umount -a -c -i -l -t fuse.rzfs
        $RZFS zpool create --size 96M -R $ROOT tank $ROOT/tank.img && $RZFS zfs create tank/a || exit
        echo kept > $ROOT/tank/a/file
        unshare --mount --propagation private sh -c '
            touch $ROOT/there
            until test -e $ROOT/go; do sleep 0.1; done
            cat $ROOT/tank/a/file' &
        until test -e $ROOT/there; do sleep 0.1; done
        mount --bind /dev/null /dev/fuse
        $RZFS zfs set acltype=posix tank/a
        $RZFS zfs get -Ho value mounted tank/a
        umount /dev/fuse
        touch $ROOT/go
        wait $!
        $RZFS zpool export -f tank && echo exported";
    let rzfs = Rzfs::new();
    fs::create_dir(rzfs.path("root")).unwrap();
    let mut shell = rzfs.prepared(Command::new("unshare"));
    shell.args(["--mount", "--propagation", "private", "sh", "-c", script]);
    shell.env("RZFS", env!("CARGO_BIN_EXE_rzfs")).env("ROOT", rzfs.path("root"));
    let done = outcome(&mut shell);
    assert_eq!(done.out, "no\nkept\nexported\n", "{done:?}");
}

/// Uses `umount -f`, also where it then reports that the mount is in use; also after a rename of
/// the file system.
#[test]
fn a_child_whose_connection_was_aborted_holds_up_no_export() {
    if !has_root("only root aborts connections by 'umount -f'") {
        return;
    }
    for (before, export) in [
        ("zpool sync tank", "zpool export tank"),
        ("zpool sync tank", "zpool export -f tank"),
        ("zfs rename -u tank/a tank/b", "zpool export tank"),
    ] {
        let (shop, place) = mounted();
        shop.succeed(before);
        let within = File::open(&place).unwrap();
        let mut umount = Command::new("umount");
        assert!(!umount.arg("-f").arg(&place).stderr(Stdio::null()).status().unwrap().success());
        drop(within);
        assert_eq!(statfs(&place).map(drop).unwrap_err(), Errno::NOTCONN);
        shop.succeed(export);
        assert!(!is_mounted(&place) && !is_mounted(&shop.root()));
        shop.judge();
    }
}

/// An aborted mount stays if it contains a mount, and its own process notices last.
#[test]
fn an_outer_mount_whose_connection_was_aborted_goes_by_force() {
    if !has_root("only root aborts connections by 'umount -f'") {
        return;
    }
    let (shop, place) = mounted();
    let mut umount = Command::new("umount");
    assert!(!umount.arg("-f").arg(shop.root()).stderr(Stdio::null()).status().unwrap().success());
    shop.succeed("zpool export -f tank");
    assert!(!is_mounted(&place) && !is_mounted(&shop.root()));
    shop.judge();
}

#[test]
fn nothing_is_mounted_while_a_pool_is_exported() {
    if !mounts_on_mounts() {
        return;
    }
    let (shop, place) = mounted();
    for round in 0..12 {
        let export = std::thread::scope(|scope| {
            let mounting = || (0..3).map(|_| shop.run("zfs mount -a")).collect::<Vec<_>>();
            let mounting = scope.spawn(mounting);
            std::thread::sleep(Duration::from_millis(round * 12));
            let export = shop.run("zpool export tank");
            for told in mounting.join().unwrap() {
                let is_late = told.err.contains("its pool is being let go of");
                assert!(told.status == 0 || is_late, "{told:?}");
            }
            export
        });
        if export.status == 0 {
            assert!(!is_mounted(&place) && !is_mounted(&shop.root()), "round {round}");
            shop.succeed("zpool import -d IMAGES -R ROOT tank");
        }
    }
    shop.succeed("zpool export tank");
    shop.judge();
}

#[test]
fn what_a_killed_process_has_left_can_be_unmounted() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M --export -m / tank A");
    let place = shop.rzfs.path("root");
    for target in ["ROOT", "tank"] {
        shop.succeed("mount A ROOT");
        kill_server(&shop.rzfs, "tank");
        assert!(is_mounted(&place));
        shop.succeed(&format!("umount {target}"));
        assert!(!is_mounted(&place));
    }
    let told = format!("cannot unmount '{}': not currently mounted\n", place.display());
    assert_eq!(shop.refuse("umount ROOT", 1), told);
}
