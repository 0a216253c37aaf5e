//! `zfs rollback` (spec 09, section 4).

use super::change::{carry_out, check_head, missing, pool_with, query};
use super::dependents::{DestroyPlan, NEEDED};
use super::name;
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word, operands};
use crate::history::command_line;
use crate::source;
use rzfs_server::protocol::{Change, ConcurrentSnapshots, DatasetKind, DatasetReport};

const GRAMMAR: Grammar =
    Grammar { letters: &[('r', Value::None), ('R', Value::None), ('f', Value::None)], names: &[] };

/// Runs `zfs rollback`.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let line = command_line("zfs rollback", words);
    let words = GRAMMAR.parse(words)?;
    let flag = |letter| words.contains(&Word::Flag(letter));
    let operands = operands(&words);
    let [full] = operands.as_slice() else {
        let problem =
            if operands.is_empty() { "missing dataset argument" } else { "too many arguments" };
        return Err(Failure::Usage(problem.to_owned()));
    };
    let Some((head, _)) = full.split_once('@') else {
        let message = format!("cannot open '{full}': missing '@' delimiter in snapshot name");
        return Err(Failure::Failed(message));
    };
    check_head("open", head)?;
    name::check(full).map_err(|error| Failure::Failed(format!("cannot open '{full}': {error}")))?;
    let mut client = pool_with(full)?;
    let kinds = [DatasetKind::Snapshot, DatasetKind::Bookmark];
    let marks = query(&mut client, head, (Some(1), &kinds), &NEEDED);
    let marks = marks.map_err(|_| missing(full))?;
    let target = marks.iter().find(|one| one.name == *full).ok_or_else(|| missing(full))?;
    let mut later: Vec<_> = marks.iter().filter(|one| one.created > target.created).collect();
    later.sort_by_key(|one| std::cmp::Reverse(one.created));
    let names = || later.iter().map(|one| one.name.as_str());
    if !later.is_empty() && !flag('r') && !flag('R') {
        return Err(Failure::Failed(format!(
            "cannot rollback to '{full}': more recent snapshots or bookmarks exist\n\
             use '-r' to force deletion of the following snapshots and bookmarks:\n{}",
            names().collect::<Vec<_>>().join("\n")
        )));
    }
    let (bookmarks, snapshots): (Vec<&DatasetReport>, Vec<_>) =
        later.iter().copied().partition(|one| one.kind == DatasetKind::Bookmark);
    let doomed = DestroyPlan::of(&mut client, snapshots)?;
    let clones = &doomed.dependents;
    if !clones.is_empty() && !flag('R') {
        return Err(Failure::Failed(format!(
            "cannot rollback to '{full}': clones of previous snapshots exist\n\
             use '-R' to force deletion of the following clones and dependents:\n{}",
            clones.join("\n")
        )));
    }
    let has_clones = !clones.is_empty();
    let names = doomed.into_order()?;
    if !names.is_empty() {
        let change = match has_clones {
            true => {
                Change::Destroy { names, force: flag('f'), newcomers: ConcurrentSnapshots::Destroy }
            }
            false => Change::DestroySnapshots { names, defer: false },
        };
        carry_out(&mut client, change, None, console)?;
    }
    for mark in bookmarks {
        source::change(&mut client, Change::DestroyBookmark { name: mark.name.clone() }, None)?;
    }
    let change = Change::Rollback { snapshot: full.clone() };
    carry_out(&mut client, change, Some(&line), console)
}
