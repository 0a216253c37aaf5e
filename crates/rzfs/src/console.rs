//! Where a command writes, and how it ends.

use rzfs::calendar::Calendar;
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
        self.inner.write_all(&without_controls(buffer)).map(|()| buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// A text for a terminal: lines and tabs stay, every byte of what else controls it becomes `?`.
fn without_controls(text: &[u8]) -> Vec<u8> {
    let mut shown = text.to_vec();
    let mut start = 0;
    while let Some(rest) = text.get(start..).filter(|rest| !rest.is_empty()) {
        let length = control_length(rest);
        shown.iter_mut().skip(start).take(length).for_each(|byte| *byte = b'?');
        start += length.max(1);
    }
    shown
}

/// Bytes of the control character that a text begins with, in UTF-8; those that turn the direction
/// of writing are among them, as they make a name look like another one.
const fn control_length(text: &[u8]) -> usize {
    match text {
        [b'\n' | b'\t', ..] => 0,
        [0..=0x1f | 0x7f, ..] => 1,
        // C1, and the mark of Arabic letters.
        [0xc2, 0x80..=0x9f, ..] | [0xd8, 0x9c, ..] => 2,
        // U+200E, U+200F, U+202A to U+202E; U+2066 to U+2069.
        [0xe2, 0x80, 0x8e | 0x8f | 0xaa..=0xae, ..] | [0xe2, 0x81, 0xa6..=0xa9, ..] => 3,
        _ => 0,
    }
}

/// How a command ended otherwise than well (spec 09, section 1.1).
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line is wrong: the message and the usage go to standard error; exit 2.
    Usage(String),
    /// The command failed with this message; exit 1.
    Failed(String),
    /// The command failed with this message, or has said so, and a status of its own.
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
        let shown = |text: &str| String::from_utf8(without_controls(text.as_bytes())).unwrap();
        assert_eq!(shown("a\u{1b}[31mb\u{7}\r\n\tc\u{7f}"), "a?[31mb??\n\tc?");
        assert_eq!(shown("\u{9b}2Jé ä €"), "??2Jé ä €");
        for turn in "\u{200e}\u{200f}\u{202a}\u{202e}\u{2066}\u{2069}".chars() {
            assert_eq!(shown(&format!("a{turn}b")), "a???b");
        }
        assert_eq!(shown("a\u{61c}b \u{2065}\u{202f}—"), "a??b \u{2065}\u{202f}—");
        let mut piped = Vec::new();
        Shown { inner: &mut piped, is_terminal: false }.write_all(b"\x1b").unwrap();
        assert_eq!(piped, b"\x1b");
    }
}
