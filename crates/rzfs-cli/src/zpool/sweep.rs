//! `zpool initialize` and `zpool trim` (spec 09, section 2).

use super::wait::{Activity, wait_for};
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word, operands};
use crate::history::command_line;
use crate::quantity::parse_size;
use crate::source;
use crate::source::required_or_all;
use rzfs_server::protocol::{Change, Erasure, SweepKind, SweepOrder, SweepRequest};

/// Exit status of a failure to start or stop.
const FAILED: u8 = 255;

const INITIALIZE: Grammar = Grammar {
    letters: &[
        ('c', Value::None),
        ('s', Value::None),
        ('u', Value::None),
        ('w', Value::None),
        ('a', Value::None),
    ],
    names: &[("cancel", 'c'), ("suspend", 's'), ("uninit", 'u'), ("wait", 'w'), ("all", 'a')],
};

const TRIM: Grammar = Grammar {
    letters: &[
        ('c', Value::None),
        ('s', Value::None),
        ('d', Value::None),
        ('r', Value::Required),
        ('w', Value::None),
        ('a', Value::None),
    ],
    names: &[
        ("cancel", 'c'),
        ("suspend", 's'),
        ("secure", 'd'),
        ("rate", 'r'),
        ("wait", 'w'),
        ("all", 'a'),
    ],
};

/// Runs `zpool initialize`.
pub(super) fn initialize(words: &[String], console: &mut Console<'_>) -> Outcome {
    let line = command_line("zpool initialize", words);
    run(SweepKind::Initialize, &INITIALIZE.parse(words)?, &line, console)
}

/// Runs `zpool trim`.
pub(super) fn trim(words: &[String], console: &mut Console<'_>) -> Outcome {
    let line = command_line("zpool trim", words);
    run(SweepKind::Trim, &TRIM.parse(words)?, &line, console)
}

fn run(kind: SweepKind, words: &[Word], line: &str, console: &mut Console<'_>) -> Outcome {
    let flag = |letter| words.contains(&Word::Flag(letter));
    let order = order(words)?;
    let erasure = if flag('d') { Erasure::Secure } else { Erasure::Plain };
    if flag('w') && !matches!(order, SweepOrder::Start { .. }) {
        // The missing space is OpenZFS's.
        let message = match kind {
            SweepKind::Initialize => "-w cannot be used with -c, -sor -u",
            SweepKind::Trim => "-w cannot be used with -c or -s",
        };
        return Err(Failure::Usage(message.to_owned()));
    }
    let mut operands = operands(words).into_iter();
    let (pools, devices): (Vec<String>, Vec<String>) = match (flag('a'), operands.next()) {
        (true, Some(_)) => {
            let message = "-a cannot be combined with individual pools";
            return Err(Failure::Usage(message.to_owned()));
        }
        (true, None) => (Vec::new(), Vec::new()),
        (false, None) => return Err(Failure::Usage("missing pool name argument".to_owned())),
        (false, Some(pool)) => (vec![pool], operands.collect()),
    };
    let failed = |failure: Failure| failure.with_status(FAILED);
    let (mut clients, outcome) = required_or_all(&pools, console).map_err(failed)?;
    for client in &mut clients {
        let devices = devices.clone();
        let request = SweepRequest { kind, order, erasure, devices };
        let done = source::change(client, Change::Sweep(request), Some(line));
        source::unless_gone_or_named(&pools, done).map_err(failed)?;
    }
    if flag('w') {
        let activity = match kind {
            SweepKind::Initialize => Activity::Initialize,
            SweepKind::Trim => Activity::Trim,
        };
        for client in &mut clients {
            let waited = wait_for(client, &[activity]);
            source::unless_gone_or_named(&pools, waited)?;
        }
    }
    outcome
}

/// Parses the options into an order. A second one is refused.
fn order(words: &[Word]) -> Result<SweepOrder, Failure> {
    let mut order = None;
    let mut rate = None;
    for word in words {
        let wanted = match word {
            Word::Flag('c') => ('c', SweepOrder::Cancel),
            Word::Flag('s') => ('s', SweepOrder::Suspend),
            Word::Flag('u') => ('u', SweepOrder::Forget),
            Word::Option('r', text) => {
                rate =
                    Some(parse_size(text).map_err(|error| {
                        Failure::Usage(format!("invalid value for rate: {error}"))
                    })?);
                continue;
            }
            _ => continue,
        };
        if order.is_some_and(|earlier| earlier != wanted.1) {
            let message = format!("-{} cannot be combined with other options", wanted.0);
            return Err(Failure::Usage(message));
        }
        order = Some(wanted.1);
    }
    Ok(order.unwrap_or(SweepOrder::Start { rate }))
}
