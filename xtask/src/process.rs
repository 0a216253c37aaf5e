//! Running other programs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};

/// Debian's `nobody` and `nogroup`.
pub(crate) const NOBODY: u32 = 65534;

/// The words before a program that root runs as an ordinary user.
pub(crate) const AS_NOBODY: [&str; 4] =
    ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// Why a chore failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{program}: {source}")]
    Start { program: String, source: std::io::Error },
    #[error("{program}: {status}")]
    Status { program: String, status: ExitStatus },
    #[error("{path}: {source}", path = path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("missing tools: install these Debian packages: {0}")]
    MissingPackages(String),
    #[error("{0} has written what it should not")]
    Output(String),
    #[error("{0} failed")]
    Checks(String),
}

impl Failure {
    /// A failure to use this file.
    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}

/// Copies an image, holes and all, into a directory; says where it is then.
pub(crate) fn copy_image(image: &Path, directory: &Path) -> Result<PathBuf, Failure> {
    let copy = directory.join(image.file_name().unwrap_or_default());
    let mut cp = Command::new("cp");
    run(cp.args(["--sparse=always", "--no-preserve=mode"]).arg(image).arg(&copy))?;
    Ok(copy)
}

/// The repository's root.
pub(crate) fn repository() -> PathBuf {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// `cargo` with these arguments, in the repository.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(repository());
    command
}

/// Runs a program to its end; another status than 0 is a failure.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let program = words(command);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::Status { program, status }),
        Err(source) => Err(Failure::Start { program, source }),
    }
}

/// Runs a program to its end, and answers what it has written.
pub(crate) fn output(command: &mut Command) -> Result<String, Failure> {
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
pub(crate) fn outcome(command: &mut Command) -> Result<Output, Failure> {
    let program = words(command);
    command.output().map_err(|source| Failure::Start { program, source })
}

/// The command line, for messages.
pub(crate) fn words(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// Whether a program is on the search path.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}
