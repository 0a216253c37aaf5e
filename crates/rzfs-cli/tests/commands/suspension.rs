//! Pools with failing devices.

mod commands;
mod deleted;
mod ending;
mod forced;
mod logs;
mod reports;
mod requests;
mod returned;
mod shared;
mod silent;

use crate::harness::{Outcome, is_mounted, kill_server, outcome, wait_until};
use crate::workshop::Workshop;
use rustix::fs::{Advice, fadvise};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use rzfs_testkit::has_root;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A host file system of limited size, which is removed on drop.
struct SmallHost(std::path::PathBuf);

impl SmallHost {
    /// Mounts it below the images; `None` if mounting is not allowed.
    fn mount(place: std::path::PathBuf, size: &str) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(&place);
        if mount.output().is_ok_and(|output| output.status.success()) {
            return Some(Self(place));
        }
        assert!(!has_root("only root mounts a file system of this size"), "tmpfs");
        None
    }

    fn resize(&self, size: &str) {
        let mut mount = Command::new("mount");
        mount.args(["-o", &format!("remount,size={size}")]).arg(&self.0);
        assert!(mount.status().unwrap().success());
    }

    /// Enlarges the host. The pool `tank`, which is no longer open, is imported, still has the file
    /// `kept`, and has no errors.
    fn recover(&self, shop: &Workshop) {
        self.resize("400M");
        shop.succeed("zpool import -f -d IMAGES -R ROOT tank");
        assert_eq!(fs::read_to_string(shop.root().join("kept")).unwrap(), "kept");
        shop.succeed("zpool export tank");
        shop.judge();
    }
}

impl Drop for SmallHost {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_pool_waits_while_its_host_is_full_and_goes_on_after_clear() {
    let shop = Workshop::new();
    let Some(host) = SmallHost::mount(shop.rzfs.path("images"), "48M") else { return };
    shop.succeed("zpool create --size 256M -R ROOT -O compression=off tank A");
    let file = shop.root().join("large");
    let writer = {
        let file = file.clone();
        std::thread::spawn(move || fs::write(file, vec![7; 64 << 20]))
    };
    wait_until("the pool is suspended", || {
        shop.run("zpool get -Ho value health tank").out == "SUSPENDED\n"
    });
    let status = shop.succeed("zpool status tank");
    for text in [" state: SUSPENDED\n", "do not take what is written", "ZFS-8000-HC"] {
        assert!(status.contains(text), "{text}: {status}");
    }
    assert!(!shop.succeed("zpool status -x").contains("healthy"));
    assert_eq!(
        shop.refuse("zpool export tank", 1),
        "cannot export 'tank': pool I/O is currently suspended\n"
    );
    assert!(shop.refuse("zfs create tank/x", 1).contains("pool I/O is currently suspended"));
    assert_eq!(
        shop.refuse("zpool clear tank", 1),
        "cannot clear errors for tank: I/O error\n",
        "the host is still full"
    );
    assert_eq!(
        shop.refuse("zpool clear tank nothing", 1),
        "cannot clear errors for nothing: no such device in pool\n"
    );
    host.resize("400M");
    shop.succeed("zpool clear tank");
    writer.join().unwrap().unwrap();
    assert_eq!(fs::read(&file).unwrap(), vec![7; 64 << 20]);
    assert_eq!(shop.succeed("zpool get -Ho value health tank"), "ONLINE\n");
    assert!(shop.succeed("zpool events").contains("sysevent.fs.zfs.vdev_clear"));
    shop.succeed("zpool export tank");
    shop.judge();
}

#[test]
fn an_import_that_cannot_replay_its_log_gives_the_pool_up_and_can_be_tried_again() {
    let shop = Workshop::new();
    let Some(host) = SmallHost::mount(shop.rzfs.path("images"), "80M") else { return };
    shop.succeed("zpool create --size 300M -R ROOT -O compression=off tank A");
    let files: Vec<_> = (0..100).map(|number| shop.root().join(number.to_string())).collect();
    for path in &files {
        let mut file = File::create(path).unwrap();
        file.write_all(&[7; 120_000]).unwrap();
        file.sync_all().unwrap();
    }
    kill_server(&shop.rzfs, "tank");
    let filler = shop.rzfs.path("images").join("filler");
    drop(fs::write(&filler, vec![7; 80 << 20]));
    let filled = fs::metadata(&filler).unwrap().len();
    // Enough room for the first txg, but not for the replay.
    File::options().write(true).open(&filler).unwrap().set_len(filled - (300 << 10)).unwrap();
    let [images, root] = ["images", "root"].map(|name| shop.rzfs.path(name));
    let (images, root) = (images.display(), root.display());
    let refused = prompt(&shop, &format!("zpool import -f -d {images} -R {root} tank"));
    assert_eq!(refused.status, 1, "{refused:?}");
    assert!(refused.err.contains("No space left on device"), "{refused:?}");
    assert_eq!(shop.run("zpool list -Ho name").out, "");
    fs::remove_file(&filler).unwrap();
    shop.succeed("zpool import -f -d IMAGES -R ROOT tank");
    for path in &files {
        assert_eq!(fs::read(path).unwrap(), vec![7; 120_000], "{path:?}");
    }
    shop.succeed("zpool export tank");
    host.resize("400M");
    shop.judge();
}

/// Returns the result of `ask`. An operation on a suspended pool must end by itself; here it cannot
/// make a test wait forever.
fn answer_of<T: Send + 'static>(what: &str, ask: impl FnOnce() -> T + Send + 'static) -> T {
    let asking = thread::spawn(ask);
    wait_until(what, || asking.is_finished());
    asking.join().unwrap()
}

/// A command that must not wait for a pool.
fn prompt(shop: &Workshop, line: &str) -> Outcome {
    const PATIENCE: &str = "60";
    let mut command = shop.rzfs.prepared(Command::new("timeout"));
    command.args(["-s", "KILL", PATIENCE, env!("CARGO_BIN_EXE_rzfs")]).args(line.split(' '));
    let outcome = outcome(&mut command);
    const KILLED: i32 = 137;
    assert!(![-1, KILLED].contains(&outcome.status), "{line} waits: {outcome:?}");
    outcome
}

/// The length of the files of [`Waiting`], and of what is appended.
const OLD: usize = 64 << 10;
const NEW: usize = 3 << 20;

/// A suspended pool `tank`, whose image is on a full host, and threads that write to it.
struct Waiting {
    shop: Workshop,
    host: SmallHost,
    count: usize,
    /// Threads that append to files, more than there are processors.
    writers: Vec<JoinHandle<io::Result<()>>>,
    /// The thread whose data has no room on the host; it may have fitted into memory.
    filler: JoinHandle<io::Result<()>>,
}

impl Waiting {
    /// `None` if mounting is not allowed.
    fn new(failmode: &str) -> Option<Self> {
        Self::prepared(|shop| {
            shop.succeed(&format!("zpool set failmode={failmode} tank"));
        })
    }

    /// The same, after `prepare` has run on the pool.
    fn prepared(prepare: impl FnOnce(&Workshop)) -> Option<Self> {
        let shop = Workshop::new();
        let host = SmallHost::mount(shop.rzfs.path("images"), "48M")?;
        shop.succeed("zpool create --size 512M -R ROOT -O compression=off -O relatime=off tank A");
        prepare(&shop);
        let root = shop.root();
        fs::write(root.join("kept"), "kept").unwrap();
        let count = 2 * thread::available_parallelism().map_or(1, usize::from);
        let files: Vec<File> = (0..count)
            .map(|number| {
                let mut file = File::create_new(Self::file(&root, number)).unwrap();
                file.write_all(&vec![1; OLD]).unwrap();
                file
            })
            .collect();
        shop.succeed("zpool sync");
        let late = File::create_new(root.join("fsynced")).unwrap();
        (&late).write_all(b"fsynced").unwrap();
        late.sync_all().unwrap();
        // Some of it is written before the host is found full.
        let filler = {
            let file = root.join("filler");
            thread::spawn(move || fs::write(file, vec![7; 64 << 20]))
        };
        wait_until("the pool is suspended", || {
            shop.run("zpool get -Ho value health tank").out == "SUSPENDED\n"
        });
        let start = Arc::new(Barrier::new(count + 1));
        let write = |mut file: File| {
            let start = Arc::clone(&start);
            thread::spawn(move || {
                start.wait();
                file.write_all(&vec![2; NEW])
            })
        };
        let writers = files.into_iter().map(write).collect();
        start.wait();
        // Give them time to reach the point where they wait.
        thread::sleep(Duration::from_millis(500));
        Some(Self { shop, host, count, writers, filler })
    }

    fn file(root: &Path, number: usize) -> std::path::PathBuf {
        root.join(format!("waits{number}"))
    }

    /// Reads succeed, also of files and directories that are being changed.
    fn read(&self) {
        let (root, count) = (self.shop.root(), self.count);
        answer_of("who reads gets an answer", move || {
            let names = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap());
            let sizes: Vec<u64> = names.map(|entry| entry.metadata().unwrap().len()).collect();
            assert_eq!(sizes.len(), count + 3, "{sizes:?}");
            assert_eq!(fs::read(root.join("kept")).unwrap(), b"kept");
            assert_eq!(fs::read(root.join("fsynced")).unwrap(), b"fsynced");
            assert!(!root.join("missing").exists());
            for number in 0..count {
                let mut file = File::open(Self::file(&root, number)).unwrap();
                assert!(file.metadata().unwrap().len() >= OLD as u64);
                let mut beginning = vec![0; OLD];
                file.seek(SeekFrom::Start(0)).unwrap();
                file.read_exact(&mut beginning).unwrap();
                assert_eq!(beginning, vec![1; OLD]);
            }
        });
        let mut ls = Command::new("ls");
        let listed = answer_of("ls -l", {
            let root = self.shop.root();
            move || outcome(ls.arg("-l").arg(root))
        });
        assert!(listed.status == 0 && listed.out.contains("fsynced"), "{listed:?}");
    }

    /// Commands report the state of the pool, or that they cannot be executed.
    fn ask(&self) {
        let status = prompt(&self.shop, "zpool status tank").out;
        assert!(status.contains(" state: SUSPENDED\n"), "{status}");
        assert!(prompt(&self.shop, "zpool list").out.contains("SUSPENDED"));
        assert_eq!(prompt(&self.shop, "zfs list -Ho name").out, "tank\n");
        let refusals = [
            ("zpool sync tank", "cannot sync 'tank'", 1),
            ("zfs unmount tank", "cannot unmount 'tank'", 1),
            ("zfs set atime=off tank", "cannot set property for 'tank'", 255),
            ("zfs create tank/new", "cannot create 'tank/new'", 1),
            ("zpool export tank", "cannot export 'tank'", 1),
        ];
        for (line, what, status) in refusals {
            let refused = prompt(&self.shop, line);
            assert_eq!(refused.status, status, "{line}: {refused:?}");
            // Some give a reason.
            let told = format!("{what}: pool I/O is currently suspended");
            assert!(refused.err.starts_with(&told), "{line}: {refused:?}");
        }
        let cleared = prompt(&self.shop, "zpool clear tank");
        assert_eq!(cleared.err, "cannot clear errors for tank: I/O error\n", "{cleared:?}");
        assert!(is_mounted(&self.shop.root()));
    }

    /// The pool and its mounts are gone; no writer waits any more; synced data is there.
    fn lost(self) {
        wait_until("the process is gone", || self.shop.run("zpool list -Ho name").out.is_empty());
        for writer in self.writers {
            // The pool is retried once before it is abandoned, and writes may fit into memory.
            let _ = answer_of("a writer is answered", move || writer.join().unwrap());
        }
        wait_until("the mount is gone", || !is_mounted(&self.shop.root()));
        self.host.resize("400M");
        self.shop.succeed("zpool import -f -d IMAGES -R ROOT tank");
        assert_eq!(fs::read(self.shop.root().join("fsynced")).unwrap(), b"fsynced");
        self.shop.succeed("zpool export tank");
        self.host.recover(&self.shop);
    }

    /// The host is enlarged and the pool cleared: everything that was written reaches the disk.
    fn mend(self) {
        self.host.resize("400M");
        let cleared = prompt(&self.shop, "zpool clear tank");
        assert_eq!((cleared.status, cleared.err.as_str()), (0, ""));
        for writer in self.writers.into_iter().chain([self.filler]) {
            answer_of("a writer goes on", move || writer.join().unwrap()).unwrap();
        }
        self.shop.succeed("zpool export tank");
        self.shop.judge();
        self.shop.succeed("zpool import -d IMAGES -R ROOT tank");
        let root = self.shop.root();
        assert_eq!(fs::read(root.join("filler")).unwrap(), vec![7; 64 << 20]);
        for number in 0..self.count {
            let contents = fs::read(Self::file(&root, number)).unwrap();
            assert_eq!(contents, [vec![1; OLD], vec![2; NEW]].concat());
        }
        self.shop.succeed("zpool export tank");
    }
}

#[test]
fn nobody_waits_for_a_suspended_pool_but_those_who_write() {
    let Some(waiting) = Waiting::new("wait") else { return };
    let status = prompt(&waiting.shop, "zpool status tank").out;
    for text in [
        "\n state: SUSPENDED\n",
        "\nstatus: Devices that the pool cannot work without do not take what is written.\n",
        "\naction: See to it that they are connected and have room, then run 'zpool clear'.\n",
    ] {
        assert!(status.contains(text), "{text}: {status}");
    }
    waiting.read();
    waiting.ask();
    waiting.read();
    waiting.mend();
}

#[test]
fn names_are_listed_while_others_are_made_in_a_suspended_pool() {
    let Some(mut waiting) = Waiting::new("wait") else { return };
    for number in 0..8 {
        let file = waiting.shop.root().join(format!("made{number}"));
        waiting.writers.push(thread::spawn(move || File::create_new(file)?.write_all(b"new")));
    }
    thread::sleep(Duration::from_millis(500));
    let root = waiting.shop.root();
    let names = answer_of("ls", move || fs::read_dir(root).unwrap().count());
    assert!(names > 4);
    waiting.host.resize("400M");
    assert_eq!(prompt(&waiting.shop, "zpool clear tank").status, 0);
    for writer in waiting.writers {
        answer_of("a writer goes on", move || writer.join().unwrap()).unwrap();
    }
    assert_eq!(fs::read(waiting.shop.root().join("made3")).unwrap(), b"new");
    waiting.shop.succeed("zpool export tank");
    waiting.shop.judge();
}

#[test]
fn a_suspended_pool_that_is_exported_by_force_keeps_nobody_waiting() {
    let Some(waiting) = Waiting::new("wait") else { return };
    let exported = prompt(&waiting.shop, "zpool export -f tank");
    assert_eq!(exported.status, 1, "{exported:?}");
    let lost = "the pool 'tank' was let go of but not exported, and what was not written is lost: ";
    let reason = exported.err.strip_prefix(lost).unwrap_or_else(|| panic!("{exported:?}"));
    assert!(reason.starts_with("the pool is suspended: "), "{exported:?}");
    assert_eq!(reason.matches("suspended").count(), 1, "{exported:?}");
    waiting.lost();
}

#[test]
fn a_suspended_pool_whose_device_is_mended_loses_nothing_by_an_export_by_force() {
    let Some(waiting) = Waiting::new("wait") else { return };
    waiting.host.resize("400M");
    let exported = prompt(&waiting.shop, "zpool export -f tank");
    assert_eq!((exported.status, exported.err.as_str()), (0, ""));
    waiting.shop.judge();
    waiting.shop.succeed("zpool import -d IMAGES -R ROOT tank");
    assert_eq!(fs::read(waiting.shop.root().join("fsynced")).unwrap(), b"fsynced");
    waiting.shop.succeed("zpool export tank");
}

#[test]
fn a_signal_ends_the_process_of_a_suspended_pool() {
    let Some(waiting) = Waiting::new("wait") else { return };
    let daemon = Pid::from_raw(waiting.shop.rzfs.daemon("tank") as i32).unwrap();
    kill_process(daemon, Signal::TERM).unwrap();
    waiting.lost();
}

#[test]
fn a_suspended_pool_is_unmounted_by_force_and_goes_on() {
    let Some(waiting) = Waiting::new("wait") else { return };
    let unmounted = prompt(&waiting.shop, "zfs unmount -f tank");
    assert_eq!((unmounted.status, unmounted.err.as_str()), (0, ""));
    assert!(!is_mounted(&waiting.shop.root()));
    assert!(prompt(&waiting.shop, "zpool list").out.contains("SUSPENDED"));
    waiting.mend();
}

#[test]
fn writers_are_refused_and_readers_go_on_when_a_pool_is_to_continue() {
    let Some(mut waiting) = Waiting::new("continue") else { return };
    for writer in std::mem::take(&mut waiting.writers) {
        let written = answer_of("a writer is told", move || writer.join().unwrap());
        assert_eq!(written.unwrap_err().raw_os_error(), Some(Errno::IO.raw_os_error()));
    }
    let root = waiting.shop.root();
    let refused = answer_of("whoever changes names is told", move || {
        let kept = root.join("kept");
        [
            File::create_new(root.join("new")).map(drop),
            fs::create_dir(root.join("directory")),
            fs::rename(&kept, root.join("moved")),
            fs::remove_file(&kept),
        ]
    });
    for result in refused {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(Errno::IO.raw_os_error()));
    }
    waiting.read();
    waiting.ask();
    waiting.read();
    assert_eq!(prompt(&waiting.shop, "zpool export -f tank").status, 1);
    waiting.lost();
}

#[test]
fn a_sync_that_fails_is_no_reason_for_the_next_ones_to_fail() {
    let shop = Workshop::new();
    let Some(host) = SmallHost::mount(shop.rzfs.path("images"), "48M") else { return };
    shop.succeed("zpool create --size 256M -R ROOT -O compression=off -o failmode=continue tank A");
    let kept = fs::File::create(shop.root().join("kept")).unwrap();
    kept.sync_all().unwrap();
    let _ = fs::write(shop.root().join("large"), vec![7; 64 << 20]);
    wait_until("the pool is suspended", || {
        shop.run("zpool get -Ho value health tank").out == "SUSPENDED\n"
    });
    kept.set_modified(std::time::UNIX_EPOCH).and_then(|()| kept.sync_all()).unwrap_err();
    host.resize("400M");
    shop.succeed("zpool clear tank");
    fs::write(shop.root().join("kept"), "kept").unwrap();
    kept.sync_all().unwrap();
    let again = fs::File::create(shop.root().join("again")).unwrap();
    again.sync_all().unwrap();
    drop((kept, again));
    // It fails a second time, and works again for who has come only then.
    host.resize(&ending::with_room(&shop.rzfs.path("images"), 0));
    let kept = fs::File::options().write(true).open(shop.root().join("kept")).unwrap();
    let _ = fs::write(shop.root().join("larger"), vec![7; 8 << 20]);
    wait_until("the pool is suspended", || {
        kept.set_modified(std::time::UNIX_EPOCH).and_then(|()| kept.sync_all()).is_err()
    });
    drop(kept);
    host.resize("400M");
    shop.succeed("zpool clear tank");
    shop.succeed("zfs unmount tank");
    shop.succeed("zfs mount tank");
    let remounted = fs::File::options().append(true).open(shop.root().join("kept")).unwrap();
    remounted.set_modified(std::time::UNIX_EPOCH).unwrap();
    remounted.sync_all().unwrap();
    remounted.sync_data().unwrap();
    let again = fs::File::create(shop.root().join("at last")).unwrap();
    again.sync_all().unwrap();
    drop((remounted, again));
    kill_server(&shop.rzfs, "tank");
    let mut umount = Command::new("umount");
    assert!(umount.arg("-l").arg(shop.root()).status().unwrap().success());
    shop.succeed("zpool import -f -d IMAGES -R ROOT tank");
    assert!(shop.root().join("at last").exists(), "it was durable");
    let kept = fs::metadata(shop.root().join("kept")).unwrap();
    assert_eq!(kept.modified().unwrap(), std::time::UNIX_EPOCH);
    shop.succeed("zpool export tank");
    host.recover(&shop);
}

#[test]
fn a_suspended_pool_can_be_given_up() {
    let shop = Workshop::new();
    let Some(host) = SmallHost::mount(shop.rzfs.path("images"), "48M") else { return };
    shop.succeed("zpool create --size 256M -R ROOT -O compression=off tank A");
    fs::write(shop.root().join("kept"), "kept").unwrap();
    shop.succeed("zpool sync");
    shop.succeed("zpool set failmode=continue tank");
    let file = shop.root().join("large");
    // Some of it is written before the host is found full.
    let written = fs::write(&file, vec![7; 64 << 20]);
    wait_until("the pool is suspended", || {
        shop.run("zpool get -Ho value health tank").out == "SUSPENDED\n"
    });
    assert!(written.is_err() || fs::write(&file, "more").is_err(), "writers are told");
    assert_eq!(fs::read_to_string(shop.root().join("kept")).unwrap(), "kept");
    // Nothing waits forever.
    assert_ne!(shop.run("zpool export -f tank").status, 0);
    host.recover(&shop);
}

#[test]
fn a_pool_that_is_to_panic_takes_its_process_along_and_nothing_else() {
    let shop = Workshop::new();
    let Some(host) = SmallHost::mount(shop.rzfs.path("images"), "48M") else { return };
    shop.succeed("zpool create --size 256M -R ROOT -O compression=off tank A");
    fs::write(shop.root().join("kept"), "kept").unwrap();
    shop.succeed("zpool sync");
    shop.succeed("zpool set failmode=panic tank");
    assert_eq!(shop.succeed("zpool get -Ho value failmode tank"), "panic\n");
    // All of it may fit into memory; then the next group finds the host full.
    let _ = fs::write(shop.root().join("large"), vec![7; 64 << 20]);
    wait_until("the process is gone", || shop.run("zpool list -Ho name").out.is_empty());
    let mut umount = Command::new("umount");
    assert!(umount.arg("-l").arg(shop.root()).status().unwrap().success());
    host.recover(&shop);
}

/// `zpool status` reports that only the image B lacks data, and counts no errors.
fn assert_lacks_data(shop: &Workshop) {
    let status = shop.succeed("zpool status tank");
    assert!(status.contains("lacks data that was written while it was away"), "{status}");
    let lacking: Vec<_> = status.lines().filter(|line| line.contains("(lacks data of")).collect();
    let [line] = lacking.as_slice() else { panic!("{status}") };
    let words: Vec<_> = line.split_whitespace().collect();
    assert!(words[0].ends_with('B'), "{status}");
    assert_eq!(words[1..5], ["ONLINE", "0", "0", "0"], "{status}");
    assert!(!shop.succeed("zpool status -x").contains("healthy"));
    assert!(shop.succeed("zpool status -e tank").contains(line), "{status}");
}

#[test]
fn a_device_that_was_missing_is_used_again_after_clear() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 128M -R ROOT tank mirror A B");
    fs::write(shop.root().join("before"), "both have it").unwrap();
    shop.succeed("zpool export tank");
    let (here, away) = (shop.image("B"), shop.rzfs.path("B"));
    fs::copy(&here, &away).unwrap();
    fs::remove_file(&here).unwrap();
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    assert_eq!(shop.succeed("zpool get -Ho value health tank"), "DEGRADED\n");
    fs::write(shop.root().join("meanwhile"), "one has it").unwrap();
    shop.succeed("zpool sync");
    // The device is not there, so it does not come back.
    shop.succeed("zpool clear tank");
    assert_eq!(shop.succeed("zpool get -Ho value health tank"), "DEGRADED\n");
    // A device of another pool is not accepted.
    let other = shop.image("C");
    shop.succeed("zpool create --size 128M --export other C");
    fs::copy(&other, &here).unwrap();
    shop.succeed("zpool clear tank");
    assert_eq!(shop.succeed("zpool get -Ho value health tank"), "DEGRADED\n");
    fs::remove_file(&here).unwrap();
    fs::copy(&away, &here).unwrap();
    shop.succeed("zpool clear tank");
    assert_eq!(shop.succeed("zpool get -Ho value health tank"), "ONLINE\n");
    assert_lacks_data(&shop);
    fs::write(shop.root().join("after"), vec![9; 4 << 20]).unwrap();
    shop.succeed("zpool export tank");
    fs::remove_file(other).unwrap();
    shop.judge();
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    assert_eq!(fs::read_to_string(shop.root().join("meanwhile")).unwrap(), "one has it");
    // The device that lacks the data was not read, not even when the pool was opened.
    assert_lacks_data(&shop);
    assert_eq!(fs::read(shop.root().join("after")).unwrap(), vec![9; 4 << 20]);
    shop.succeed("zpool export tank");
}

/// Stops a process until this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn stop(process: u32) -> Self {
        let process = Pid::from_raw(process.try_into().unwrap()).unwrap();
        kill_process(process, Signal::STOP).unwrap();
        Self(process)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        kill_process(self.0, Signal::CONT).unwrap();
    }
}

/// Nothing fails here: the device is an image in a file system whose process is stopped.
#[test]
fn a_pool_whose_device_does_not_answer_is_told_as_it_was() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 300M -R ROOT host A");
    let image = shop.rzfs.path("root/host/inner");
    shop.succeed(&format!("zpool create --size 128M -R ROOT tank {}", image.display()));
    let mut file = File::create(shop.root().join("file")).unwrap();
    file.write_all(&vec![7; 4 << 20]).unwrap();
    file.sync_all().unwrap();
    shop.succeed("zpool sync tank");
    // The data of its last txg must be read from the device.
    let image = File::open(&image).unwrap();
    image.sync_all().unwrap();
    fadvise(&image, 0, None, Advice::DontNeed).unwrap();

    let stopped = Stopped::stop(shop.rzfs.daemon("host"));
    for line in ["zpool list -Ho name,health tank", "zpool get -Ho name,value health tank"] {
        assert_eq!(prompt(&shop, line).out, "tank\tONLINE\n", "{line}");
    }
    assert!(prompt(&shop, "zpool status tank").out.contains("No known data errors"));
    drop(stopped);
    drop((file, image));
    shop.succeed("zpool export tank");
    shop.succeed("zpool export host");
}
