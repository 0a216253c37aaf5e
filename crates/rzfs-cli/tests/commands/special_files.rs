//! Files that are not regular: nothing waits for them or reads them forever.

use crate::harness::{Outcome, PYTHON, Rzfs, has_python, outcome};
use crate::workshop::Workshop;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rzfs_testkit::{has_root, unpack_sample};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs the binary with a time limit; if it is exceeded, the status is that of `timeout`.
fn soon(rzfs: &Rzfs, words: &[&str]) -> Outcome {
    let mut command = rzfs.prepared(Command::new("timeout"));
    outcome(command.args(["-s", "KILL", "20", env!("CARGO_BIN_EXE_rzfs")]).args(words))
}

fn fifo(rzfs: &Rzfs) -> PathBuf {
    let path = rzfs.path("fifo");
    fifo_at(&path);
    path
}

fn fifo_at(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap();
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
    // A key file may be a pipe of another program, and may never end.
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

/// Whether a process has a file open.
fn has_open(process: u32, file: &Path) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let mut targets = descriptors.map(|one| fs::read_link(one.unwrap().path()));
    targets.any(|target| target.is_ok_and(|target| target == file))
}

#[test]
fn keys_in_descriptors_and_pipes_are_read_and_let_go_of() {
    let shop = Workshop::new();
    let key = shop.rzfs.path("key");
    fs::write(&key, "open sesame, please\n").unwrap();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    let how = format!("-o keyformat=passphrase -o keylocation=file://{}", key.display());
    shop.succeed(&format!("zfs create -u -o encryption=on {how} tank/secret"));
    shop.succeed("zfs set keylocation=prompt tank/secret");
    shop.succeed("zpool export tank");
    let scripts = [
        "exec 9<\"$1\"; \"$0\" mount -o ro -k tank/secret=/dev/fd/9 \"$2\" \"$3\"",
        "\"$0\" mount -o ro -k /dev/stdin \"$2\" \"$3\" <\"$1\"",
        "cat \"$1\" | \"$0\" mount -o ro -k /dev/stdin \"$2\" \"$3\"",
    ];
    for script in scripts {
        let mut shell = shop.rzfs.prepared(Command::new("sh"));
        shell.args(["-c", script, env!("CARGO_BIN_EXE_rzfs")]).arg(&key);
        let mounted = outcome(shell.arg(shop.image("A")).arg(shop.rzfs.path("m")));
        assert_eq!(mounted.status, 0, "{script}: {mounted:?}");
        let status = shop.succeed("zfs get -Ho value keystatus tank/secret");
        assert_eq!(status, "available\n", "{script}");
        assert!(!has_open(shop.rzfs.daemon("tank"), &key), "{script}");
        shop.succeed("umount tank");
    }
}

#[test]
fn images_may_be_given_as_descriptors_of_files_that_have_names() {
    let shop = Workshop::new();
    let run = |script: &str| {
        let mut shell = shop.rzfs.prepared(Command::new("sh"));
        shell.args(["-c", script, env!("CARGO_BIN_EXE_rzfs")]);
        outcome(shell.arg(shop.image("A")))
    };
    fs::File::create(shop.image("A")).unwrap().set_len(96 << 20).unwrap();
    let created = run("exec 9<>\"$1\"; \"$0\" zpool create -m none tank /dev/fd/9");
    assert_eq!((created.status, created.err.as_str()), (0, ""));
    let status = shop.succeed("zpool status tank");
    assert!(status.contains(&shop.image("A")) && !status.contains("/dev/fd"), "{status}");
    shop.succeed("zpool export tank");
    for device in ["/dev/fd/9", "/proc/self/fd/9", "/dev/stdin"] {
        let script = format!("exec 9<\"$1\"; \"$0\" zpool import -d {device} tank <\"$1\"");
        let imported = run(&script);
        assert_eq!((imported.status, imported.err.as_str()), (0, ""), "{device}");
        shop.succeed("zpool export tank");
    }
    let nameless = run("exec 9<\"$1\"; rm \"$1\"; \"$0\" zpool import -d /dev/fd/9 tank");
    assert_eq!(nameless.status, 1, "{nameless:?}");
    assert!(nameless.err.starts_with("cannot open /dev/fd/9: "), "{nameless:?}");
    let missing = run("exec 9<&-; \"$0\" zpool import -d /dev/fd/9 tank");
    let reason = "cannot open /dev/fd/9: No such file or directory\n";
    assert_eq!((missing.status, missing.err.as_str()), (1, reason));
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

#[test]
fn what_is_wrong_with_something_that_is_no_device_is_told() {
    let rzfs = Rzfs::new();
    let (fifo, socket, empty) = (fifo(&rzfs), rzfs.path("socket"), rzfs.path("empty"));
    let _listener = UnixListener::bind(&socket).unwrap();
    fs::create_dir(&empty).unwrap();
    let (target, mounts) = ("tank:/", rzfs.path("m"));
    for special in [fifo.as_path(), &socket, Path::new("/dev/null")] {
        let special = special.to_str().unwrap();
        let reason = "neither a block device nor a regular file";
        let unopened = format!("cannot open {special}: {reason}\n");
        let nothing = format!("no pool was found on {special}\n");
        for command in ["ls", "cat", "stat", "find"] {
            let told = soon(&rzfs, &[command, "-d", special, target]);
            let expected = format!("{unopened}rzfs {command}: {nothing}");
            assert_eq!((told.status, told.err), (1, expected), "{special}");
        }
        let mount = soon(&rzfs, &["mount", "-o", "ro", special, mounts.to_str().unwrap()]);
        assert_eq!((mount.status, mount.err), (1, format!("{unopened}{nothing}")), "{special}");
        for words in [
            &["zpool", "status", "-d", special, "tank"] as &[_],
            &["zpool", "import", "-d", special, "tank"],
            &["zfs", "list", "-d", special, "tank"],
            &["zdb", "-e", "-p", special, "tank"],
        ] {
            let told = soon(&rzfs, words);
            assert_eq!(told.status, 1, "{words:?}: {told:?}");
            assert!(told.err.contains(unopened.trim_end()), "{words:?}: {told:?}");
        }
    }
    let empty = empty.to_str().unwrap();
    let told = soon(&rzfs, &["ls", "-d", empty, target]);
    let nothing = format!("rzfs ls: no pool was found on {empty}\n");
    assert_eq!((told.status, told.err), (1, nothing));
}

#[test]
fn links_and_pipes_with_several_names_stay_one_in_a_copy() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    let root = shop.root();
    std::os::unix::fs::symlink("nowhere", root.join("link")).unwrap();
    fifo_at(&root.join("pipe"));
    for name in ["link", "pipe"] {
        rustix::fs::link(root.join(name), root.join(format!("{name}-again"))).unwrap();
    }
    shop.succeed("zpool export tank");
    let out = shop.rzfs.path("out");
    fs::create_dir(&out).unwrap();
    let told = shop.rzfs.run(["cp", "-a", "-d", &shop.image("A"), "tank:/", out.to_str().unwrap()]);
    assert_eq!((told.status, told.err.as_str()), (0, ""));
    for name in ["link", "pipe"] {
        let is = |name: &str| {
            let metadata = fs::symlink_metadata(out.join(name)).unwrap();
            (metadata.ino(), metadata.nlink())
        };
        assert_eq!(is(name), is(&format!("{name}-again")));
        assert_eq!(is(name).1, 2);
    }
}

/// `ZFS_IOC_SETDOSFLAGS` with the immutable flag.
const MAKE_IMMUTABLE: &str = "import fcntl, struct, sys\n\
    fcntl.ioctl(open(sys.argv[1]), 0x40088302, struct.pack('Q', 1 << 36))";

#[test]
fn root_of_a_user_namespace_sets_no_flags_that_bind_everybody() {
    if !has_root("there is another root") || !has_python() {
        return;
    }
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    let file = shop.root().join("file");
    fs::write(&file, "").unwrap();
    let set = |mut command: Command| {
        command.args(["-c", MAKE_IMMUTABLE]).arg(&file);
        outcome(&mut command)
    };
    let mut apart = Command::new("unshare");
    apart.arg("-Ur");
    if outcome(apart.arg("true")).status != 0 {
        eprintln!("skipped: no user namespaces");
        return;
    }
    let mut apart = Command::new("unshare");
    apart.args(["-Ur", PYTHON]);
    let refused = set(apart);
    assert!(refused.err.contains("Operation not permitted"), "{refused:?}");
    fs::write(&file, "changed").unwrap();
    let done = set(Command::new(PYTHON));
    assert_eq!((done.status, done.err.as_str()), (0, ""), "{done:?}");
    assert!(fs::write(&file, "").is_err());
}
