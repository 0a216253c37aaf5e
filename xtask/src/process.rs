//! Running other programs.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};

/// Debian's `nobody` and `nogroup`.
pub const NOBODY: u32 = 65534;

/// The words before a program that root runs as an ordinary user.
pub const AS_NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// The words before a test program: one that hangs is ended, and fails. The longest takes some eight
/// minutes on two processors, twice that beside others. It keeps the terminal, so that an interrupt ends it.
pub const LIMITED: [&str; 4] = ["timeout", "--foreground", "--kill-after=10", "30m"];

/// Why a chore failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A program cannot be started.
    #[error("{program}: {source}")]
    Start {
        /// Its command line.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// A program has failed, and has said why.
    #[error("{program}: {status}")]
    Status {
        /// Its command line.
        program: String,
        /// How it ended.
        status: ExitStatus,
    },
    /// A file cannot be used.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Programs are missing.
    #[error("missing tools: install these Debian packages: {0}")]
    MissingPackages(String),
    /// A program has not written what was to be read.
    #[error("{0} has written what it should not")]
    Output(String),
    /// What cargo says of the workspace is not understood.
    #[error("cargo metadata: {0}")]
    Metadata(serde_json::Error),
    /// What was looked at is not as it should be.
    #[error("{0} failed")]
    Checks(String),
}

impl Failure {
    /// A failure to use this file.
    pub fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}

/// Copies an image, holes and all, into a directory; says where it is then.
///
/// # Errors
/// `cp` fails.
pub fn copy_image(image: &Path, directory: &Path) -> Result<PathBuf, Failure> {
    let copy = directory.join(image.file_name().unwrap_or_default());
    let mut cp = Command::new("cp");
    run(cp.args(["--sparse=always", "--no-preserve=mode"]).arg(image).arg(&copy))?;
    Ok(copy)
}

/// The repository's root.
#[must_use]
pub fn repository() -> PathBuf {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// `cargo` with these arguments, in the repository.
#[must_use]
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(repository());
    command
}

/// Runs a program to its end; another status than 0 is a failure.
///
/// # Errors
/// The program cannot be started, or fails.
pub fn run(command: &mut Command) -> Result<(), Failure> {
    let program = words(command);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::Status { program, status }),
        Err(source) => Err(Failure::Start { program, source }),
    }
}

/// Runs a program to its end, and answers what it has written.
///
/// # Errors
/// The program cannot be started, fails, or does not write text.
pub fn output(command: &mut Command) -> Result<String, Failure> {
    let program = words(command);
    match command.output() {
        Ok(output) if output.status.success() => {
            String::from_utf8(output.stdout).map_err(|_| Failure::Output(program))
        }
        Ok(output) => Err(Failure::Status { program, status: output.status }),
        Err(source) => Err(Failure::Start { program, source }),
    }
}

/// Runs a program to its end, whatever its status, and keeps what it writes to pipes.
///
/// # Errors
/// The program cannot be started.
pub fn outcome(command: &mut Command) -> Result<Output, Failure> {
    let program = words(command);
    command.output().map_err(|source| Failure::Start { program, source })
}

/// A program that has run while others were heard.
#[derive(Debug)]
pub struct Finished {
    program: String,
    output: Output,
}

/// Runs a program to its end, and keeps what it writes.
///
/// # Errors
/// The program cannot be started.
pub fn finished(command: &mut Command) -> Result<Finished, Failure> {
    Ok(Finished { program: words(command), output: outcome(command)? })
}

impl Finished {
    /// Writes what it has written; another status than 0 is a failure.
    ///
    /// # Errors
    /// It has failed, or nothing can be written.
    pub fn tell(self) -> Result<(), Failure> {
        let Self { program, output } = self;
        let written = io::stderr().write_all(&output.stderr);
        let written = written.and_then(|()| io::stdout().write_all(&output.stdout));
        match (written, output.status) {
            (Err(source), _) => Err(Failure::Start { program, source }),
            (Ok(()), status) if status.success() => Ok(()),
            (Ok(()), status) => Err(Failure::Status { program, status }),
        }
    }
}

/// The command line, for messages.
#[must_use]
pub fn words(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// Whether a program is on the search path.
#[must_use]
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}
