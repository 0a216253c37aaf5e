//! `zpool ddtprune` and `zpool prefetch` (spec 09, section 2).

use crate::console::{Failure, Outcome};
use crate::getopt::{Grammar, Value, Word, operands};
use crate::history::command_line;
use crate::source;
use crate::source::required;
use rzfs_server::protocol::{Change, PruneLimit};

const PRUNE: Grammar =
    Grammar { letters: &[('d', Value::Required), ('p', Value::Required)], names: &[] };
const PREFETCH: Grammar = Grammar { letters: &[('t', Value::Required)], names: &[] };

/// Seconds per day.
const DAY: u64 = 24 * 60 * 60;

/// Exit status if there is nothing to prune.
const FAILED: u8 = 255;

/// Runs `zpool ddtprune`.
pub(super) fn prune(words: &[String]) -> Outcome {
    let line = command_line("zpool ddtprune", words);
    let words = PRUNE.parse(words)?;
    let usage = |message: &str| Failure::Usage(message.to_owned());
    let mut limit = None;
    for word in &words {
        let Word::Option(letter, text) = word else { continue };
        let number = text.parse::<u64>().ok().filter(|number| *number > 0);
        let (wanted, other) = match letter {
            'd' => {
                let days = number.and_then(|days| days.checked_mul(DAY));
                (PruneLimit::Age(days.ok_or_else(|| usage("invalid days value"))?), 'p')
            }
            _ => {
                let percent = number.filter(|percent| *percent <= 100);
                let percent = percent.ok_or_else(|| usage("invalid percentage value"))?;
                (PruneLimit::Percent(percent), 'd')
            }
        };
        if limit.is_some() {
            return Err(Failure::Usage(format!(
                "-{letter} cannot be combined with -{other} option"
            )));
        }
        limit = Some(wanted);
    }
    let limit = limit.ok_or_else(|| usage("missing amount option (-d|-p <value>)"))?;
    let operands = operands(&words);
    let pool = match operands.as_slice() {
        [] => return Err(usage("missing pool argument")),
        [pool] => pool,
        _ => return Err(usage("too many arguments")),
    };
    let failed = |failure: Failure| failure.with_status(FAILED);
    let mut client = required(pool).map_err(failed)?;
    source::change(&mut client, Change::PruneDedup(limit), Some(&line)).map_err(failed)?;
    Ok(())
}

/// Runs `zpool prefetch`.
pub(super) fn prefetch(words: &[String]) -> Outcome {
    let line = command_line("zpool prefetch", words);
    let words = PREFETCH.parse(words)?;
    let kind = words.iter().find_map(|word| match word {
        Word::Option('t', kind) => Some(kind.as_str()),
        _ => None,
    });
    match kind {
        Some("ddt") => {}
        Some(_) => return Err(Failure::Usage("unsupported prefetch type".to_owned())),
        None => return Err(Failure::Usage("missing prefetch type".to_owned())),
    }
    let operands = operands(&words);
    let pool = match operands.as_slice() {
        [] => return Err(Failure::Usage("missing pool name argument".to_owned())),
        [pool] => pool,
        _ => return Err(Failure::Usage("too many arguments".to_owned())),
    };
    source::change(&mut required(pool)?, Change::PrefetchDedup, Some(&line))?;
    Ok(())
}
