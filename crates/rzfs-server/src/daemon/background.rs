//! Going to the background.
//!
//! The command starts itself once more with the hidden subcommand [`SERVE`], before there are any
//! threads, and hands over the request on a socket that is the child's standard output. The child
//! mounts, and then says one line on it. Only then does the command end. Until then the child
//! shares the terminal, so it can ask for passphrases and complain, and standard input if that has
//! passphrases; if it fails it says why and ends, and the command ends with it.

use super::allocator;
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

/// More than a request with keys has, in bytes, unless its command line is very long.
const LONG_REQUEST: usize = 256 << 10;

/// How much of what was planned is mounted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Completeness {
    /// Everything.
    Complete,
    /// Not everything; what is missing was complained about.
    Partial,
}

/// What became of the process in the background.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is there.
    Ready(Completeness),
    /// It ended.
    Ended(ExitStatus),
}

/// What a process in the background gets of standard input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Input {
    /// Nothing.
    Nothing,
    /// All of it, until everything is mounted.
    Shared,
}

/// Starts the process for `request` and waits for its verdict.
///
/// It gets nothing else of what this process has open: whoever starts commands may hold locks and
/// pipes that end with them.
pub(crate) fn in_background(
    request: &impl Serialize,
    input: Input,
    options: &[&str],
) -> io::Result<Verdict> {
    const FIRST_OF_OTHERS: i32 = 3;
    // Before anybody waits for it. It does not have to move: of keys nothing is to be left.
    let mut text = Zeroizing::new(Vec::with_capacity(LONG_REQUEST));
    serde_json::to_writer(&mut *text, request)?;
    close_fds::set_fds_cloexec(FIRST_OF_OTHERS, &[]);
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
        // It has ended before it had read the request.
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
    /// Reads the request; to be called once, first.
    ///
    /// # Errors
    /// Nobody has written one.
    pub fn request<T: DeserializeOwned>() -> io::Result<(T, Self)> {
        // Past the buffer of the standard library, into one that does not have to move: of keys
        // nothing is to be left.
        let mut text = Zeroizing::new(Vec::with_capacity(LONG_REQUEST));
        File::from(io::stdout().as_fd().try_clone_to_owned()?).read_to_end(&mut text)?;
        Ok((serde_json::from_slice(&text)?, Self(())))
    }

    /// Lets go of the terminal (a session of its own, `/` as working directory, nothing on the
    /// standard streams), and tells the command that the mounts are there: from then on it may be
    /// closed.
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
