//! The pools for a command, and how often it prints them.

use crate::console::{Console, Failure, Outcome};
use crate::getopt::Word;
use crate::source::{self, PoolClient};
use rzfs_server::protocol::PoolReport;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The format of times before each report (`-T`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stamp {
    /// `d`: as dates.
    Date,
    /// `u`: as seconds since the epoch.
    Seconds,
}

/// Pools, their devices, and repetition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// Names; empty for all.
    pub(crate) names: Vec<String>,
    /// `-d`.
    pub(crate) devices: Vec<String>,
    /// The repetition.
    pub(crate) repetition: Repetition,
    /// `-T`.
    pub(crate) stamp: Option<Stamp>,
}

/// How often a command reports, by the numbers after its other operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Repetition {
    /// Interval between reports; without, there is one report.
    pub(crate) interval: Option<Duration>,
    /// Number of reports; `None` for no end if there is an interval.
    pub(crate) count: Option<u64>,
}

impl Repetition {
    /// Takes interval and count from the end of the operands. Each of the last two counts only if
    /// just numbers follow it; everything else is a name, including numbers with too many seconds
    /// to wait.
    pub(crate) fn take(operands: &mut Vec<String>) -> Result<Self, Failure> {
        let Some(last) = take_number(operands)? else { return Ok(Self::default()) };
        Ok(match take_number(operands)? {
            // Fractions of a report do not count.
            Some(interval) => Self { interval: Some(interval), count: Some(last.as_secs().max(1)) },
            None => Self { interval: Some(last), count: None },
        })
    }
}

/// Takes the last operand if it is a number.
fn take_number(operands: &mut Vec<String>) -> Result<Option<Duration>, Failure> {
    let number = number(operands.last())?;
    if number.is_some() {
        operands.pop();
    }
    Ok(number)
}

/// The seconds of a numeric operand; other words are names.
fn number(operand: Option<&String>) -> Result<Option<Duration>, Failure> {
    let is_number = |word: &&String| word.bytes().all(|c| c.is_ascii_digit() || c == b'.');
    let seconds = operand.filter(is_number).and_then(|word| word.parse::<f64>().ok());
    match seconds.map(Duration::try_from_secs_f64) {
        Some(Ok(Duration::ZERO)) => Err(Failure::Usage("interval cannot be zero".to_owned())),
        Some(Ok(duration)) => Ok(Some(duration)),
        Some(Err(_)) | None => Ok(None),
    }
}

impl Selection {
    /// Takes devices, `-T` and names from the options of a command.
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
        Ok(selection)
    }

    /// The same for a command that may repeat its report.
    pub(crate) fn repeated(words: &[Word]) -> Result<Self, Failure> {
        let mut selection = Self::of(words)?;
        selection.repetition = Repetition::take(&mut selection.names)?;
        Ok(selection)
    }

    /// Opens the pools, in the order of their names. Reports names that none has: the command then
    /// fails, after it has shown the others.
    pub(crate) fn respondents(
        &self,
        console: &mut Console<'_>,
    ) -> Result<(Vec<Box<dyn PoolClient>>, Outcome), Failure> {
        let found = source::respondents(&self.devices, &self.names, console)?;
        let (mut pools, mut outcome) = (found.pools, found.outcome);
        for name in &self.names {
            if !pools.iter().any(|pool| pool.pool() == name) && !found.failed.contains(name) {
                console.complain(format_args!("cannot open '{name}': no such pool"));
                outcome = Err(Failure::Told);
            }
        }
        pools.sort_by(|a, b| a.pool().cmp(b.pool()));
        Ok((pools, outcome))
    }

    /// The states of pools. Pools that were not named may be closed meanwhile; unresponsive ones
    /// are reported, and determine the outcome of the command.
    pub(crate) fn reports(
        &self,
        pools: &mut [Box<dyn PoolClient>],
        console: &mut Console<'_>,
    ) -> Result<(Vec<PoolReport>, Outcome), Failure> {
        let mut reports = Vec::with_capacity(pools.len());
        let mut outcome = Ok(());
        for pool in pools {
            let report = source::pool_report(pool.as_mut());
            match source::unless_gone_or_named(&self.names, report) {
                Ok(report) => reports.extend(report),
                Err(Failure::Silent(reason)) => {
                    outcome = Err(source::report_omitted(reason, console))
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok((reports, outcome))
    }

    /// Calls `print` with the states of the pools as often as requested; but not if all pools were
    /// left out and there is nothing to show.
    pub(crate) fn repeat(
        &self,
        console: &mut Console<'_>,
        mut print: impl FnMut(&[PoolReport], bool, &mut Console<'_>) -> Outcome,
    ) -> Outcome {
        let (mut pools, mut outcome) = self.respondents(console)?;
        let mut printed = 0;
        loop {
            let (reports, asked) = self.reports(&mut pools, console)?;
            outcome = outcome.and(asked);
            let is_all = self.names.is_empty() && self.devices.is_empty();
            let are_left_out = reports.is_empty() && is_all && outcome.is_err();
            print_stamp(self.stamp, console)?;
            if !are_left_out {
                print(&reports, printed == 0, console)?;
            }
            console.out.flush()?;
            printed += 1;
            // Named pools that are missing will not appear.
            let has_more = !pools.is_empty() || self.names.is_empty();
            let Repetition { interval, count } = self.repetition;
            match interval.filter(|_| has_more) {
                Some(interval) if count.is_none_or(|count| printed < count) => {
                    std::thread::sleep(interval);
                }
                _ => return outcome,
            }
        }
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

/// Parses the value of `-T`.
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
            Selection::repeated(&words)
        };
        let of = |text: &str| {
            let selection = parse(text).unwrap();
            let Repetition { interval, count } = selection.repetition;
            (selection.names.len(), interval.map(|i| i.as_millis()), count)
        };
        assert_eq!(of("tank"), (1, None, None));
        assert_eq!(of("tank 0.5"), (1, Some(500), None));
        assert_eq!(of("tank pond 2 3"), (2, Some(2000), Some(3)));
        assert_eq!(of("tank 2 0.5"), (1, Some(2000), Some(1)));
        assert_eq!(of("2 3"), (0, Some(2000), Some(3)));
        for name in ["tank inf", "tank 1.2.3", "tank 18446744073709551616", "tank 1e3"] {
            assert_eq!(of(name), (2, None, None), "{name}");
        }
        assert_eq!(of("tank 1 pond"), (3, None, None), "only the last ones");
        assert_eq!(of("tank 99999999999999999999 3"), (2, Some(3000), None));
        assert_eq!(of("tank 1 2 3"), (2, Some(2000), Some(3)));
        for zero in ["tank 0", "tank 0.0", "tank 1 0", "tank 0 1", "0", "1 0"] {
            let Failure::Usage(message) = parse(zero).unwrap_err() else { panic!("{zero}") };
            assert_eq!(message, "interval cannot be zero", "{zero}");
        }
    }
}
