//! `zfs bookmark` (spec 09, section 4).

use super::change::{carry_out, pool_with};
use super::name::{self, pool_of};
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, operands};
use crate::history::command_line;
use rzfs_server::protocol::Change;

const GRAMMAR: Grammar = Grammar { letters: &[], names: &[] };

/// Runs `zfs bookmark`. Either name may omit the part before its delimiter.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let line = command_line("zfs bookmark", words);
    let operands = operands(&GRAMMAR.parse(words)?);
    let [source, name] = operands.as_slice() else {
        let problem = match operands.len() {
            0 => "missing source argument",
            1 => "missing bookmark argument",
            _ => "too many arguments",
        };
        return Err(Failure::Usage(problem.to_owned()));
    };
    let head = |of: &str| of.split(['@', '#']).next().unwrap_or_default().to_owned();
    let completed = |of: &str, other: &str| match of.starts_with(['@', '#']) {
        true => format!("{}{of}", head(other)),
        false => of.to_owned(),
    };
    let (source, name) = (completed(source, name), completed(name, source));
    let refused = |reason: &dyn std::fmt::Display| {
        Err(Failure::Failed(format!("cannot create bookmark '{name}': {reason}")))
    };
    if !source.contains(['@', '#']) {
        return refused(&format_args!("invalid source name '{source}': must contain a '@' or '#'"));
    }
    if !name.contains('#') {
        return refused(&format_args!("invalid bookmark name '{name}': must contain a '#'"));
    }
    for one in [&source, &name] {
        if let Err(error) = name::check(one) {
            return refused(&error);
        }
    }
    if pool_of(&source) != pool_of(&name) {
        return refused(&"bookmark is in a different pool");
    }
    let mut client = pool_with(&source)?;
    carry_out(&mut client, Change::Bookmark { source, name }, Some(&line), console)
}
