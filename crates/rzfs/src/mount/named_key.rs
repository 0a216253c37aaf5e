//! Keys in files that the command line names.

use super::paths::absolute;
use crate::console::Failure;
use crate::key_input;
use rzfs::protocol::Secret;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A file with a key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct KeyFile {
    /// The encryption root that it is for; without, every root that it fits.
    pub(crate) root: Option<String>,
    /// The file.
    pub(crate) path: PathBuf,
}

impl KeyFile {
    /// `FS=PATH` or `PATH`. What is in front of a `=` is a dataset unless it looks like a path.
    pub(crate) fn parse(argument: &str) -> Result<Self, Failure> {
        let (root, path) = match argument.split_once('=') {
            Some((root, path)) if !root.starts_with(['.', '/']) => (Some(root.to_owned()), path),
            _ => (None, argument),
        };
        Ok(Self { root, path: absolute(Path::new(path))? })
    }
}

/// A key from a file that the command line names. The command itself reads it: the file may be a
/// pipe, or a descriptor that the process in the background does not get.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct NamedKey {
    pub(super) file: KeyFile,
    pub(super) key: Secret,
}

impl NamedKey {
    /// Reads the files of all `-k`.
    pub(crate) fn read_all(arguments: &[String]) -> Result<Vec<Self>, Failure> {
        arguments.iter().map(|argument| Self::read(KeyFile::parse(argument)?)).collect()
    }

    fn read(file: KeyFile) -> Result<Self, Failure> {
        let key = key_input::read(&file.path)
            .map_err(|error| Failure::Failed(format!("{}: {error}", file.path.display())))?;
        Ok(Self { file, key })
    }
}
