//! The memory of the process that has a pool mounted stays within what `docs/performance.md`
//! states: `arc_max` and a constant. Whole pools are walked through their mounts: every file of
//! every file system, and of every snapshot below `.zfs`. Where files are written it is what may be
//! dirty besides.

use rzfs_testkit::ReferencePool;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const ARC_MAX: u64 = 32 * MIB;
/// The documented constant, and what each file system and each open snapshot may need in addition.
const CONSTANT: u64 = 64 * MIB;
const PER_FILE_SYSTEM: u64 = MIB / 8;

/// The time limit for mounting.
const PATIENCE: Duration = Duration::from_secs(120);

/// `rzfs mount` in the foreground, ended on drop.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let id = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

/// What a walk has read.
#[derive(Default, Debug)]
struct Walked {
    file_systems: u64,
    bytes: u64,
}

impl Walked {
    /// Reads everything below a directory; at the root of a file system its snapshots too.
    fn walk(&mut self, directory: &Path, buffer: &mut [u8]) -> io::Result<()> {
        let snapshots = directory.join(".zfs/snapshot");
        if snapshots.is_dir() {
            self.file_systems += 1;
            for snapshot in fs::read_dir(snapshots)? {
                self.file_systems += 1;
                self.walk(&snapshot?.path(), buffer)?;
            }
        }
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.walk(&entry.path(), buffer)?;
            } else if kind.is_file() {
                self.read(&entry.path(), buffer)?;
            }
        }
        Ok(())
    }

    fn read(&mut self, path: &Path, buffer: &mut [u8]) -> io::Result<()> {
        let mut file = File::open(path)?;
        loop {
            match file.read(buffer)? {
                0 => return Ok(()),
                len => self.bytes += len as u64,
            }
        }
    }
}

/// The peak resident memory of a process, in bytes.
fn peak(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Has images mounted with these options below a directory, and tells where.
fn mount(images: &[PathBuf], options: &str, work: &Path) -> (Daemon, PathBuf) {
    let (root, run) = (work.join("root"), work.join("run"));
    fs::create_dir_all(&root).unwrap();
    fs::create_dir_all(&run).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_rzfs"))
        .args(["mount", "--foreground", "--force", "--all", "--options", options])
        .args(images)
        .arg(&root)
        .env("RZFS_RUNTIME_DIR", run)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    (Daemon(child), root)
}

/// How much is mounted below a directory.
fn mounts_below(root: &Path) -> usize {
    let below = root.to_string_lossy();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().filter(|line| line.contains(&*below)).count()
}

/// Walks once everything is mounted; the file systems of a pool are mounted one by one.
fn check(name: &str, file_systems: u64, bytes: u64) {
    let Some(pool) = ReferencePool::golden(name) else { return };
    let work = tempfile::tempdir().unwrap();
    let options = format!("ro,arc_max={ARC_MAX}");
    let (daemon, root) = mount(&pool.images().unwrap(), &options, work.path());
    let start = Instant::now();
    let mut count = (0, Instant::now());
    while count.0 == 0 || count.1.elapsed() < Duration::from_millis(1500) {
        assert!(start.elapsed() < PATIENCE, "{name} was not mounted");
        std::thread::sleep(Duration::from_millis(50));
        let mounted = mounts_below(&root);
        if mounted != count.0 {
            count = (mounted, Instant::now());
        }
    }
    let mut walked = Walked::default();
    walked.walk(&root, &mut vec![0; MIB as usize]).unwrap();
    assert!(walked.file_systems >= file_systems && walked.bytes >= bytes, "{name}: {walked:?}");
    let (peak, limit) =
        (peak(daemon.0.id()), ARC_MAX + CONSTANT + walked.file_systems * PER_FILE_SYSTEM);
    println!("{name}: {walked:?}, peak {} KiB, limit {} KiB", peak >> 10, limit >> 10);
    assert!(peak <= limit, "{name}: {} KiB are more than {} KiB", peak >> 10, limit >> 10);
}

#[test]
fn the_pool_with_the_most_data_is_read_within_the_limit() {
    check("g16-expanded", 1, 100 * MIB);
}

#[test]
fn records_of_16_mib_are_read_within_the_limit() {
    check("g02-compress", 10, 40 * MIB);
}

#[test]
fn a_thousand_snapshots_are_walked_within_the_limit() {
    check("g23-many", 1000, 0);
}

/// What may be dirty, and what there is besides while it is written: the blocks on their way to the
/// devices, and what the pool notes of them.
const DIRTY: u64 = 64 * MIB;
const WRITING: u64 = 128 * MIB;

/// Each would take 768 MiB if a record took 8 KiB, as one does whose buffer is a page and whose dirty
/// state is kept beside it: so they take no more than they are counted for.
#[test]
fn small_records_are_written_within_the_limit() {
    const WRITTEN: usize = 48 << 20;
    let work = tempfile::tempdir().unwrap();
    let image = work.path().join("image");
    let created = Command::new(env!("CARGO_BIN_EXE_rzfs"))
        .args(["zpool", "create", "--export", "--size", "512M", "-O", "recordsize=512"])
        .args(["-O", "compression=off", "small"])
        .arg(&image)
        .env("RZFS_RUNTIME_DIR", work.path().join("run"))
        .status();
    assert!(created.unwrap().success());
    let options = format!("arc_max={ARC_MAX},zfs_dirty_data_max={DIRTY}");
    let (daemon, root) = mount(&[image], &options, work.path());
    let start = Instant::now();
    while mounts_below(&root) == 0 {
        assert!(start.elapsed() < PATIENCE, "it was not mounted");
        std::thread::sleep(Duration::from_millis(20));
    }
    let part: Vec<u8> =
        (0..1 << 20).map(|at: u32| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
    let mut file = File::create(root.join("file")).unwrap();
    (0..WRITTEN / part.len()).for_each(|_| file.write_all(&part).unwrap());
    file.sync_all().unwrap();
    let (peak, limit) = (peak(daemon.0.id()), ARC_MAX + DIRTY + WRITING);
    println!("peak {} KiB, limit {} KiB", peak >> 10, limit >> 10);
    assert!(peak <= limit, "{} KiB are more than {} KiB", peak >> 10, limit >> 10);
}
