//! git: two clones at the same time, with everything repacked in both of them.

use super::served::Served;
use std::fs::File;
use std::process::{Command, Stdio};
use xtask::process::{Failure, repository, run, words};

const CLONES: [&str; 2] = ["first", "second"];

/// Clones this repository twice at a time, repacks both at a time, and checks them.
pub(super) fn run_on(served: &Served) -> Result<(), Failure> {
    both(|name| {
        let mut clone = Command::new("git");
        clone.args(["clone", "-q", "--no-hardlinks"]).arg(repository());
        clone.arg(served.mount().join(name));
        clone
    })?;
    both(|name| {
        let mut gc = git(served, name);
        gc.args(["gc", "-q", "--aggressive", "--prune=now"]);
        gc
    })?;
    let log = served.left().join("git.log");
    for name in CLONES {
        let log = File::create(&log).map_err(Failure::file(&log))?;
        let fsck = ["fsck", "--strict", "--no-progress", "--no-dangling"];
        run(git(served, name).args(fsck).stderr(log))?;
        run(git(served, name).args(["diff", "--exit-code"]).stdout(Stdio::null()))?;
    }
    Ok(())
}

fn git(served: &Served, name: &str) -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(served.mount().join(name));
    git
}

/// Does something to both clones at the same time.
fn both(command: impl Fn(&str) -> Command) -> Result<(), Failure> {
    let [mut first, mut second] = CLONES.map(command);
    let program = words(&first);
    let start = |source| Failure::Start { program: program.clone(), source };
    let mut child = first.spawn().map_err(start)?;
    let result = run(&mut second);
    let status = child.wait().map_err(start)?;
    result?;
    if status.success() { Ok(()) } else { Err(Failure::Status { program, status }) }
}
