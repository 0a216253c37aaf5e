//! `zfs create` (spec 09, sections 3.5 and 4).

use super::change::{carry_out, check_head, pair, pool};
use super::name::pool_of;
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word, operands};
use crate::history::command_line;
use crate::key_input;
use rzfs::setting::NewDatasetProperties;
use rzfs_server::protocol::{Change, DatasetKind, NewFileSystem};
use std::io::Write;

const GRAMMAR: Grammar = Grammar {
    letters: &[
        ('P', Value::None),
        ('n', Value::None),
        ('p', Value::None),
        ('u', Value::None),
        ('v', Value::None),
        ('o', Value::Required),
        ('V', Value::Required),
        ('b', Value::Required),
        ('s', Value::None),
    ],
    names: &[],
};

/// Runs `zfs create`.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let line = command_line("zfs create", words);
    let words = GRAMMAR.parse(words)?;
    let flag = |letter| words.contains(&Word::Flag(letter));
    let mut properties = Vec::new();
    for word in &words {
        match word {
            Word::Option('o', text) => pair(&mut properties, text)?,
            Word::Option('V' | 'b', _) => {
                return Err(Failure::Failed("volumes are only read by this software".to_owned()));
            }
            _ => {}
        }
    }
    let operands = operands(&words);
    let [name] = operands.as_slice() else {
        let problem =
            if operands.is_empty() { "missing filesystem argument" } else { "too many arguments" };
        return Err(Failure::Usage(problem.to_owned()));
    };
    check_head("create", name)?;
    let refused = |reason: &dyn std::fmt::Display| {
        Failure::Failed(format!("cannot create '{name}': {reason}"))
    };
    let Some(mut client) = pool(name)? else {
        return Err(refused(&format_args!("no such pool '{}'", pool_of(name))));
    };
    if !name.contains('/') {
        let reason = "missing dataset name";
        return Err(refused(&reason));
    }
    let pairs = properties.iter().map(|(name, word)| (&**name, &**word));
    let parsed = NewDatasetProperties::parse(pairs).map_err(|error| refused(&error))?;
    if flag('v') || flag('P') {
        let known = super::change::tree(&mut client, pool_of(name), &[DatasetKind::Filesystem])?;
        let above = name.rsplit_once('/').map_or("", |(above, _)| above);
        let is_missing = !known.iter().any(|dataset| dataset.name == above);
        let form = match (flag('P'), flag('n')) {
            (true, _) => Form::Scripted,
            (false, true) => Form::Conditional,
            (false, false) => Form::Plain,
        };
        report(name, &properties, form, flag('p') && is_missing, console)?;
    }
    if flag('n') {
        return Ok(());
    }
    let key = key_input::of_new(name, &parsed.encryption)?;
    let new = NewFileSystem {
        key,
        name: name.clone(),
        properties,
        ancestors: flag('p'),
        leave_unmounted: flag('u'),
    };
    carry_out(&mut client, Change::Create(new), Some(&line), console)
}

/// The format of the report.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// For programs (`-P`).
    Scripted,
    /// Reports only what would be created (`-n`).
    Conditional,
    Plain,
}

fn report(
    name: &str,
    properties: &[(String, String)],
    form: Form,
    ancestors: bool,
    console: &mut Console<'_>,
) -> Outcome {
    let out: &mut dyn Write = console.out;
    let (ancestors_of, create) = match form {
        Form::Scripted => ("create_ancestors\t", "create\t"),
        Form::Conditional => ("would create ancestors of ", "would create "),
        Form::Plain => ("create ancestors of ", "create "),
    };
    if ancestors {
        writeln!(out, "{ancestors_of}{name}")?;
    }
    writeln!(out, "{create}{name}")?;
    for (name, value) in properties {
        match form {
            Form::Scripted => writeln!(out, "property\t{name}\t{value}")?,
            Form::Conditional | Form::Plain => writeln!(out, "\t{name}={value}")?,
        }
    }
    Ok(())
}
