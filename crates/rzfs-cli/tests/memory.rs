//! The memory of the process that serves a pool stays within the limit in `docs/performance.md`:
//! `arc_max` and a constant. Whole pools are walked through their mounts: every file of every file
//! system, and of every snapshot below `.zfs`.

use rzfs_testkit::ReferencePool;
use std::fs::{self, File};
use std::io::{self, Read};
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

fn mount(pool: &ReferencePool, work: &Path) -> (Daemon, PathBuf) {
    let (root, run) = (work.join("root"), work.join("run"));
    fs::create_dir_all(&root).unwrap();
    fs::create_dir_all(&run).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_rzfs"))
        .args(["mount", "--foreground", "--force", "--all", "--options"])
        .arg(format!("ro,arc_max={ARC_MAX}"))
        .args(pool.images().unwrap())
        .arg(&root)
        .env("RZFS_RUNTIME_DIR", run)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    (Daemon(child), root)
}

/// Walks once everything is mounted; the file systems of a pool are mounted one by one.
fn check(name: &str, file_systems: u64, bytes: u64) {
    let Some(pool) = ReferencePool::golden(name) else { return };
    let work = tempfile::tempdir().unwrap();
    let (daemon, root) = mount(&pool, work.path());
    let below = root.to_string_lossy().into_owned();
    let mounted = || {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        mounts.lines().filter(|line| line.contains(&below)).count()
    };
    let start = Instant::now();
    let mut count = (0, Instant::now());
    while count.0 == 0 || count.1.elapsed() < Duration::from_millis(1500) {
        assert!(start.elapsed() < PATIENCE, "{name} was not mounted");
        std::thread::sleep(Duration::from_millis(50));
        if mounted() != count.0 {
            count = (mounted(), Instant::now());
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
