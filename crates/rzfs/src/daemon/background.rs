//! Going to the background.
//!
//! The command starts itself once more with the hidden subcommand [`SERVE`], before there are any
//! threads, and hands over the request on the child's standard input. The child mounts and then
//! says one line on its standard output: [`Report::Ready`], or why not. Only then does the
//! command end, with the child's verdict. Until then the child shares the terminal, so it can ask
//! for passphrases and warn.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

/// The hidden subcommand.
pub(crate) const SERVE: &str = "serve-mount";

/// What the child says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Report {
    /// Everything is mounted.
    Ready,
    /// Nothing is mounted; the lines were for the user.
    Failed(String),
}

/// Starts the daemon for `request` and waits for its verdict.
pub(crate) fn in_background(
    request: &impl Serialize,
    options: &[&str],
) -> io::Result<Result<(), String>> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(options)
        .arg(SERVE)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
    serde_json::to_writer(&mut stdin, request)?;
    drop(stdin);
    let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    match serde_json::from_str(&line) {
        Ok(Report::Ready) => Ok(Ok(())),
        Ok(Report::Failed(message)) => {
            child.wait()?;
            Ok(Err(message))
        }
        Err(_) => {
            let status = child.wait()?;
            Ok(Err(format!("the mount process ended before it was ready: {status}")))
        }
    }
}

/// The child's side of the pipe to the command that started it.
#[derive(Debug)]
pub(crate) struct Readiness(());

impl Readiness {
    /// Reads the request; to be called once, first.
    pub(crate) fn request<T: DeserializeOwned>() -> io::Result<(T, Self)> {
        let mut text = Vec::new();
        io::stdin().read_to_end(&mut text)?;
        Ok((serde_json::from_slice(&text)?, Self(())))
    }

    /// Tells the command that everything is mounted, and lets go of its terminal: a session of
    /// its own, `/` as working directory, nothing on the standard streams.
    pub(crate) fn ready(self) -> io::Result<()> {
        Self::say(&Report::Ready)?;
        rustix::process::setsid()?;
        std::env::set_current_dir("/")?;
        let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        rustix::stdio::dup2_stderr(&null)?;
        Ok(())
    }

    /// Tells the command that nothing is mounted.
    pub(crate) fn failed(self, message: String) -> io::Result<()> {
        Self::say(&Report::Failed(message))
    }

    fn say(report: &Report) -> io::Result<()> {
        let mut line = serde_json::to_vec(report)?;
        line.push(b'\n');
        let mut stdout = io::stdout().lock();
        stdout.write_all(&line)?;
        stdout.flush()
    }
}
