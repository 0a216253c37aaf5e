//! The streams of a command, and how it ends.

use crate::getopt::GrammarError;
use rzfs_blockdev::without_controls;
use rzfs_server::protocol::Refusal;
use rzfs_zdb::calendar::Calendar;
use std::io::{self, IsTerminal, Write};

/// The standard streams of a command, and its time zone.
pub(crate) struct Console<'a> {
    /// Requested output.
    pub(crate) out: &'a mut dyn Write,
    /// Errors.
    pub(crate) err: &'a mut dyn Write,
    /// The time zone of displayed times.
    pub(crate) calendar: Calendar,
}

impl Console<'_> {
    /// Reports a problem; the command goes on.
    pub(crate) fn complain(&mut self, message: impl std::fmt::Display) {
        // There is no better place to report that standard error is gone.
        let _ = writeln!(self.err, "{message}");
    }
}

/// A stream that may be a terminal.
///
/// Text in a pool (names, paths, properties, history) is untrusted, and a terminal obeys control
/// characters. So a terminal gets `?` in their place, as with ls(1); files and pipes get the
/// original bytes.
pub(crate) struct Shown<W> {
    inner: W,
    is_terminal: bool,
}

impl<W: Write + IsTerminal> Shown<W> {
    /// Wraps a stream to hide control characters from a terminal.
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

/// How a command failed (spec 09, section 1.1).
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line is wrong: the message and the usage go to standard error; exit 2.
    Usage(String),
    /// The command failed with this message; exit 1.
    Failed(String),
    /// A pool refused the request; exit 1.
    Refused(Refusal),
    /// The pool was closed meanwhile; for commands that need it, as above.
    Gone(String),
    /// The pool does not answer: the message; for commands that need it, as above.
    Silent(String),
    /// The command failed with this message, or has printed it, and a status of its own.
    Status(String, u8),
    /// The command failed and has printed why; exit 1.
    Told,
    /// The output could not be written.
    Output(io::Error),
}

impl Failure {
    /// The same with another status, for commands that have one.
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

/// Exit status of a program killed by a broken pipe: 128 plus the number of SIGPIPE.
const BROKEN_PIPE: u8 = 141;

/// Prints any remaining message, and converts the outcome to an exit status.
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
