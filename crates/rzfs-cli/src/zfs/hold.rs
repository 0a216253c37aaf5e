//! `zfs hold`, `holds` and `release` (spec 09, sections 3.5 and 4).

use super::change::{carry_out, check_head, for_each, pool_with, snapshots_of_tree};
use super::name;
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word, operands};
use crate::history::command_line;
use crate::source;
use crate::table::{Column, Layout, Table};
use rzfs_server::control::ControlClient;
use rzfs_server::protocol::Change;

const CHANGE: Grammar = Grammar { letters: &[('r', Value::None)], names: &[] };
const LIST: Grammar =
    Grammar { letters: &[('r', Value::None), ('H', Value::None), ('p', Value::None)], names: &[] };

/// The given snapshot, and with `recursive` those with its name below, and their pool.
fn snapshots(full: &str, recursive: bool) -> Result<(ControlClient, Vec<String>), Failure> {
    let Some((head, snapshot)) = full.split_once('@') else {
        return Err(Failure::Failed(format!("'{full}' is not a snapshot")));
    };
    check_head("open", head)?;
    name::check(full).map_err(|error| Failure::Failed(format!("cannot open '{full}': {error}")))?;
    let mut client = pool_with(full)?;
    let names = match recursive {
        false => vec![full.to_owned()],
        true => snapshots_of_tree(&mut client, head, snapshot)?,
    };
    Ok((client, names))
}

/// Runs `zfs hold`.
pub(super) fn hold(words: &[String], console: &mut Console<'_>) -> Outcome {
    let request = Request::understand(words)?;
    if request.tag.starts_with('.') {
        return Err(Failure::Usage("tag may not start with '.'".to_owned()));
    }
    let line = command_line("zfs hold", words);
    let change = |_: &mut _, names, tag| Ok(Change::Hold { names, tag });
    request.carry_out(&line, console, change)
}

/// Runs `zfs release`.
pub(super) fn release(words: &[String], console: &mut Console<'_>) -> Outcome {
    let request = Request::understand(words)?;
    let line = command_line("zfs release", words);
    request.carry_out(&line, console, |client, mut names, tag| {
        // In a tree, only those with the tag; if none has it, the refusal reports that.
        if let [_, _, ..] = names.as_slice() {
            let holds = source::holds(client, names.clone())?;
            let mut held = holds.into_iter().filter(|hold| hold.tag == tag).peekable();
            if held.peek().is_some() {
                names = held.map(|hold| hold.snapshot).collect();
            } else {
                names.truncate(1);
            }
        }
        Ok(Change::Release { names, tag })
    })
}

/// The parsed words of `hold` and `release`.
struct Request {
    tag: String,
    snapshots: Vec<String>,
    is_recursive: bool,
}

impl Request {
    fn understand(words: &[String]) -> Result<Self, Failure> {
        let words = CHANGE.parse(words)?;
        match operands(&words).split_first() {
            Some((tag, snapshots)) if !snapshots.is_empty() => Ok(Self {
                tag: tag.clone(),
                snapshots: snapshots.to_vec(),
                is_recursive: words.contains(&Word::Flag('r')),
            }),
            _ => Err(Failure::Usage("incorrect number of arguments".to_owned())),
        }
    }

    /// Makes a change for each operand.
    fn carry_out(
        &self,
        line: &str,
        console: &mut Console<'_>,
        change: impl Fn(&mut ControlClient, Vec<String>, String) -> Result<Change, Failure>,
    ) -> Outcome {
        let mut line = Some(line);
        for_each(&self.snapshots, console, |full, console| {
            let (mut client, names) = snapshots(full, self.is_recursive)?;
            let change = change(&mut client, names, self.tag.clone())?;
            // The command is logged once.
            carry_out(&mut client, change, line, console)?;
            line = None;
            Ok(())
        })
    }
}

/// Runs `zfs holds`.
pub(super) fn holds(words: &[String], console: &mut Console<'_>) -> Outcome {
    let words = LIST.parse(words)?;
    let flag = |letter| words.contains(&Word::Flag(letter));
    let operands = operands(&words);
    if operands.is_empty() {
        return Err(Failure::Usage("incorrect number of arguments".to_owned()));
    }
    let mut table = Table::new(["NAME", "TAG", "TIMESTAMP"].map(Column::text).into());
    let outcome = for_each(&operands, console, |full, console| {
        let (mut client, names) = snapshots(full, flag('r'))?;
        for hold in source::holds(&mut client, names)? {
            let created = match flag('p') {
                true => hold.created.to_string(),
                false => console.calendar.creation(hold.created),
            };
            table.push(vec![hold.snapshot, hold.tag, created]);
        }
        Ok(())
    });
    let layout = if flag('H') { Layout::Scripted } else { Layout::Human };
    if !table.is_empty() {
        table.print(layout, console.out)?;
    }
    outcome
}
