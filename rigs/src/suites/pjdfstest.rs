//! pjdfstest: what POSIX demands of a file system.

use super::served::Served;
use std::fs;
use std::process::Command;
use xtask::process::{Failure, outcome};

/// What it is to test, as it does on ext4.
const CONFIGURATION: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.05
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["games", "games"], ["bin", "bin"]]
"#;

/// Nothing may fail; what is skipped is in the summary.
pub(super) fn run_on(served: &Served) -> Result<(), Failure> {
    let configuration = served.left().join("pjdfstest.toml");
    fs::write(&configuration, CONFIGURATION).map_err(Failure::file(&configuration))?;
    let mut pjdfstest = Command::new("pjdfstest");
    pjdfstest.arg("-c").arg(&configuration).arg("-p").arg(served.mount());
    let text = outcome(&mut pjdfstest)?;
    let text = String::from_utf8_lossy(&text.stdout);
    let summary = text.lines().find(|line| line.starts_with("Summary:")).unwrap_or("no summary");
    println!("  {summary}");
    if summary.starts_with("Summary: 0 failed") {
        return Ok(());
    }
    println!("{text}");
    Err(Failure::Checks("pjdfstest".to_owned()))
}
