//! fsx: random operations on one file, compared with a model in memory.

use super::served::Served;
use std::fs;
use std::process::Command;
use xtask::process::{Failure, run};

/// Every operation there is. None is empty: Linux refuses an empty `posix_fallocate` of any file
/// system, which fsx takes for one that cannot do it.
const CONFIGURATION: &str = "
[opsize]
min = 1

[weights]
close_open = 1.0
invalidate = 1.0
mapread = 2.0
mapwrite = 2.0
read = 4.0
write = 4.0
truncate = 1.0
fsync = 0.05
fdatasync = 0.05
posix_fallocate = 0.5
punch_hole = 2.0
sendfile = 1.0
posix_fadvise = 0.5
copy_file_range = 2.0
";

/// Runs so many operations from a seed.
pub(super) fn run_on(served: &Served, operations: u64, seed: u64) -> Result<(), Failure> {
    let configuration = served.left().join("fsx.toml");
    fs::write(&configuration, CONFIGURATION).map_err(Failure::file(&configuration))?;
    let file = served.mount().join(format!("fsx-{seed}"));
    let mut fsx = Command::new("fsx");
    fsx.args(["-q", "-N", &operations.to_string(), "-S", &seed.to_string(), "-f"]);
    run(fsx.arg(configuration).arg("-P").arg(served.left()).arg(file))
}
