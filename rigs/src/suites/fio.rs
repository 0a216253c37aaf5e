//! fio: what is written is read again and compared.

use super::served::Served;
use std::process::{Command, Stdio};
use xtask::process::{Failure, run};

/// Orders of access.
const ORDERS: [&str; 4] = ["write", "randwrite", "rw", "randrw"];
/// How blocks are verified.
const METHODS: [&str; 13] = [
    "md5", "crc64", "crc32", "crc32c", "crc16", "crc7", "sha1", "sha256", "sha512", "sha3-256",
    "sha3-512", "xxhash", "pattern",
];

/// All orders of access with blocks of several sizes, by one and four programs at a time, without
/// and with `fsync`; then all methods of verification.
pub(super) fn run_on(served: &Served) -> Result<(), Failure> {
    for order in ORDERS {
        for (jobs, block) in [("1", "4k"), ("4", "4k"), ("1", "128k"), ("4", "128k"), ("4", "1m")] {
            verify(served, order, (jobs, block, "24m"), "crc32c", "0")?;
        }
        for jobs in ["1", "4"] {
            verify(served, order, (jobs, "16k", "4m"), "crc32c", "8")?;
        }
    }
    for method in METHODS {
        for jobs in ["1", "4"] {
            verify(served, "randwrite", (jobs, "8k", "8m"), method, "0")?;
        }
    }
    Ok(())
}

fn verify(
    served: &Served,
    order: &str,
    (jobs, block, size): (&str, &str, &str),
    method: &str,
    fsync: &str,
) -> Result<(), Failure> {
    let mut fio = Command::new("fio");
    fio.args(["--name=verify", "--ioengine=psync", "--minimal", "--do_verify=1"]);
    fio.args(["--verify_fatal=1", "--unlink=1"]).arg(format!("--verify={method}"));
    if method == "pattern" {
        fio.arg("--verify_pattern=\"rzfs\"%o");
    }
    fio.arg(format!("--rw={order}")).arg(format!("--bs={block}")).arg(format!("--size={size}"));
    fio.arg(format!("--numjobs={jobs}")).arg(format!("--fsync={fsync}"));
    run(fio.arg("--directory").arg(served.mount()).stdout(Stdio::null()))
}
