//! Which pools a command is about, and how often it prints them.

use crate::console::{Console, Failure, Outcome};
use crate::getopt::Word;
use crate::source::{self, Respondent};
use rzfs::protocol::PoolReport;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How times are printed before each report (`-T`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stamp {
    /// `d`: as dates.
    Date,
    /// `u`: as seconds since the epoch.
    Seconds,
}

/// Pools, devices to find them on, and repetition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// Names; empty for all.
    pub(crate) names: Vec<String>,
    /// `-d`.
    pub(crate) devices: Vec<String>,
    /// Wait between reports.
    pub(crate) interval: Option<Duration>,
    /// Number of reports; none is without end if there is an interval.
    pub(crate) count: Option<u64>,
    /// `-T`.
    pub(crate) stamp: Option<Stamp>,
}

/// What becomes of an unknown name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unknown {
    /// The command fails, after it has shown the others.
    Fails,
    /// The command fails only if no other pool was found.
    FailsAlone,
}

impl Selection {
    /// Takes devices, `-T` and operands from the words of a command. Trailing numbers among the
    /// operands are interval and count.
    pub(crate) fn of(words: &[Word]) -> Result<Self, Failure> {
        let mut selection = Self::default();
        for word in words {
            match word {
                Word::Device(device) => selection.devices.push(device.clone()),
                Word::Operand(name) => selection.names.push(name.clone()),
                Word::Option('T', stamp) => selection.stamp = Some(parse_stamp(stamp)?),
                _ => {}
            }
        }
        if let Some(last) = interval(selection.names.last())? {
            selection.names.pop();
            let interval = match interval(selection.names.last())? {
                Some(seconds) => {
                    selection.names.pop();
                    selection.count = Some(last as u64);
                    seconds
                }
                None => last,
            };
            selection.interval = Duration::try_from_secs_f64(interval).ok();
        }
        Ok(selection)
    }

    /// Opens the pools, in the order of their names. Complains about names that none has.
    pub(crate) fn respondents(
        &self,
        unknown: Unknown,
        console: &mut Console<'_>,
    ) -> Result<(Vec<Box<dyn Respondent>>, Outcome), Failure> {
        let found = source::respondents(&self.devices, &self.names, console)?;
        let (mut pools, mut outcome) = (found.pools, found.outcome);
        for name in &self.names {
            if !pools.iter().any(|pool| pool.pool() == name) && !found.failed.contains(name) {
                console.complain(format_args!("cannot open '{name}': no such pool"));
                if unknown == Unknown::Fails || pools.is_empty() {
                    outcome = Err(Failure::Told);
                }
            }
        }
        pools.sort_by(|a, b| a.pool().cmp(b.pool()));
        Ok((pools, outcome))
    }

    /// Calls `print` with the state of the pools as often as was asked for.
    pub(crate) fn repeat(
        &self,
        unknown: Unknown,
        console: &mut Console<'_>,
        mut print: impl FnMut(&[PoolReport], bool, &mut Console<'_>) -> Outcome,
    ) -> Outcome {
        let (mut pools, outcome) = self.respondents(unknown, console)?;
        let mut printed = 0;
        loop {
            let reports = pools
                .iter_mut()
                .map(|pool| source::pool_report(pool.as_mut()))
                .collect::<Result<Vec<_>, _>>()?;
            print_stamp(self.stamp, console)?;
            print(&reports, printed == 0, console)?;
            console.out.flush()?;
            printed += 1;
            // Of pools that are named and are not there nothing more will come.
            let has_more = !pools.is_empty() || self.names.is_empty();
            match self.interval.filter(|_| has_more) {
                Some(interval) if self.count.is_none_or(|count| printed < count) => {
                    std::thread::sleep(interval);
                }
                _ => return outcome,
            }
        }
    }
}

/// The seconds of an operand that is a number; other words are names.
pub(super) fn interval(operand: Option<&String>) -> Result<Option<f64>, Failure> {
    let is_number = |word: &&String| word.bytes().all(|c| c.is_ascii_digit() || c == b'.');
    match operand.filter(is_number).and_then(|word| word.parse::<f64>().ok()) {
        Some(seconds) if seconds > 0.0 => Ok(Some(seconds)),
        Some(_) => Err(Failure::Usage("interval cannot be zero".to_owned())),
        None => Ok(None),
    }
}

/// Prints the time of a report.
pub(super) fn print_stamp(stamp: Option<Stamp>, console: &mut Console<'_>) -> Outcome {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    match stamp {
        None => {}
        Some(Stamp::Date) => writeln!(console.out, "{}", console.calendar.date(now()))?,
        Some(Stamp::Seconds) => writeln!(console.out, "{}", now())?,
    }
    Ok(())
}

/// Understands the value of `-T`.
pub(super) fn parse_stamp(text: &str) -> Result<Stamp, Failure> {
    match text {
        "d" => Ok(Stamp::Date),
        "u" => Ok(Stamp::Seconds),
        // OpenZFS prints the usage without a message.
        _ => Err(Failure::Usage(String::new())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailing_numbers_are_interval_and_count() {
        let parse = |text: &str| {
            let words: Vec<Word> =
                text.split(' ').map(|word| Word::Operand(word.to_owned())).collect();
            Selection::of(&words)
        };
        let of = |text: &str| {
            let selection = parse(text).unwrap();
            (selection.names.len(), selection.interval.map(|i| i.as_millis()), selection.count)
        };
        assert_eq!(of("tank"), (1, None, None));
        assert_eq!(of("tank 0.5"), (1, Some(500), None));
        assert_eq!(of("tank pond 2 3"), (2, Some(2000), Some(3)));
        assert_eq!(of("tank inf"), (2, None, None), "a name");
        for zero in ["tank 0", "tank 0.0", "tank 1 0", "tank 0 1"] {
            let Failure::Usage(message) = parse(zero).unwrap_err() else { panic!("{zero}") };
            assert_eq!(message, "interval cannot be zero", "{zero}");
        }
    }
}
