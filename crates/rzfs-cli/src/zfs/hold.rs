//! `zfs hold`, `holds` and `release` (spec 09, sections 3.5 and 4).

use super::change::{carry_out, check_head, pool_with, snapshots_of_tree};
use super::name::{self, pool_of};
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word, operands};
use crate::history::command_line;
use crate::source;
use crate::table::{Column, Layout, Table};
use rzfs_server::protocol::Change;
use std::collections::BTreeMap;

const CHANGE: Grammar = Grammar { letters: &[('r', Value::None)], names: &[] };
const LIST: Grammar =
    Grammar { letters: &[('r', Value::None), ('H', Value::None), ('p', Value::None)], names: &[] };

/// Snapshots by their pools.
type ByPool = BTreeMap<String, Vec<String>>;

/// The snapshots that are meant, also those with the same names below.
fn snapshots(names: &[String], recursive: bool) -> Result<ByPool, Failure> {
    let mut by_pool = ByPool::new();
    for full in names {
        let Some((head, snapshot)) = full.split_once('@') else {
            let message = format!("'{full}' is not a snapshot");
            return Err(Failure::Failed(message));
        };
        check_head("open", head)?;
        name::check(full)
            .map_err(|error| Failure::Failed(format!("cannot open '{full}': {error}")))?;
        let of_pool = by_pool.entry(pool_of(full).to_owned()).or_default();
        match recursive {
            false => of_pool.push(full.clone()),
            true => of_pool.extend(snapshots_of_tree(&mut pool_with(full)?, head, snapshot)?),
        }
    }
    Ok(by_pool)
}

/// Runs `zfs hold`.
pub(super) fn hold(words: &[String], console: &mut Console<'_>) -> Outcome {
    let line = command_line("zfs hold", words);
    changed(words, &line, console, |names, tag| Change::Hold { names, tag })
}

/// Runs `zfs release`.
pub(super) fn release(words: &[String], console: &mut Console<'_>) -> Outcome {
    let line = command_line("zfs release", words);
    changed(words, &line, console, |names, tag| Change::Release { names, tag })
}

fn changed(
    words: &[String],
    line: &str,
    console: &mut Console<'_>,
    change: impl Fn(Vec<String>, String) -> Change,
) -> Outcome {
    let words = CHANGE.parse(words)?;
    let operands = operands(&words);
    let (tag, names) = match operands.split_first() {
        Some((tag, names)) if !names.is_empty() => (tag, names),
        _ => return Err(Failure::Usage("incorrect number of arguments".to_owned())),
    };
    if tag.starts_with('.') {
        return Err(Failure::Usage("tag may not start with '.'".to_owned()));
    }
    for (pool, names) in snapshots(names, words.contains(&Word::Flag('r')))? {
        let mut client = pool_with(&pool)?;
        carry_out(&mut client, change(names, tag.clone()), Some(line), console)?;
    }
    Ok(())
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
    for (pool, names) in snapshots(&operands, flag('r'))? {
        for hold in source::holds(&mut pool_with(&pool)?, names)? {
            let created = match flag('p') {
                true => hold.created.to_string(),
                false => console.calendar.creation(hold.created),
            };
            table.push(vec![hold.snapshot, hold.tag, created]);
        }
    }
    let layout = if flag('H') { Layout::Scripted } else { Layout::Human };
    if !table.is_empty() {
        table.print(layout, console.out)?;
    }
    Ok(())
}
