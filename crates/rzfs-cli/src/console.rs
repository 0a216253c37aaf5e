//! Where a command writes, and how it ends.

use crate::getopt::GrammarError;
use rzfs_blockdev::without_controls;
use rzfs_server::protocol::Refusal;
use rzfs_zdb::calendar::Calendar;
use std::io::{self, IsTerminal, Write};

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

/// A stream that may be a terminal.
///
/// What a pool says about itself (names, paths, properties, history) is whatever somebody wrote
/// there, and a terminal obeys what it is shown. So it is shown `?` in place of control
/// characters, as ls(1) does it; files and pipes get what is there.
pub(crate) struct Shown<W> {
    inner: W,
    is_terminal: bool,
}

impl<W: Write + IsTerminal> Shown<W> {
    /// A stream that shows no control characters to a terminal.
    pub(crate) fn new(inner: W) -> Self {
        let is_terminal = inner.is_terminal();
        Self { inner, is_terminal }
    }
}

impl<W: Write> Write for Shown<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        if !self.is_terminal {
            return self.inner.write(buffer);
        }
        let shown = without_controls(buffer, b"\n\t");
        self.inner.write_all(&shown).map(|()| buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// How a command ended otherwise than well (spec 09, section 1.1).
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line is wrong: the message and the usage go to standard error; exit 2.
    Usage(String),
    /// The command failed with this message; exit 1.
    Failed(String),
    /// A pool has refused what was asked of it; exit 1.
    Refused(Refusal),
    /// The pool that was asked has been let go of meanwhile; for who needs it, as above.
    Gone(String),
    /// The pool that was asked does not answer: the message; for who needs it, as above.
    Silent(String),
    /// The command failed with this message, or has said so, and a status of its own.
    Status(String, u8),
    /// The command failed, and has said so; exit 1.
    Told,
    /// The output could not be written.
    Output(io::Error),
}

impl Failure {
    /// The same with a status of its own, where a command has one for what it could not do.
    pub(crate) fn with_status(self, status: u8) -> Self {
        match self {
            Self::Failed(message) | Self::Refused(Refusal { message, .. }) => {
                Self::Status(message, status)
            }
            other => other,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<GrammarError> for Failure {
    fn from(error: GrammarError) -> Self {
        Self::Usage(error.to_string())
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
        Err(
            Failure::Failed(message)
            | Failure::Refused(Refusal { message, .. })
            | Failure::Gone(message)
            | Failure::Silent(message),
        ) => {
            console.complain(message);
            1
        }
        Err(Failure::Status(message, status)) => {
            if !message.is_empty() {
                console.complain(message);
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_are_not_controlled() {
        let shown = |is_terminal| {
            let mut shown = Vec::new();
            Shown { inner: &mut shown, is_terminal }.write_all(b"a\x1b[31m\n\tb").unwrap();
            shown
        };
        assert_eq!(shown(true), b"a?[31m\n\tb", "lines and tabs stay");
        assert_eq!(shown(false), b"a\x1b[31m\n\tb");
    }
}
