//! dbench: what a file server does for four clients.

use super::served::Served;
use std::process::Command;
use xtask::process::{Failure, output};

/// Where Debian has the load.
const LOAD: &str = "/usr/share/dbench/client.txt";
const CLIENTS: &str = "4";

/// Three runs: plain, with extended attributes, with `fsync` after writes.
pub(super) fn run_on(served: &Served, seconds: u64) -> Result<(), Failure> {
    let seconds = (seconds / 10).max(5).to_string();
    for options in [&[][..], &["-x"], &["-F"]] {
        let mut dbench = Command::new("dbench");
        dbench.args(["-c", LOAD, "-t", &seconds, "-D"]).arg(served.mount());
        let text = output(dbench.args(options).arg(CLIENTS))?;
        let result = text.lines().find(|line| line.starts_with("Throughput"));
        let result = result.ok_or_else(|| Failure::Output("dbench".to_owned()))?;
        println!("  {}: {result}", options.first().unwrap_or(&"plain"));
    }
    Ok(())
}
