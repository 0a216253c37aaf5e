//! Going to the background.
//!
//! The command starts itself again with the hidden subcommand [`SERVE`], before there are any
//! threads, and passes the request over a socket that is the child's standard output. The child
//! mounts, then writes one line to it. Only then does the command exit. Until then the child shares
//! the terminal, to ask for passphrases and print errors, and standard input if that has
//! passphrases; if it fails it prints the reason and exits, and so does the command.

use super::allocator;
use crate::privileges;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitStatus, Stdio};
use zeroize::Zeroizing;

/// The hidden subcommand.
pub const SERVE: &str = "serve-mount";

/// Larger than a request with keys, in bytes, unless its command line is very long.
const LONG_REQUEST: usize = 256 << 10;

/// How much of the plan is mounted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Completeness {
    /// Everything.
    Complete,
    /// Not everything; errors were printed for the rest.
    Partial,
}

/// The fate of the background process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is ready.
    Ready(Completeness),
    /// It ended.
    Ended(ExitStatus),
}

/// The part of standard input that a background process gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Input {
    /// Nothing.
    Nothing,
    /// All of it, until everything is mounted.
    Shared,
}

/// Starts a process for `request` and waits for its verdict.
///
/// It inherits no other open files: the parent of this command may hold locks and pipes that end
/// with it.
pub(crate) fn in_background(
    request: &impl Serialize,
    input: Input,
    options: &[&str],
) -> io::Result<Verdict> {
    const FIRST_OF_OTHERS: i32 = 3;
    // Before any wait. The buffer must not be reallocated: that would leave key copies.
    let mut text = Zeroizing::new(Vec::with_capacity(LONG_REQUEST));
    serde_json::to_writer(&mut *text, request)?;
    close_fds::set_fds_cloexec(FIRST_OF_OTHERS, &[]);
    privileges::limit_programs();
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut child = allocator::tune(&mut Command::new(std::env::current_exe()?))
        .args(options)
        .arg(SERVE)
        .stdin(match input {
            Input::Nothing => Stdio::null(),
            Input::Shared => Stdio::inherit(),
        })
        .stdout(OwnedFd::from(theirs))
        .spawn()?;
    ours.write_all(&text)?;
    ours.shutdown(Shutdown::Write)?;
    let mut line = String::new();
    match BufReader::new(ours).read_line(&mut line) {
        // It ended before it had read the request.
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => return Err(error),
        _ => {}
    }
    match serde_json::from_str(&line) {
        Ok(completeness) => Ok(Verdict::Ready(completeness)),
        Err(_) => child.wait().map(Verdict::Ended),
    }
}

/// The child's side of the socket to the command that started it.
#[derive(Debug)]
pub struct Readiness(());

impl Readiness {
    /// Reads the request; must be called once, first.
    ///
    /// # Errors
    /// There is none.
    pub fn request<T: DeserializeOwned>() -> io::Result<(T, Self)> {
        // Bypasses the buffer of the standard library for one that is never reallocated, which
        // would leave copies of keys.
        let mut text = Zeroizing::new(Vec::with_capacity(LONG_REQUEST));
        File::from(io::stdout().as_fd().try_clone_to_owned()?).read_to_end(&mut text)?;
        Ok((serde_json::from_slice(&text)?, Self(())))
    }

    /// Detaches from the terminal (own session, `/` as working directory, null standard streams),
    /// and reports readiness to the command: from then on the terminal may be closed.
    ///
    /// # Errors
    /// The system refuses, or the command is gone.
    pub fn ready(self, completeness: Completeness) -> io::Result<()> {
        rustix::process::setsid()?;
        std::env::set_current_dir("/")?;
        let null = File::options().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stderr(&null)?;
        let mut line = serde_json::to_vec(&completeness)?;
        line.push(b'\n');
        let mut stdout = io::stdout().lock();
        stdout.write_all(&line)?;
        stdout.flush()?;
        Ok(rustix::stdio::dup2_stdout(&null)?)
    }
}
