//! `zfs wait` (spec 09, section 3.7).

use super::change::{check_head, pool_with};
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word, operands};
use crate::source::unfreed_files;
use std::time::Duration;

const GRAMMAR: Grammar = Grammar { letters: &[('t', Value::Required)], names: &[] };

/// The only supported activity: freeing of removed files.
const ACTIVITY: &str = "deleteq";

/// How often a pool is queried.
const POLL: Duration = Duration::from_millis(100);

/// Runs `zfs wait`.
pub(super) fn run(words: &[String], _: &mut Console<'_>) -> Outcome {
    let words = GRAMMAR.parse(words)?;
    let lists = words.iter().filter_map(|word| match word {
        Word::Option('t', list) => Some(list),
        _ => None,
    });
    if let Some(unknown) = lists.flat_map(|list| list.split(',')).find(|word| *word != ACTIVITY) {
        return Err(Failure::Usage(format!("invalid activity '{unknown}'")));
    }
    let operands = operands(&words);
    let [file_system] = operands.as_slice() else {
        let problem = match operands.is_empty() {
            true => "missing 'filesystem' argument",
            false => "too many arguments",
        };
        return Err(Failure::Usage(problem.to_owned()));
    };
    check_head("open", file_system)?;
    let mut pool = pool_with(file_system)?;
    while unfreed_files(&mut pool, file_system.clone())? > 0 {
        std::thread::sleep(POLL);
    }
    Ok(())
}
