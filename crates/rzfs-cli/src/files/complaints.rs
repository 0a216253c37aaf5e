//! Errors of individual files, after which the command continues.

use crate::console::{Console, Failure, Outcome};
use rustix::io::Errno;
use rzfs::FileError;
use rzfs_blockdev::without_number;
use std::fmt::Display;
use std::io;
use std::path::Path;

/// Reports errors, and remembers that there were some.
pub(super) struct Complaints<'c, 'w> {
    command: &'static str,
    /// The streams of the command.
    pub(super) console: &'c mut Console<'w>,
    is_any: bool,
}

impl<'c, 'w> Complaints<'c, 'w> {
    pub(super) fn new(command: &'static str, console: &'c mut Console<'w>) -> Self {
        Self { command, console, is_any: false }
    }

    /// The name of the command.
    pub(super) const fn command(&self) -> &'static str {
        self.command
    }

    /// Reports a message.
    pub(super) fn say(&mut self, message: impl Display) {
        self.is_any = true;
        self.console.complain(format_args!("rzfs {}: {message}", self.command));
    }

    /// Reports an error of a file of the pool.
    pub(super) fn file(&mut self, error: &FileError) {
        self.say(of_file(error));
    }

    /// Reports an error of a file of the host.
    pub(super) fn host(&mut self, path: &Path, error: &io::Error) {
        let shown = rzfs::ShownPath(path.as_os_str().as_encoded_bytes());
        self.say(format_args!("{shown}: {}", without_number(error)));
    }

    /// The outcome of the command.
    pub(super) fn outcome(&self) -> Outcome {
        if self.is_any { Err(Failure::Told) } else { Ok(()) }
    }
}

/// Damage in full detail, all other errors in the words of other commands.
fn of_file(error: &FileError) -> String {
    if error.errno() == Errno::IO.raw_os_error() {
        return error.to_string();
    }
    let place = match &*error.path {
        b"" => error.dataset.clone(),
        path => format!("{}:{}", error.dataset, rzfs::ShownPath(path)),
    };
    format!("{place}: {}", without_number(&io::Error::from_raw_os_error(error.errno())))
}
