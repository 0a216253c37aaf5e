//! `zfs project`: projects of files are listed, checked, set and cleared through mounts.

use crate::harness::{Outcome, outcome};
use crate::ordinary::Ordinary;
use crate::workshop::Workshop;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

/// A file system `tank/a` with files `f0`, `f1` and `pd/s/deep`.
fn shop() -> Workshop {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    shop.succeed("zfs create tank/a");
    let root = shop.root().join("a");
    fs::create_dir_all(root.join("pd/s")).unwrap();
    for file in ["f0", "f1", "pd/s/deep"] {
        fs::write(root.join(file), "contents").unwrap();
    }
    shop
}

/// Runs a line in the file system; if it takes too long, it has the exit status of `timeout`.
fn run(shop: &Workshop, line: &str) -> Outcome {
    let mut command = shop.rzfs.prepared(Command::new("timeout"));
    command.args(["-s", "KILL", "20", env!("CARGO_BIN_EXE_rzfs")]).args(line.split(' '));
    outcome(command.current_dir(shop.root().join("a")))
}

fn succeed(shop: &Workshop, line: &str) -> String {
    let done = run(shop, line);
    assert_eq!((done.status, done.err.as_str()), (0, ""), "{line}: {done:?}");
    done.out
}

/// Lines or parts as an unordered set.
fn sorted(text: &str, end: char) -> BTreeSet<&str> {
    text.split_terminator(end).collect()
}

#[test]
fn projects_are_set_listed_checked_and_cleared() {
    let shop = shop();
    // OpenZFS prints the same.
    assert_eq!(succeed(&shop, "zfs project -p 17 -s f1"), "");
    assert_eq!(succeed(&shop, "zfs project f1 f0"), "   17 P f1\n    0 - f0\n");
    assert_eq!(
        succeed(&shop, "zfs project -c -p 17 f1 f0"),
        "f0 - project ID is not set properly (0/17)\nf0 - project inherit flag is not set\n"
    );
    assert_eq!(succeed(&shop, "zfs project -0 -c -p 5 f1"), "f1\0");
    assert_eq!(succeed(&shop, "zfs project -p 9 -r -s pd"), "");
    let all = ["    9 P pd", "    9 P pd/s", "    9 P pd/s/deep"];
    let listed = succeed(&shop, "zfs project -r pd");
    assert!(listed.starts_with(all[0]), "{listed}");
    assert_eq!(sorted(&listed, '\n'), BTreeSet::from(all));
    assert_eq!(sorted(&succeed(&shop, "zfs project pd"), '\n'), BTreeSet::from([all[0], all[1]]));
    assert_eq!(succeed(&shop, "zfs project -r -d pd/"), "    9 P pd/\n");
    assert_eq!(succeed(&shop, "zfs project -c -r pd"), "");
    assert_eq!(succeed(&shop, "zfs project -C -k -r pd"), "");
    assert_eq!(succeed(&shop, "zfs project pd/s/"), "    9 - pd/s/\n    9 - pd/s/deep\n");
    // Everything below a directory gets the directory's project.
    assert_eq!(succeed(&shop, "zfs project -p 4 pd"), "");
    let checked = succeed(&shop, "zfs project -0 -c -r pd");
    assert_eq!(sorted(&checked, '\0'), BTreeSet::from(["pd", "pd/s", "pd/s/deep"]));
    assert_eq!(succeed(&shop, "zfs project -s -r pd"), "");
    assert_eq!(succeed(&shop, "zfs project -c -r -p 4 pd"), "");
    assert_eq!(succeed(&shop, "zfs project -C -r pd"), "");
    assert_eq!(succeed(&shop, "zfs project pd/s"), "    0 - pd/s\n    0 - pd/s/deep\n");
    shop.succeed("zpool export tank");
    shop.judge();
}

#[test]
fn new_files_inherit_projects_and_their_space_is_counted() {
    let shop = shop();
    succeed(&shop, "zfs project -p 9 -s pd");
    let file = shop.root().join("a/pd/new");
    fs::write(&file, vec![1; 100_000]).unwrap();
    assert_eq!(succeed(&shop, "zfs project pd/new"), "    9 P pd/new\n");
    shop.succeed("zpool sync tank");
    let listed = shop.succeed("zfs projectspace -Ho name,objused tank/a");
    assert!(listed.lines().any(|line| line == "9\t2"), "{listed}");
    shop.succeed("zpool export tank");
}

#[test]
fn only_files_and_directories_of_the_file_system_get_projects() {
    let shop = shop();
    let root = shop.root().join("a");
    let outside = shop.rzfs.path("outside");
    fs::write(&outside, "contents").unwrap();
    symlink(&outside, root.join("pd/link")).unwrap();
    symlink("../f0", root.join("pd/inside")).unwrap();
    symlink("..", root.join("pd/up")).unwrap();
    mknodat(CWD, root.join("pd/pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    shop.succeed("zfs create tank/a/b");
    fs::write(root.join("b/other"), "contents").unwrap();
    shop.succeed("zfs set snapdir=visible tank/a");
    shop.succeed("zfs snapshot tank/a@then");
    assert_eq!(succeed(&shop, "zfs project -p 9 -r -s ."), "");
    assert_eq!(succeed(&shop, "zfs project f0"), "    9 P f0\n");
    let listed = succeed(&shop, "zfs project -r .");
    let own = [".", "./f0", "./f1", "./pd", "./pd/s", "./pd/s/deep"];
    let own: Vec<_> = own.iter().map(|path| format!("    9 P {path}")).collect();
    assert_eq!(sorted(&listed, '\n'), own.iter().map(String::as_str).collect());
    assert_eq!(succeed(&shop, "zfs project b"), "    0 - b\n    0 - b/other\n");
    for special in ["pd/link", "pd/pipe", "/dev/null"] {
        let refused = run(&shop, &format!("zfs project -p 3 f1 {special}"));
        let told = format!("{special}: only files and directories have projects\n");
        assert_eq!((refused.status, refused.err), (255, told));
    }
    assert_eq!(succeed(&shop, "zfs project f1"), "    3 P f1\n");
    shop.succeed("zpool export tank");
}

#[test]
fn what_has_no_project_is_told_and_the_others_are_treated() {
    let shop = shop();
    let told = run(&shop, "zfs project nosuch f1");
    assert_eq!(told.status, 255, "{told:?}");
    assert_eq!(told.out, "    0 - f1\n");
    assert_eq!(told.err, "failed to stat nosuch: No such file or directory\n");
    let proc = run(&shop, "zfs project /proc/version");
    assert_eq!(proc.status, 255, "{proc:?}");
    assert!(proc.err.starts_with("failed to get the project of /proc/version: "), "{proc:?}");
    shop.succeed("zfs set readonly=on tank/a");
    let read_only = run(&shop, "zfs project -p 7 f1");
    let reason = "failed to set the project of f1: Read-only file system\n";
    assert_eq!((read_only.status, read_only.err.as_str()), (255, reason));
    shop.succeed("zpool export tank");
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let shop = Workshop::new();
    let usage = "usage:\n\
                 \tproject [-d|-r] <directory|file ...>\n\
                 \tproject -c [-0] [-d|-r] [-p id] <directory|file ...>\n\
                 \tproject -C [-k] [-r] <directory ...>\n\
                 \tproject [-p id] [-r] [-s] <directory ...>\n";
    for (line, told) in [
        ("zfs project", ""),
        ("zfs project -p 5", "missing file or directory target(s)\n"),
        ("zfs project -p -1 f", "invalid project ID '-1'\n"),
        ("zfs project -p 4294967295 f", "invalid project ID '4294967295'\n"),
        ("zfs project -0 f", "'-0' has no meaning when projects are listed\n"),
        ("zfs project -k f", "'-k' has no meaning when projects are listed\n"),
        ("zfs project -c -C f", "'-c' has no meaning with '-C'\n"),
        ("zfs project -c -s f", "'-s' has no meaning with '-c'\n"),
        ("zfs project -C -p 5 f", "'-p' has no meaning with '-C'\n"),
        ("zfs project -s -d f", "'-d' has no meaning when projects are set\n"),
    ] {
        assert_eq!(shop.refuse(line, 2), format!("{told}{usage}"), "{line}");
    }
}

/// Only root makes mounts in mounts; an ordinary user's file systems share one.
#[test]
fn file_systems_that_share_a_mount_are_left_alone() {
    let user = Ordinary::new();
    user.succeed("zfs create z/c");
    user.shell("mkdir $M/d && echo own > $M/d/file && echo other > $M/c/file");
    let root = user.path("m");
    user.succeed(&format!("zfs project -p 5 -s -r {root}"));
    let listed = user.succeed(&format!("zfs project -r {root}"));
    let own = ["", "/d", "/d/file"].map(|below| format!("    5 P {root}{below}"));
    assert_eq!(sorted(&listed, '\n'), own.iter().map(String::as_str).collect());
    let other = user.succeed(&format!("zfs project {root}/c"));
    assert_eq!(other, format!("    0 - {root}/c\n    0 - {root}/c/file\n"));
    user.succeed("umount z");
}
