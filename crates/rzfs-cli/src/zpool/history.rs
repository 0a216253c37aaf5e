//! `zpool history` (spec 09, section 2).

use super::selection::Selection;
use crate::console::{Console, Outcome};
use crate::getopt::{Grammar, Value, Word};
use crate::host_names::names_in;
use crate::source;
use crate::table::on_one_line;
use rzfs_server::protocol::{HistoryKind, HistoryReport};
use std::collections::HashMap;

const GRAMMAR: Grammar = Grammar {
    letters: &[('i', Value::None), ('l', Value::None), ('d', Value::Devices)],
    names: &[],
};

/// Runs `zpool history`.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let words = GRAMMAR.parse(words)?;
    let flag = |letter| words.contains(&Word::Flag(letter));
    let selection = Selection::of(&words)?;
    let (mut pools, outcome) = selection.respondents(console)?;
    let users = if flag('l') { names_in("/etc/passwd") } else { HashMap::new() };
    for pool in &mut pools {
        let name = pool.pool().to_owned();
        let Some(history) = source::unless_gone(source::history(pool.as_mut()))? else { continue };
        writeln!(console.out, "History for '{name}':")?;
        for record in history {
            if record.kind == HistoryKind::Internal && !flag('i') {
                continue;
            }
            let time = record.time.map(|seconds| console.calendar.history(seconds));
            let time = time.as_deref().unwrap_or("unknown");
            let origin = if flag('l') { origin(&record, &users) } else { String::new() };
            // Those of the pool's own have lines.
            let text = match record.kind {
                HistoryKind::Command => on_one_line(&record.text),
                HistoryKind::Internal => record.text,
            };
            writeln!(console.out, "{time} {text}{origin}")?;
        }
        writeln!(console.out)?;
    }
    outcome
}

/// The author of a record, and the place.
fn origin(record: &HistoryReport, users: &HashMap<u64, String>) -> String {
    let mut parts = Vec::new();
    if let Some(user) = record.user {
        let name = users.get(&user).map_or(String::new(), |name| format!(" ({name})"));
        parts.push(format!("user {user}{name}"));
    }
    if let Some(host) = &record.host {
        let zone = record.zone.as_ref().map_or(String::new(), |zone| format!(":{zone}"));
        parts.push(format!("on {host}{zone}"));
    }
    if parts.is_empty() { String::new() } else { format!(" [{}]", parts.join(" ")) }
}
