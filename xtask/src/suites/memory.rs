//! The memory that the serving process needs while much more is written than fits into it.

use super::served::Served;
use crate::process::{Failure, run};
use rzfs_proof::Settings;
use std::process::{Command, Stdio};

/// As the suite mounts.
pub(super) const MOUNT_OPTIONS: &str = "allow_other,arc_max=256M";
const ARC_MAX: u64 = 256 << 20;
/// What there is besides the cache and dirty data: space maps, indirect blocks and dnodes of the
/// txg that is being written, buffers of requests and of the pool's threads, the program itself.
const BESIDES: u64 = 384 << 20;

/// Writes so many GiB to random places of a file of 2 GiB, and of many small ones.
pub(super) fn run_on(served: &Served, gib: u64) -> Result<(), Failure> {
    let half = format!("--io_size={}m", gib * 512);
    for (size, files) in [("--size=2g", "--nrfiles=1"), ("--size=1g", "--nrfiles=512")] {
        let mut fio = Command::new("fio");
        fio.args(["--name=memory", "--ioengine=psync", "--rw=randwrite", "--bsrange=4k-128k"]);
        fio.args(["--norandommap", "--minimal", "--unlink=1", size, files, &half]);
        run(fio.arg("--directory").arg(served.mount()).stdout(Stdio::null()))?;
    }
    let dirty = Settings::default().pool.txg.limits.max;
    let (peak, limit) = (served.used().peak_memory, ARC_MAX + dirty + BESIDES);
    let [mib, arc, dirty] = [peak, ARC_MAX, dirty].map(|bytes| bytes >> 20);
    println!("  peak {mib} MiB; arc_max {arc} MiB, dirty_data_max {dirty} MiB");
    match peak > 0 && peak <= limit {
        true => Ok(()),
        false => Err(Failure::Checks(format!("needing no more than {} MiB", limit >> 20))),
    }
}
