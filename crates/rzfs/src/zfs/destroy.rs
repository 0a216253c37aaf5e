//! `zfs destroy` of file systems (spec 09, section 3.5).

use super::change::{carry_out, check_head, pool_with, tree};
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word, operands};
use crate::history::command_line;
use rzfs::protocol::{Change, DatasetKind};

const GRAMMAR: Grammar = Grammar {
    letters: &[
        ('r', Value::None),
        ('R', Value::None),
        ('f', Value::None),
        ('n', Value::None),
        ('p', Value::None),
        ('v', Value::None),
    ],
    names: &[],
};

/// Runs `zfs destroy`.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let line = command_line("zfs destroy", words);
    let words = GRAMMAR.parse(words)?;
    let flag = |letter| words.contains(&Word::Flag(letter));
    let operands = operands(&words);
    let [name] = operands.as_slice() else {
        let problem =
            if operands.is_empty() { "missing dataset argument" } else { "too many arguments" };
        return Err(Failure::Usage(problem.to_owned()));
    };
    if name.contains(['@', '#']) {
        let message = format!("cannot destroy '{name}': snapshots are only read by this software");
        return Err(Failure::Failed(message));
    }
    check_head("open", name)?;
    let mut client = pool_with(name)?;
    let kinds = [DatasetKind::Filesystem, DatasetKind::Volume, DatasetKind::Snapshot];
    let all = tree(&mut client, name, &kinds)?;
    let recursive = flag('r') || flag('R');
    let is_pool = !name.contains('/');
    if is_pool && !recursive {
        return Err(Failure::Failed(format!(
            "cannot destroy '{name}': operation does not apply to pools\n\
             use 'zfs destroy -r {name}' to destroy all datasets in the pool\n\
             use 'zpool destroy {name}' to destroy the pool itself"
        )));
    }
    let below = all.iter().filter(|dataset| dataset.name != *name);
    let below: Vec<&str> = below.map(|dataset| dataset.name.as_str()).collect();
    if !below.is_empty() && !recursive {
        return Err(Failure::Failed(format!(
            "cannot destroy '{name}': filesystem has children\n\
             use '-r' to destroy the following datasets:\n{}",
            below.join("\n")
        )));
    }
    if let Some(snapshot) = below.iter().find(|name| name.contains('@')) {
        let message =
            format!("cannot destroy '{snapshot}': snapshots are only read by this software");
        return Err(Failure::Failed(message));
    }
    // What is below others goes first; the root of a pool stays.
    let doomed = all.iter().rev().filter(|dataset| !is_pool || dataset.name != *name);
    let names: Vec<String> = doomed.map(|dataset| dataset.name.clone()).collect();
    for name in names.iter().filter(|_| flag('v') || flag('n')) {
        match (flag('p'), flag('n')) {
            (true, _) => writeln!(console.out, "destroy\t{name}")?,
            (false, true) if flag('v') => writeln!(console.out, "would destroy {name}")?,
            (false, true) => {}
            (false, false) => writeln!(console.out, "will destroy {name}")?,
        }
    }
    if flag('n') {
        return Ok(());
    }
    let change = Change::Destroy { names, force: flag('f') };
    carry_out(&mut client, change, Some(&line), console)
}
