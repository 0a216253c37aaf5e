//! OpenZFS's zdb, which judges the pools that tests leave.

use crate::pool::absent;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Where Debian has it; the search path of an ordinary user leaves it out.
const BESIDE_THE_PATH: [&str; 2] = ["/usr/sbin", "/sbin"];

/// What OpenZFS's `zdb` prints when it is asked this, which has to satisfy it; `None`, with a
/// message, on a machine that does not have it. Tests have a judge of their own beside it.
///
/// # Panics
/// When it ends with another status than 0. When it is not installed and `CI=true`.
#[must_use]
pub fn zdb<W: AsRef<OsStr>>(arguments: impl IntoIterator<Item = W>) -> Option<String> {
    let program = zdb_program()?;
    let mut zdb = Command::new(program);
    zdb.args(arguments);
    let output = zdb.output().unwrap_or_else(|error| panic!("{zdb:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{zdb:?}: {}\n{text}\n{errors}", output.status);
    Some(text)
}

/// Where OpenZFS's `zdb` is; `None`, with a message, on a machine that does not have it.
///
/// # Panics
/// When it is not installed and `CI=true`.
#[must_use]
pub fn zdb_program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| installed("zdb")).as_deref();
    if program.is_none() {
        absent("zdb of OpenZFS: not there");
    }
    program
}

/// Where a program of OpenZFS is.
pub(crate) fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path);
    directories
        .chain(BESIDE_THE_PATH.map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|program| is_of_openzfs(program, name))
}

/// It may be a link to `rzfs`, which would judge itself.
fn is_of_openzfs(program: &Path, name: &str) -> bool {
    program.canonicalize().is_ok_and(|found| found.file_name() == Some(OsStr::new(name)))
}
