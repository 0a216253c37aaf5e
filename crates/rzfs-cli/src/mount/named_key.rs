//! Keys in files named on the command line.

use crate::console::Failure;
use crate::key_input;
use crate::paths::absolute;
use rzfs_server::request::NamedKey;
use std::path::{Path, PathBuf};

/// Reads the files of all `-k` options.
pub(crate) fn read_all(arguments: &[String]) -> Result<Vec<NamedKey>, Failure> {
    arguments.iter().map(|argument| read(argument)).collect()
}

fn read(argument: &str) -> Result<NamedKey, Failure> {
    let (root, path) = parse(argument)?;
    let key = key_input::read(&path)
        .map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
    Ok(NamedKey { root, path, key })
}

/// Parses `FS=PATH` or `PATH`. Text before a `=` is a dataset unless it looks like a path.
fn parse(argument: &str) -> Result<(Option<String>, PathBuf), Failure> {
    let (root, path) = match argument.split_once('=') {
        Some((root, path)) if !root.starts_with(['.', '/']) => (Some(root.to_owned()), path),
        _ => (None, argument),
    };
    Ok((root, absolute(Path::new(path))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_files() {
        let parsed = |text: &str| parse(text).unwrap();
        assert_eq!(parsed("tank/a=/keys/a"), (Some("tank/a".into()), "/keys/a".into()));
        assert_eq!(parsed("/keys/a=b"), (None, "/keys/a=b".into()));
    }
}
