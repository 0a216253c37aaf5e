//! Where a command writes, and how it ends.

use rzfs::calendar::Calendar;
use std::io::{self, Write};

/// The standard streams of a command, and its time zone.
pub(crate) struct Console<'a> {
    /// What was asked for.
    pub(crate) out: &'a mut dyn Write,
    /// What went wrong.
    pub(crate) err: &'a mut dyn Write,
    /// In which zone times are shown.
    pub(crate) calendar: Calendar,
}

impl Console<'_> {
    /// Tells what went wrong; the command goes on.
    pub(crate) fn complain(&mut self, message: impl std::fmt::Display) {
        // There is no better place to tell that standard error is gone.
        let _ = writeln!(self.err, "{message}");
    }
}

/// How a command ended otherwise than well (spec 09, section 1.1).
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line is wrong: the message and the usage go to standard error; exit 2.
    Usage(String),
    /// The command failed with this message; exit 1.
    Failed(String),
    /// The command failed with this message and a status of its own.
    Status(String, u8),
    /// The command failed, and has said so; exit 1.
    Told,
    /// The output could not be written.
    Output(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// How a command ended.
pub(crate) type Outcome = Result<(), Failure>;

/// Exit status of a program that a broken pipe ended: 128 and the number of SIGPIPE.
const BROKEN_PIPE: u8 = 141;

/// Tells what is left to tell, and turns the outcome into an exit status.
pub(crate) fn conclude(outcome: Outcome, usage: &str, console: &mut Console<'_>) -> u8 {
    let outcome = outcome.and_then(|()| console.out.flush().map_err(Failure::Output));
    match outcome {
        Ok(()) => 0,
        Err(Failure::Usage(message)) => {
            if !message.is_empty() {
                console.complain(message);
            }
            console.complain(usage.trim_end_matches('\n'));
            2
        }
        Err(Failure::Failed(message)) => {
            console.complain(message);
            1
        }
        Err(Failure::Status(message, status)) => {
            console.complain(message);
            status
        }
        Err(Failure::Told) => 1,
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => BROKEN_PIPE,
        Err(Failure::Output(error)) => {
            console.complain(format_args!("standard output: {error}"));
            1
        }
    }
}
