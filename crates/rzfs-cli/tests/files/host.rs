//! The command, and the pools on which it runs.

use rzfs_testkit::ReferencePool;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Pool images with the keys of the pool.
pub(crate) struct Images {
    pub(crate) paths: Vec<PathBuf>,
    keys: Vec<String>,
    _scratch: Option<tempfile::TempDir>,
}

/// Scratch space that supports every attribute: a directory below the build directory.
pub(crate) fn scratch() -> tempfile::TempDir {
    let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
    tempfile::tempdir_in(base).unwrap()
}

/// A golden pool in the repository.
pub(crate) fn golden(name: &str) -> (ReferencePool, Images) {
    golden_elsewhere(name).expect("golden pools")
}

/// A golden pool with its keys; `None` if it is missing.
pub(crate) fn golden_elsewhere(name: &str) -> Option<(ReferencePool, Images)> {
    let pool = ReferencePool::golden(name)?;
    let paths = pool.images().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let mut keys = Vec::new();
    if name == "g10-encrypted" {
        for (root, file) in [("g10/raw", "raw.key"), ("g10/hex", "hex.key")] {
            keys.push(format!("{root}={}", pool.dir().join(file).display()));
        }
        let passphrase = scratch.path().join("passphrase");
        std::fs::write(&passphrase, "correct horse battery\n").unwrap();
        keys.push(passphrase.display().to_string());
    }
    Some((pool, Images { paths, keys, _scratch: Some(scratch) }))
}

/// The sample pool `garden`, in a separate file that may be damaged.
pub(crate) fn garden() -> Images {
    let scratch = tempfile::tempdir().unwrap();
    let image = scratch.path().join("garden.img");
    rzfs_testkit::unpack_sample("garden", &image).unwrap();
    Images { paths: vec![image], keys: Vec::new(), _scratch: Some(scratch) }
}

impl Images {
    /// Runs `rzfs COMMAND -d IMAGES... -k KEYS... WORDS`.
    pub(crate) fn run<W: AsRef<OsStr>>(&self, command: &str, words: &[W]) -> Output {
        self.command(command, words).output().unwrap()
    }

    /// The command that [`Self::run`] runs.
    pub(crate) fn command<W: AsRef<OsStr>>(&self, command: &str, words: &[W]) -> Command {
        let mut process = Command::new(env!("CARGO_BIN_EXE_rzfs"));
        process.env("TZ", "UTC").arg(command).arg("-d").args(&self.paths).arg("-f");
        for key in &self.keys {
            process.arg("-k").arg(key);
        }
        process.args(words);
        process
    }

    /// Runs it, and requires success.
    pub(crate) fn output<W: AsRef<OsStr>>(&self, command: &str, words: &[W]) -> Vec<u8> {
        let output = self.run(command, words);
        assert_eq!(errors(&output), "");
        assert!(output.status.success(), "{:?}", output.status);
        output.stdout
    }

    /// The same as text.
    pub(crate) fn text<W: AsRef<OsStr>>(&self, command: &str, words: &[W]) -> String {
        String::from_utf8(self.output(command, words)).unwrap()
    }
}

/// The error output of a command.
pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
