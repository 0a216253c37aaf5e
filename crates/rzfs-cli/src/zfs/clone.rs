//! `zfs clone` and `zfs promote` (spec 09, section 4).

use super::change::{carry_out, check_head, pair, pool_with};
use super::name::{self, pool_of};
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word, operands};
use crate::history::command_line;
use rzfs_server::protocol::{Change, NewClone};

const CLONE: Grammar =
    Grammar { letters: &[('p', Value::None), ('o', Value::Required)], names: &[] };
const PROMOTE: Grammar = Grammar { letters: &[], names: &[] };

/// Runs `zfs clone`.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let line = command_line("zfs clone", words);
    let words = CLONE.parse(words)?;
    let mut properties = Vec::new();
    for word in &words {
        if let Word::Option('o', text) = word {
            pair(&mut properties, text)?;
        }
    }
    let operands = operands(&words);
    let [origin, name] = operands.as_slice() else {
        let problem = match operands.len() {
            0 => "missing source dataset argument",
            1 => "missing target dataset argument",
            _ => "too many arguments",
        };
        return Err(Failure::Usage(problem.to_owned()));
    };
    if !origin.contains('@') {
        let message = format!("cannot open '{origin}': missing '@' delimiter in snapshot name");
        return Err(Failure::Failed(message));
    }
    name::check(origin)
        .map_err(|error| Failure::Failed(format!("cannot open '{origin}': {error}")))?;
    check_head("create", name)?;
    let mut client = pool_with(origin)?;
    if pool_of(origin) != pool_of(name) {
        let reason = "source and target pools differ";
        return Err(Failure::Failed(format!("cannot create '{name}': {reason}")));
    }
    let new = NewClone {
        name: name.clone(),
        origin: origin.clone(),
        properties,
        ancestors: words.contains(&Word::Flag('p')),
    };
    carry_out(&mut client, Change::Clone(new), Some(&line), console)
}

/// Runs `zfs promote`.
pub(super) fn promote(words: &[String], console: &mut Console<'_>) -> Outcome {
    let line = command_line("zfs promote", words);
    let operands = operands(&PROMOTE.parse(words)?);
    let [name] = operands.as_slice() else {
        let problem = match operands.len() {
            0 => "missing clone filesystem argument",
            _ => "too many arguments",
        };
        return Err(Failure::Usage(problem.to_owned()));
    };
    check_head("open", name)?;
    let mut client = pool_with(name)?;
    super::change::require(&mut client, name)?;
    carry_out(&mut client, Change::Promote { name: name.clone() }, Some(&line), console)
}
