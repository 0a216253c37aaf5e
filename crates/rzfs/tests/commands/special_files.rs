//! Files that are no files: nothing waits for them, and nothing reads them without end.

use crate::harness::{Outcome, Rzfs, outcome};
use crate::workshop::Workshop;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rzfs_testkit::unpack_sample;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs the binary for at most a few seconds; what takes longer has a status of `timeout`.
fn soon(rzfs: &Rzfs, words: &[&str]) -> Outcome {
    let mut command = rzfs.prepared(Command::new("timeout"));
    outcome(command.args(["-s", "KILL", "20", env!("CARGO_BIN_EXE_rzfs")]).args(words))
}

fn fifo(rzfs: &Rzfs) -> PathBuf {
    let path = rzfs.path("fifo");
    mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
    path
}

#[test]
fn keys_that_a_pool_names_are_read_from_files_only() {
    let shop = Workshop::new();
    let key = shop.rzfs.path("key");
    fs::write(&key, "open sesame, please\n").unwrap();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    let good = format!("-o keyformat=passphrase -o keylocation=file://{}", key.display());
    shop.succeed(&format!("zfs create -u -o encryption=on {good} tank/secret"));
    shop.succeed("zfs unload-key tank/secret");
    let fifo = fifo(&shop.rzfs);
    for special in [fifo.as_path(), Path::new("/dev/zero")] {
        let location = format!("keylocation=file://{}", special.display());
        shop.succeed(&format!("zfs set {location} tank/secret"));
        let loaded = soon(&shop.rzfs, &["zfs", "load-key", "tank/secret"]);
        let reason = "Key load error: Failed to open key material file: not a regular file\n";
        assert_eq!((loaded.status, &*loaded.err), (255, reason));
    }
    // What the user names may be another program's, and does not have to end.
    let loaded = soon(&shop.rzfs, &["zfs", "load-key", "-L", "file:///dev/zero", "tank/secret"]);
    assert_eq!(loaded.status, 255, "{loaded:?}");
    let mut shell = shop.rzfs.prepared(Command::new("sh"));
    let script = "cat \"$1\" | timeout 20 \"$0\" zfs load-key -L file:///dev/stdin tank/secret";
    let loaded = outcome(shell.args(["-c", script, env!("CARGO_BIN_EXE_rzfs")]).arg(&key));
    assert_eq!((loaded.status, loaded.err.as_str()), (0, ""));
    shop.succeed("zpool export tank");
}

#[test]
fn a_key_may_come_from_another_program() {
    let rzfs = Rzfs::new();
    let (image, directory) = (rzfs.path("garden.img"), rzfs.path("m"));
    unpack_sample("garden", &image).unwrap();
    let script =
        "echo not the key | { exec 9<&0; timeout 20 \"$0\" mount -o ro -k /dev/fd/9 \"$@\"; }";
    let mut shell = rzfs.prepared(Command::new("sh"));
    shell.args(["-c", script, env!("CARGO_BIN_EXE_rzfs")]);
    let told = outcome(shell.args([&image, &directory]));
    assert_eq!(told.status, 1, "{told:?}");
    assert!(told.err.contains("is not the key of any encryption root"), "{told:?}");
}

#[test]
fn zdb_reads_labels_and_cache_files_of_files_only() {
    let rzfs = Rzfs::new();
    let fifo = fifo(&rzfs);
    let fifo = fifo.to_str().unwrap();
    for special in [fifo, "/dev/zero", rzfs.path("").to_str().unwrap()] {
        let label = soon(&rzfs, &["zdb", "-l", special]);
        let reason = "neither a regular file nor a block device";
        assert_eq!(label.status, 1, "{special}: {label:?}");
        assert!(label.err.contains(reason), "{special}: {label:?}");
        let cache = soon(&rzfs, &["zdb", "-C", "-U", special]);
        assert_eq!(cache.status, 1, "{special}: {cache:?}");
        assert!(cache.err.contains("not a regular file"), "{special}: {cache:?}");
    }
    let large = rzfs.path("large");
    fs::File::create(&large).unwrap().set_len(1 << 40).unwrap();
    let cache = soon(&rzfs, &["zdb", "-C", "-U", large.to_str().unwrap()]);
    assert_eq!(cache.status, 1, "{cache:?}");
    assert!(cache.err.contains("file too large"), "{cache:?}");
}

#[test]
fn processors_are_not_kept_awake_by_a_pipe() {
    let rzfs = Rzfs::new();
    let (image, directory) = (rzfs.path("garden.img"), rzfs.path("m"));
    unpack_sample("garden", &image).unwrap();
    let mut mount = rzfs.prepared(Command::new("timeout"));
    mount.env("RZFS_LATENCY_DEVICE", fifo(&rzfs));
    mount.args(["-s", "KILL", "20", env!("CARGO_BIN_EXE_rzfs"), "mount", "-o", "ro"]);
    let mounted = outcome(mount.args([&image, &directory]));
    assert_eq!(mounted.status, 0, "{mounted:?}");
    rzfs.succeed(["umount", "garden"]);
}
