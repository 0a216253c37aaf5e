//! Keys of encrypted file systems: named keys, those at property `keylocation`, and those entered
//! on request.

use crate::error::KeyError;
use crate::request::{KeyLoading, NamedKey};
use crate::starter::{KeySource, Notice, Starter, WantedKey};
use rzfs::{Secret, load_matching_key};
use rzfs_codec::crypto::KeyFormat;
use rzfs_dsl::Pool;
use rzfs_dsl::dataset::property::DatasetProperty;
use rzfs_dsl::dataset::{Dataset, DatasetError, KeyStatus};
use std::path::Path;

/// How often a key may be typed wrong, as in OpenZFS.
const ATTEMPTS: usize = 3;

/// The format with this name in property `keyformat`.
#[must_use]
pub fn format_of_name(name: &str) -> Option<KeyFormat> {
    let all = [KeyFormat::Raw, KeyFormat::Hex, KeyFormat::Passphrase];
    all.into_iter().find(|format| format.name() == name)
}

/// Loads the named keys.
///
/// # Errors
/// A key fits nothing, although the user counts on it.
pub fn load_named(pool: &Pool, keys: &[NamedKey]) -> Result<(), KeyError> {
    keys.iter().try_for_each(|key| load_one_named(pool, key))
}

fn load_one_named(pool: &Pool, named: &NamedKey) -> Result<(), KeyError> {
    let NamedKey { root, path, key } = named;
    match root {
        Some(name) => {
            let missing = |_| KeyError::NoDataset(name.clone());
            load(&pool.datasets().open(name).map_err(missing)?, key)
        }
        None => match load_matching_key(pool, key.bytes())? {
            0 => Err(KeyError::FitsNothing { path: path.clone(), pool: pool.name().to_owned() }),
            _ => Ok(()),
        },
    }
}

/// Gets the key of a file system if it lacks one; returns whether it has one now.
///
/// # Errors
/// The properties of its key cannot be read, or there is no way to ask.
pub fn obtain(
    dataset: &Dataset,
    loading: KeyLoading,
    starter: &mut dyn Starter,
) -> Result<bool, KeyError> {
    if dataset.key_status()? != KeyStatus::Unavailable {
        return Ok(true);
    }
    if loading == KeyLoading::Nothing {
        return Ok(false);
    }
    let Some(root) = dataset.encryption_root()? else {
        return Ok(true);
    };
    let location = root.text(DatasetProperty::KeyLocation)?;
    if let Some(path) = location.strip_prefix("file://") {
        let loaded = from_file(&root, Path::new(path));
        return Ok(tell(loaded, starter));
    }
    // A key from the network must be fetched by the user.
    if location != "prompt" {
        return Ok(false);
    }
    let Some(format) = format_of_name(&root.text(DatasetProperty::KeyFormat)?) else {
        return Ok(false);
    };
    let wanted = |source| WantedKey { root: root.name(), format, source };
    match loading {
        // Raw keys are not text.
        KeyLoading::FilesAndTerminal if format != KeyFormat::Raw => {
            from_terminal(&root, &wanted(KeySource::Terminal), starter)
        }
        KeyLoading::FilesAndInput => {
            let key = starter.key(&wanted(KeySource::Input)).map_err(KeyError::Terminal)?;
            Ok(key.is_some_and(|key| tell(load(&root, &key), starter)))
        }
        KeyLoading::FilesAndTerminal | KeyLoading::Files | KeyLoading::Nothing => Ok(false),
    }
}

fn from_file(root: &Dataset, path: &Path) -> Result<(), KeyError> {
    let unread = |source| KeyError::File { path: path.to_owned(), source };
    load(root, &Secret::read_file(path).map_err(unread)?)
}

/// Asks at the terminal, again if the key is wrong.
fn from_terminal(
    root: &Dataset,
    wanted: &WantedKey<'_>,
    starter: &mut dyn Starter,
) -> Result<bool, KeyError> {
    for _ in 0..ATTEMPTS {
        let Some(key) = starter.key(wanted).map_err(KeyError::Terminal)? else { break };
        match root.load_key(key.bytes()) {
            Ok(()) => return Ok(true),
            Err(error @ DatasetError::WrongKey { .. }) => {
                starter.hear(Notice::Key(&KeyError::of_load(root.name(), error)));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

fn load(root: &Dataset, key: &Secret) -> Result<(), KeyError> {
    root.load_key(key.bytes()).map_err(|error| KeyError::of_load(root.name(), error))
}

/// Whether a key was loaded; if not, the starter gets the error.
fn tell(loaded: Result<(), KeyError>, starter: &mut dyn Starter) -> bool {
    if let Err(error) = &loaded {
        starter.hear(Notice::Key(error));
    }
    loaded.is_ok()
}
