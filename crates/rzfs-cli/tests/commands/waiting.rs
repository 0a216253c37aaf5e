//! `zfs wait`: until the space of removed files is free.

use crate::harness::kill_server;
use crate::workshop::Workshop;
use std::fs::{self, File};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// The time limit for anything that a test waits for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running command; it is killed if the test fails before its end.
struct Running(Child);

impl Running {
    fn new(shop: &Workshop, words: &[&str]) -> Self {
        let mut command = shop.rzfs.prepared(Command::new(env!("CARGO_BIN_EXE_rzfs")));
        Self(command.args(words).spawn().unwrap())
    }

    fn goes_on(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Waits until it has ended with success.
    fn succeed(mut self) {
        let start = Instant::now();
        while self.goes_on() {
            assert!(start.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn removed_files_that_are_open_are_waited_for() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    shop.succeed("zfs create tank/a");
    let path = shop.root().join("a/file");
    fs::write(&path, vec![1; 1 << 20]).unwrap();
    shop.succeed("zfs wait tank/a");
    let open = File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let mut waiting = Running::new(&shop, &["zfs", "wait", "-t", "deleteq", "tank/a"]);
    let mut broken_off = Running::new(&shop, &["zfs", "wait", "tank/a"]);
    // Another file system has nothing to wait for, and the pool handles other requests meanwhile.
    shop.succeed("zfs wait tank");
    std::thread::sleep(Duration::from_millis(500));
    assert!(waiting.goes_on() && broken_off.goes_on());
    drop(broken_off);
    drop(open);
    waiting.succeed();
    shop.succeed("zfs wait -t deleteq,deleteq tank/a");
    shop.succeed("zpool export tank");
}

/// Nothing is freed in a file system that is not in use, or is read-only.
#[test]
fn file_systems_in_which_nothing_goes_on_are_not_waited_for() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    shop.succeed("zfs create tank/a");
    let path = shop.root().join("a/file");
    fs::write(&path, "contents").unwrap();
    let open = File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    shop.succeed("zpool sync tank");
    kill_server(&shop.rzfs, "tank");
    drop(open);
    shop.succeed("zpool import -f -d IMAGES -R ROOT -o readonly=on tank");
    shop.succeed("zfs wait tank/a");
    shop.succeed("zpool export tank");
    shop.succeed("zpool import -f -d IMAGES -N tank");
    shop.succeed("zfs wait tank/a");
    shop.succeed("zpool export tank");
}

#[test]
fn what_cannot_be_waited_for_is_refused_in_the_words_of_openzfs() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    shop.succeed("zfs snapshot tank@s");
    let usage = "usage:\n\twait [-t <activity>] <filesystem>\n";
    for (line, status, told) in [
        ("zfs wait", 2, "missing 'filesystem' argument\n"),
        ("zfs wait -t bogus", 2, "invalid activity 'bogus'\n"),
        ("zfs wait -t deleteq,bogus tank", 2, "invalid activity 'bogus'\n"),
        ("zfs wait tank tank", 2, "too many arguments\n"),
        ("zfs wait -t", 2, "missing argument for 't' option\n"),
        ("zfs wait nosuch", 1, "cannot open 'nosuch': dataset does not exist\n"),
        ("zfs wait tank/nosuch", 1, "cannot open 'tank/nosuch': dataset does not exist\n"),
        (
            "zfs wait tank@s",
            1,
            "cannot open 'tank@s': snapshot delimiter '@' is not expected here\n",
        ),
    ] {
        let usage = if status == 2 { usage } else { "" };
        assert_eq!(shop.refuse(line, status), format!("{told}{usage}"), "{line}");
    }
    shop.succeed("zpool export tank");
}

#[test]
fn volumes_have_no_files_to_wait_for() {
    let shop = Workshop::new();
    rzfs_testkit::unpack_sample("volume-logs", shop.image("A").as_ref()).unwrap();
    shop.succeed("zpool import -f -d IMAGES -R ROOT vols tank");
    let volumes = shop.succeed("zfs list -Ho name -t volume");
    let volume = volumes.lines().next().unwrap();
    let told =
        format!("cannot open '{volume}': operation not applicable to datasets of this type\n");
    assert_eq!(shop.refuse(&format!("zfs wait {volume}"), 1), told);
    shop.succeed("zpool export tank");
}
