//! `zfs receive` (spec 08, section 9).

use super::change::{carry_out, check_head, full_name, pair, pool_with};
use super::name;
use crate::absent::Program;
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word, operands};
use crate::history::command_line;
use crate::quantity::nicebytes;
use crate::source;
use rzfs_format::property::DatasetProperty;
use rzfs_server::control::ReceiveProgress;
use rzfs_server::protocol::{
    Change, ReceiveReport, ReceiveRequest, ReceiveTarget, Remains, StreamExtent, TreeChange,
    TreeReport,
};
use std::fs::File;
use std::time::Instant;

const GRAMMAR: Grammar = Grammar {
    letters: &[
        ('d', Value::None),
        ('e', Value::None),
        ('F', Value::None),
        ('n', Value::None),
        ('o', Value::Required),
        ('u', Value::None),
        ('v', Value::None),
        ('A', Value::None),
        ('M', Value::None),
        ('c', Value::None),
        ('h', Value::None),
        ('s', Value::None),
        ('x', Value::Required),
    ],
    names: &[],
};

/// Options that are parsed but not implemented: ignoring them would change the result.
const ABSENT: &str = "c";

/// Runs `zfs receive`.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let command = command_line("zfs receive", words);
    let words = GRAMMAR.parse(words)?;
    let flag = |letter| words.contains(&Word::Flag(letter));
    Program::Zfs.refuse_options("receive", ABSENT, &words)?;
    let target = match operands(&words).as_slice() {
        [] => return Err(Failure::Usage("missing snapshot argument".to_owned())),
        [target] => target.clone(),
        _ => return Err(Failure::Usage("too many arguments".to_owned())),
    };
    if flag('A') {
        if "densu".chars().any(flag) {
            return Err(Failure::Usage("invalid option".to_owned()));
        }
        check_head("receive", &target)?;
        let mut client = pool_with(&target)?;
        let change = Change::AbandonReceive { name: target };
        return carry_out(&mut client, change, Some(&command), console);
    }
    let (mut properties, mut excluded) = (Vec::new(), Vec::new());
    for word in &words {
        match word {
            Word::Option('o', setting) => pair(&mut properties, setting)?,
            Word::Option('x', name) => {
                check_property(name)?;
                excluded.push(full_name(name));
            }
            _ => {}
        }
    }
    let origin = properties.iter().position(|(name, _)| name == DatasetProperty::Origin.name());
    let origin = origin.map(|at| properties.remove(at).1);
    let bad = |name: &str, error| Failure::Failed(format!("cannot receive: '{name}': {error}"));
    for one in origin.iter().chain([&target]) {
        name::check(one).map_err(|error| bad(one, error))?;
    }
    let target = match (flag('d'), flag('e')) {
        (true, true) => {
            return Err(Failure::Usage("invalid option combination: -d and -e".to_owned()));
        }
        (true, false) | (false, true) if target.contains('@') => {
            return Err(Failure::Failed("cannot receive: snapshot name specified".to_owned()));
        }
        (true, false) => ReceiveTarget::Path(target),
        (false, true) => ReceiveTarget::LastName(target),
        (false, false) if target.contains('@') => ReceiveTarget::Snapshot(target),
        (false, false) => ReceiveTarget::Dataset(target),
    };
    let stdin = rustix::stdio::stdin();
    if rustix::termios::isatty(stdin) {
        return Err(Failure::Failed(
            "Error: Backup stream can not be read from a terminal.\nYou must redirect standard input."
                .to_owned(),
        ));
    }
    // Bypasses the buffer of standard input.
    let from = File::from(rustix::io::dup(stdin).map_err(std::io::Error::from)?);
    let client = source::required(name::pool_of(target.dataset()))?;
    let request = ReceiveRequest {
        target,
        origin,
        properties,
        excluded,
        force: flag('F'),
        force_unmount: flag('M'),
        skip_holds: flag('h'),
        leave_unmounted: flag('u'),
        remains: if flag('s') { Remains::Kept } else { Remains::Destroyed },
        dry_run: flag('n'),
        command,
    };
    let mut told = Told {
        console,
        request: &request,
        is_verbose: flag('v') || flag('n'),
        begun: Instant::now(),
        outcome: Ok(()),
    };
    let received =
        source::receive_snapshots(client, &request, from, |progress| told.hear(progress));
    received.and(told.outcome)
}

/// The progress messages for the user.
struct Told<'a, 'c> {
    console: &'a mut Console<'c>,
    request: &'a ReceiveRequest,
    is_verbose: bool,
    /// The start time of the last stream.
    begun: Instant,
    outcome: Outcome,
}

impl Told<'_, '_> {
    fn hear(&mut self, progress: ReceiveProgress) {
        match progress {
            ReceiveProgress::Begun(report) => {
                self.begun = Instant::now();
                if let Some(origin) = &report.origin {
                    self.tell(&format!("found clone origin {origin}"));
                }
                self.tell(&what(&report, self.request.dry_run));
            }
            ReceiveProgress::Adjusted(TreeReport { change, failure }) => {
                self.tell(&attempt(&change));
                match failure {
                    None if matches!(change, TreeChange::Leave { .. }) => {}
                    None => self.tell("success"),
                    Some(failure) => {
                        self.console.complain(failure);
                        self.outcome = Err(Failure::Told);
                    }
                }
            }
            ReceiveProgress::Settled { complaints } => {
                for complaint in complaints {
                    self.console.complain(complaint);
                    self.outcome = Err(Failure::Told);
                }
            }
            ReceiveProgress::Ended { bytes, complaints, warnings } => {
                warnings.iter().for_each(|warning| self.console.complain(warning));
                let seconds = self.begun.elapsed().as_secs_f64();
                let rate = nicebytes(rate(bytes, seconds));
                let bytes = nicebytes(bytes);
                self.tell(&format!("received {bytes} stream in {seconds:.2} seconds ({rate}/sec)"));
                for complaint in complaints {
                    self.console.complain(complaint);
                    self.outcome = Err(Failure::Told);
                }
            }
        }
    }

    fn tell(&mut self, line: &str) {
        let out = &mut *self.console.out;
        let written = match self.is_verbose {
            true => writeln!(out, "{line}").and_then(|()| out.flush()),
            false => Ok(()),
        };
        if let Err(error) = written {
            self.outcome = Err(error.into());
        }
    }
}

/// Refuses names that are not properties of datasets.
fn check_property(name: &str) -> Outcome {
    let is_user = name.contains(':');
    match is_user || DatasetProperty::from_name_or_header(name).is_some() {
        true => Ok(()),
        false => Err(Failure::Failed(format!("cannot receive: invalid property '{name}'"))),
    }
}

/// The message for a change of a tree.
fn attempt(change: &TreeChange) -> String {
    match change {
        TreeChange::Destroy { name } => format!("attempting destroy {name}"),
        TreeChange::Rename { from, to } => format!("attempting rename {from} to {to}"),
        TreeChange::Promote { name } => format!("promoting {name}"),
        TreeChange::Leave { name, from } => format!(
            "local fs {name} does not have fromsnap ({from} in stream); must have been deleted \
             locally; ignoring"
        ),
    }
}

/// The message for a stream that is, or would be, received.
fn what(report: &ReceiveReport, dry_run: bool) -> String {
    let verb = if dry_run { "would receive" } else { "receiving" };
    let kind = match report.extent {
        StreamExtent::Full => "full",
        StreamExtent::Incremental => "incremental",
        StreamExtent::Known => {
            return format!("snap {} already exists; ignoring", report.snapshot);
        }
    };
    format!("{verb} {kind} stream of {} into {}", report.sent, report.snapshot)
}

/// Bytes per second.
fn rate(bytes: u64, seconds: f64) -> u64 {
    const SHORTEST: f64 = 0.001;
    (bytes as f64 / seconds.max(SHORTEST)) as u64
}
