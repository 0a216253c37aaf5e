//! Requests that wait for a suspended pool do not block others.

use super::{Waiting, answer_of, prompt};
use crate::harness::{CHANGE_IN_MEMORY, PYTHON, has_python, wait_until};
use rustix::fs::{Advice, OFlags, fadvise};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// Reads a file that the kernel has not cached.
fn read_anew(file: &Path) -> Vec<u8> {
    let mut file = File::open(file).unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    let mut contents = Vec::new();
    file.read_to_end(&mut contents).unwrap();
    contents
}

/// Gives requests time to reach the point where they wait.
fn settle() {
    thread::sleep(Duration::from_millis(500));
}

/// Bypasses the kernel's page cache.
const DIRECT: i32 = OFlags::DIRECT.bits() as i32;

#[test]
fn readers_do_not_wait_for_many_direct_writes() {
    let Some(mut waiting) = Waiting::new("wait") else { return };
    // The kernel splits it into eighty requests, and waits for them only after sending the last.
    let long = vec![3; 80 << 20];
    let file = waiting.shop.root().join("fsynced");
    let file = File::options().write(true).custom_flags(DIRECT).open(file).unwrap();
    let written = long.clone();
    waiting.writers.push(thread::spawn(move || file.write_all_at(&written, 0)));
    settle();
    let root = waiting.shop.root();
    answer_of("who reads gets an answer", move || {
        assert_eq!(read_anew(&root.join("kept")), b"kept");
        let direct = File::options().read(true).custom_flags(DIRECT).open(root.join("kept"));
        let mut beginning = vec![0; 4];
        direct.unwrap().read_exact(&mut beginning).unwrap();
        assert_eq!(beginning, b"kept");
    });
    let root = waiting.shop.root();
    waiting.host.resize("400M");
    assert_eq!(prompt(&waiting.shop, "zpool clear tank").status, 0);
    for writer in waiting.writers {
        answer_of("a writer goes on", move || writer.join().unwrap()).unwrap();
    }
    assert!(read_anew(&root.join("fsynced")) == long);
    waiting.shop.succeed("zpool export tank");
    waiting.shop.judge();
}

/// Where data and a hole are behind the first page of a file.
const SEEKS: &str = "
import os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
print(os.lseek(file, 4096, os.SEEK_DATA), os.lseek(file, 4096, os.SEEK_HOLE), flush=True)
";

#[test]
fn who_looks_for_data_does_not_wait_for_what_is_stored_through_mappings() {
    if !has_python() {
        return;
    }
    let mut python = None;
    let prepared = Waiting::prepared(|shop| {
        let (sparse, told) = (shop.root().join("sparse"), shop.rzfs.path("told"));
        File::create_new(&sparse).unwrap().set_len(1 << 20).unwrap();
        let mut command = Command::new(PYTHON);
        command.args(["-c", CHANGE_IN_MEMORY]).args([&sparse, &told]).arg("stored");
        python = Some(command.spawn().unwrap());
        wait_until("it is stored", || told.exists());
    });
    let (Some(waiting), Some(mut python)) = (prepared, python) else { return };
    let sparse = waiting.shop.root().join("sparse");
    // A process of its own, as the kernel writes pages back whenever a descriptor of the file is closed.
    let mut seeking = Command::new(PYTHON);
    seeking.args(["-c", SEEKS]).arg(&sparse).stdout(Stdio::piped());
    let mut seeking = seeking.spawn().unwrap();
    let told = seeking.stdout.take().unwrap();
    let told = answer_of("who looks for data gets an answer", move || {
        BufReader::new(told).lines().next().unwrap().unwrap()
    });
    // It cannot be written back: all of the file may be data.
    assert_eq!(told, "4096 1048576");
    waiting.host.resize("400M");
    assert_eq!(prompt(&waiting.shop, "zpool clear tank").status, 0);
    answer_of("it ends", move || seeking.wait().unwrap());
    python.kill().unwrap();
    python.wait().unwrap();
    for writer in waiting.writers {
        answer_of("a writer goes on", move || writer.join().unwrap()).unwrap();
    }
    assert_eq!(fs::read(&sparse).unwrap()[..6], *b"stored");
    waiting.shop.succeed("zpool export tank");
    waiting.shop.judge();
}

#[test]
fn readers_do_not_wait_for_changes_that_have_to_be_durable() {
    let prepared = Waiting::prepared(|shop| {
        shop.succeed("zfs set sync=always tank");
        for number in 0..8 {
            let directory = shop.root().join(format!("directory{number}"));
            fs::create_dir(&directory).unwrap();
            fs::write(directory.join("old"), "old").unwrap();
        }
    });
    let Some(mut waiting) = prepared else { return };
    let root = waiting.shop.root();
    for number in 0..8 {
        // The kernel keeps a directory locked while a name in it is being changed.
        let directory = root.join(format!("directory{number}"));
        waiting.writers.push(thread::spawn(move || match number % 4 {
            0 => File::create_new(directory.join("new"))?.write_all(b"new"),
            1 => fs::create_dir(directory.join("new")),
            2 => fs::rename(directory.join("old"), directory.join("new")),
            _ => fs::remove_file(directory.join("old")),
        }));
    }
    settle();
    let read = root.clone();
    answer_of("who reads gets an answer", move || {
        assert_eq!(read_anew(&read.join("kept")), b"kept");
        assert!(read.metadata().unwrap().is_dir());
    });
    let ended = waiting.writers.iter().filter(|writer| writer.is_finished()).count();
    assert_eq!(ended, 0, "nothing is durable");
    waiting.host.resize("400M");
    assert_eq!(prompt(&waiting.shop, "zpool clear tank").status, 0);
    for writer in waiting.writers {
        answer_of("a writer goes on", move || writer.join().unwrap()).unwrap();
    }
    assert_eq!(fs::read(root.join("directory4/new")).unwrap(), b"new");
    assert!(root.join("directory1/new").is_dir() && root.join("directory2/new").is_file());
    assert!(!root.join("directory3/old").exists());
    waiting.shop.succeed("zpool export tank");
    waiting.shop.judge();
}

#[test]
fn what_waits_is_dropped_when_its_mount_is_aborted() {
    let Some(waiting) = Waiting::new("wait") else { return };
    let root = waiting.shop.root();
    let mut abort = Command::new("umount");
    assert!(abort.arg("-f").arg(&root).status().is_ok());
    for writer in waiting.writers {
        answer_of("a writer is told", move || writer.join().unwrap()).unwrap_err();
    }
    // Whatever is no longer in use is unmounted.
    let mut rest = Command::new("umount");
    let _ = rest.arg("-l").arg(&root).output();
    waiting.host.resize("400M");
    assert_eq!(prompt(&waiting.shop, "zpool clear tank").status, 0);
    waiting.shop.succeed("zpool sync tank");
    waiting.shop.succeed("zfs mount tank");
    for number in 0..waiting.count {
        let len = Waiting::file(&root, number).metadata().unwrap().len();
        assert_eq!(len, super::OLD as u64, "nobody waits for the rest");
    }
    waiting.shop.succeed("zpool export tank");
    waiting.shop.judge();
}
