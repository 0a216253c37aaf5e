//! `zfs rename` (spec 09, section 4).

use super::change::{carry_out, check_head, pool_with, require, snapshots_of_tree};
use super::name::{self, pool_of};
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word, operands};
use crate::history::command_line;
use rzfs_server::protocol::Change;

const GRAMMAR: Grammar = Grammar {
    letters: &[('p', Value::None), ('u', Value::None), ('f', Value::None), ('r', Value::None)],
    names: &[],
};

/// Runs `zfs rename`.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let line = command_line("zfs rename", words);
    let words = GRAMMAR.parse(words)?;
    let flag = |letter| words.contains(&Word::Flag(letter));
    let operands = operands(&words);
    let [from, to] = operands.as_slice() else {
        let problem = match operands.len() {
            0 => "missing source dataset argument",
            1 => "missing target dataset argument",
            _ => "too many arguments",
        };
        return Err(Failure::Usage(problem.to_owned()));
    };
    if flag('r') && !from.contains('@') {
        let message = format!("cannot open '{from}': missing '@' delimiter in snapshot name");
        return Err(Failure::Failed(message));
    }
    if let Some((head, snapshot)) = from.split_once('@') {
        return rename_snapshots((head, snapshot), to, (flag('r'), &line), console);
    }
    check_head("open", from)?;
    let mut client = pool_with(from)?;
    check_head("create", to)?;
    if pool_of(from) != pool_of(to) {
        let message = format!("cannot rename to '{to}': datasets must be within same pool");
        return Err(Failure::Failed(message));
    }
    let change = Change::Rename {
        from: from.clone(),
        to: to.clone(),
        ancestors: flag('p'),
        force: flag('f'),
        leave_mounted: flag('u'),
    };
    carry_out(&mut client, change, Some(&line), console)
}

/// Snapshots keep their dataset; the new name may omit it.
fn rename_snapshots(
    (head, snapshot): (&str, &str),
    to: &str,
    (recursive, line): (bool, &str),
    console: &mut Console<'_>,
) -> Outcome {
    check_head("open", head)?;
    let full = format!("{head}@{snapshot}");
    let new = match to.split_once('@') {
        Some((of, new)) if of.is_empty() || of == head => new,
        Some(_) => {
            let reason = "snapshots must be part of same dataset";
            return Err(Failure::Failed(format!("cannot rename to '{to}': {reason}")));
        }
        None => to,
    };
    name::check(&format!("{head}@{new}"))
        .map_err(|error| Failure::Failed(format!("cannot create '{head}@{new}': {error}")))?;
    let mut client = pool_with(head)?;
    if new == snapshot {
        return require(&mut client, &full);
    }
    let names = match recursive {
        true => snapshots_of_tree(&mut client, head, snapshot)?,
        false => {
            require(&mut client, &full)?;
            vec![full]
        }
    };
    let change = Change::RenameSnapshots { names, to: new.to_owned() };
    carry_out(&mut client, change, Some(line), console)
}
