//! stress-ng: its stressors of file systems, one after the other.

use super::served::Served;
use std::process::Command;
use xtask::process::{Failure, outcome};

/// Stressors of the class that use something else than the file system they are started on: they
/// mount, or read all of `/proc`.
const ELSEWHERE: [&str; 3] = ["bind-mount", "binderfs", "procfs"];
/// Programs of each stressor at a time.
const AT_A_TIME: &str = "2";

/// Spreads the seconds over all stressors of the class `filesystem`. What is not supported is
/// named.
pub(super) fn run_on(served: &Served, seconds: u64) -> Result<(), Failure> {
    let stressors = stressors()?;
    let each = (seconds / stressors.len().max(1) as u64).max(1);
    let mut failed = Vec::new();
    for stressor in &stressors {
        let mut stress = Command::new("stress-ng");
        stress.arg(format!("--{stressor}")).arg(AT_A_TIME);
        stress.args(["--verify", "--oomable", "--timeout", &each.to_string(), "--temp-path"]);
        let output = outcome(stress.arg(served.mount()))?;
        let text = [&output.stdout[..], &output.stderr[..]].concat();
        let text = String::from_utf8_lossy(&text);
        match output.status.code() {
            Some(0) => {}
            // Short of resources, or nothing that this system has.
            Some(3 | 4) => println!("  {stressor}: not supported: {}", reason(&text)),
            code => {
                println!("  {stressor}: {code:?}: {text}");
                failed.push(stressor.as_str());
            }
        }
    }
    println!("  {} stressors, {each} s each, {} failed", stressors.len(), failed.len());
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::Checks(format!("stress-ng {}", failed.join(" ")))),
    }
}

/// The stressors, as stress-ng names them: `class 'filesystem' stressors: access ...`.
fn stressors() -> Result<Vec<String>, Failure> {
    let output = outcome(Command::new("stress-ng").args(["--class", "filesystem?"]))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().find_map(|line| line.split_once("stressors:"));
    let names = names.map_or("", |(_, names)| names).split_whitespace();
    let names: Vec<_> = names.filter(|name| !ELSEWHERE.contains(name)).map(str::to_owned).collect();
    if names.is_empty() { Err(Failure::Output("stress-ng".to_owned())) } else { Ok(names) }
}

/// What the first line says that says why.
fn reason(text: &str) -> &str {
    let line = text.lines().find(|line| line.contains("skip") || line.contains("cannot"));
    line.or_else(|| text.lines().next()).unwrap_or("").trim()
}
