//! Fills pools to the last byte and empties them, again and again.

use crate::crash::zdb;
use rzfs_proof::full::{Pattern, fill_and_empty};
use std::path::Path;
use std::time::Instant;
use xtask::process::Failure;

/// Fill pools to the last byte in ten ways and empty them, again and again.
#[derive(clap::Args)]
pub(crate) struct Full {
    /// How often each of them.
    #[arg(long, default_value_t = 5)]
    rounds: u64,
    /// Only this way: small-files, large-file, snapshots, quotas, raidz, reservations, xattrs,
    /// directories, shared or sparse.
    #[arg(long)]
    pattern: Option<String>,
}

/// Carries it out.
pub(crate) fn run(full: &Full) -> Result<(), Failure> {
    let is_wanted =
        |pattern: &Pattern| full.pattern.as_ref().is_none_or(|name| name == pattern.name());
    let patterns: Vec<_> = Pattern::ALL.into_iter().filter(is_wanted).collect();
    if patterns.is_empty() {
        let name = full.pattern.clone().unwrap_or_default();
        return Err(Failure::Checks(format!("finding the pattern '{name}'")));
    }
    let mut failed = Vec::new();
    for pattern in patterns {
        let (started, name) = (Instant::now(), pattern.name());
        let scratch = tempfile::tempdir().map_err(Failure::file(Path::new("/tmp")))?;
        let result = fill_and_empty(pattern, full.rounds, scratch.path());
        let seconds = started.elapsed().as_secs();
        let finding = match result {
            Ok(result) => {
                let [begun, left] = [result.available, result.left].map(|bytes| bytes >> 10);
                let lost = |end: &u64| (result.available.saturating_sub(*end) >> 10).to_string();
                let lost: Vec<_> = result.afterwards.iter().map(lost).collect();
                println!(
                    "{name}: {begun} KiB available, {left} KiB left when full, {} KiB less than at \
                     first after the rounds, {seconds} s",
                    lost.join(", ")
                );
                result.finding.or_else(|| zdb(scratch.path(), pattern.pool()))
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(finding) = finding {
            println!("FOUND {name}: {finding}\n  images: {}", scratch.keep().display());
            failed.push(name);
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(Failure::Checks(failed.join(" "))) }
}
