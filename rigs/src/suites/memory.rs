//! The memory that the serving process needs while much more is written than fits into it, with
//! records of all sizes.

use super::served::Served;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use xtask::process::{Failure, run};

/// As the suite mounts: with budgets so small that what records take beside them would be seen. As many
/// records of 512 bytes as may be dirty would take more than a GiB if each took 8 KiB.
pub(super) const MOUNT_OPTIONS: &str = "allow_other,arc_max=64M,zfs_dirty_data_max=128M";
const ARC_MAX: u64 = 64 << 20;
const DIRTY_DATA_MAX: u64 = 128 << 20;
/// What there is besides the cache and dirty data: space maps, indirect blocks and dnodes of the
/// txg that is being written, buffers of requests and of the pool's threads, the program itself.
const BESIDES: u64 = 384 << 20;
/// Sizes of records, sizes of the writes to them, and which part of all bytes each gets: small
/// ones take their time.
const RECORDS: [(&str, &str, u64); 4] =
    [("512", "512-4k", 16), ("4K", "512-16k", 8), ("128K", "4k-128k", 2), ("16M", "64k-4m", 2)];
/// Small files, and how often as many are made and removed.
const FILES: u32 = 40_000;
const ROUNDS: u32 = 2;
/// How long freed memory may take to go back to the system.
const PATIENCE: Duration = Duration::from_secs(30);

/// Writes so many GiB to random places of files with records of each size, and many files of one
/// small block; then removes everything.
pub(super) fn run_on(served: &Served, gib: u64) -> Result<(), Failure> {
    let limit = ARC_MAX + DIRTY_DATA_MAX + BESIDES;
    let needed = |what: &str| {
        let peak = served.used().peak_memory;
        let [mib, arc, dirty] = [peak, ARC_MAX, DIRTY_DATA_MAX].map(|bytes| bytes >> 20);
        println!("  {what}: peak {mib} MiB; arc_max {arc} MiB, dirty_data_max {dirty} MiB");
        match peak > 0 && peak <= limit {
            true => Ok(()),
            false => Err(Failure::Checks(format!("needing no more than {} MiB", limit >> 20))),
        }
    };
    for (record, writes, part) in RECORDS {
        served.set(&format!("recordsize={record}"))?;
        for files in ["--nrfiles=1", "--nrfiles=512"] {
            let mib = gib * 1024 / part / 2;
            let size = format!("--size={}m", (mib / 2).clamp(64, 1024));
            let mut fio = Command::new("fio");
            fio.args(["--name=memory", "--ioengine=psync", "--rw=randwrite", "--norandommap"]);
            fio.args(["--minimal", "--unlink=1", files, &size]);
            fio.arg(format!("--bsrange={writes}")).arg(format!("--io_size={mib}m"));
            run(fio.arg("--directory").arg(served.mount()).stdout(Stdio::null()))?;
        }
        needed(&format!("records of {record}"))?;
    }
    for round in 0..ROUNDS {
        let directory = served.mount().join(format!("small{round}"));
        small_files(&directory).map_err(Failure::file(&directory))?;
    }
    needed(&format!("{FILES} small files"))?;
    given_back(served)
}

fn small_files(directory: &Path) -> std::io::Result<()> {
    fs::create_dir(directory)?;
    for number in 0..FILES {
        fs::write(directory.join(number.to_string()), [number as u8; 400])?;
    }
    rustix::fs::syncfs(fs::File::open(directory)?)?;
    fs::remove_dir_all(directory)
}

/// Waits until all that is not the cache's has gone back to the system.
fn given_back(served: &Served) -> Result<(), Failure> {
    rustix::fs::sync();
    let limit = ARC_MAX + BESIDES;
    let begun = Instant::now();
    loop {
        let resident = served.used().resident;
        if resident <= limit {
            println!("  {} MiB are resident at the end", resident >> 20);
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err(Failure::Checks(format!("{} MiB are kept: memory", resident >> 20)));
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}
