//! `zfs rename` of file systems (spec 09, section 4).

use super::change::{carry_out, check_head, pool_with};
use super::name::pool_of;
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word, operands};
use crate::history::command_line;
use rzfs::protocol::Change;

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
    if from.contains('@') {
        let message = format!("cannot rename '{from}': snapshots are only read by this software");
        return Err(Failure::Failed(message));
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
