//! Keys of encrypted file systems: from files that the command line names, from where property
//! `keylocation` says, or from somebody who types them.

use super::named_key::NamedKey;
use super::request::KeyLoading;
use crate::console::{Console, Failure};
use crate::key_input::{self, Named, Occasion};
use rzfs_dsl::Pool;
use rzfs_dsl::dataset::{Dataset, DatasetError, KeyStatus};
use std::path::Path;
use zeroize::Zeroizing;

/// How often a key may be typed wrong, as in OpenZFS.
const ATTEMPTS: usize = 3;

impl NamedKey {
    /// Loads it for what it was named for.
    fn load(&self, pool: &Pool) -> Result<(), Failure> {
        let Self { file, key } = self;
        match &file.root {
            Some(name) => {
                let root = pool.datasets().open(name).map_err(|_| missing(name))?;
                root.load_key(key.bytes())
                    .map_err(|error| Failure::Failed(load_error(&root, &error)))
            }
            None => match rzfs::load_key_where_it_fits(pool, key.bytes()).map_err(unreadable)? {
                0 => Err(Failure::Failed(format!(
                    "Key load error: '{}' is not the key of any encryption root of '{}'.",
                    file.path.display(),
                    pool.name()
                ))),
                _ => Ok(()),
            },
        }
    }
}

/// Loads the keys that were named.
///
/// A key that fits nothing is an error, since whoever named it counts on it.
pub(crate) fn load_named(pool: &Pool, keys: &[NamedKey]) -> Result<(), Failure> {
    keys.iter().try_for_each(|key| key.load(pool))
}

/// Gets the key of a file system if it lacks one; tells whether it has one now.
pub(crate) fn obtain(
    dataset: &Dataset,
    loading: KeyLoading,
    console: &mut Console<'_>,
) -> Result<bool, Failure> {
    if dataset.key_status().map_err(unreadable)? != KeyStatus::Unavailable {
        return Ok(true);
    }
    if loading == KeyLoading::Nothing {
        return Ok(false);
    }
    let Some(root) = dataset.encryption_root().map_err(unreadable)? else { return Ok(true) };
    let location = root.text("keylocation").map_err(unreadable)?;
    if let Some(path) = location.strip_prefix("file://") {
        return Ok(from_file(&root, Path::new(path), console));
    }
    // Raw keys are no text, and what is fetched from the network has to be fetched by the user.
    let is_typed = location == "prompt" && root.text("keyformat").map_err(unreadable)? != "raw";
    match loading {
        KeyLoading::FilesAndTerminal if is_typed => from_terminal(&root, console),
        KeyLoading::FilesAndInput if location == "prompt" => from_input(&root, console),
        _ => Ok(false),
    }
}

fn from_file(root: &Dataset, path: &Path, console: &mut Console<'_>) -> bool {
    let loaded = match key_input::read_regular(path) {
        Ok(input) => root.load_key(input.bytes()).map_err(|error| load_error(root, &error)),
        Err(error) => {
            Err(format!("Failed to open key material file '{}': {error}", path.display()))
        }
    };
    if let Err(message) = &loaded {
        console.complain(message);
    }
    loaded.is_ok()
}

/// Takes what `zfs load-key` would take of standard input.
fn from_input(root: &Dataset, console: &mut Console<'_>) -> Result<bool, Failure> {
    let name = root.text("keyformat").map_err(unreadable)?;
    let Some(format) = key_input::format(&name) else { return Ok(false) };
    let place = ("prompt", Named::ByPool);
    let loaded = match key_input::get(root.name(), format, place, Occasion::Known) {
        Ok(key) => root.load_key(key.bytes()).map_err(|error| load_error(root, &error)),
        Err(reason) => Err(format!("Key load error: {reason}")),
    };
    if let Err(message) = &loaded {
        console.complain(message);
    }
    Ok(loaded.is_ok())
}

/// Asks at the terminal, without echo. An empty answer gives up.
fn from_terminal(root: &Dataset, console: &mut Console<'_>) -> Result<bool, Failure> {
    let what = match root.text("keyformat").map_err(unreadable)?.as_str() {
        "hex" => "hex key",
        _ => "passphrase",
    };
    for _ in 0..ATTEMPTS {
        let prompt = format!("Enter {what} for '{}': ", root.name());
        let typed = rpassword::prompt_password(prompt);
        let typed = typed.map_err(|error| Failure::Failed(format!("terminal: {error}")))?;
        let typed = Zeroizing::new(typed);
        if typed.is_empty() {
            return Ok(false);
        }
        match root.load_key(typed.as_bytes()) {
            Ok(()) => return Ok(true),
            Err(error @ DatasetError::WrongKey { .. }) => {
                console.complain(load_error(root, &error));
            }
            Err(error) => return Err(unreadable(error)),
        }
    }
    Ok(false)
}

fn missing(name: &str) -> Failure {
    Failure::Failed(format!("cannot open '{name}': dataset does not exist"))
}

/// What OpenZFS says about a key that cannot be loaded.
fn load_error(root: &Dataset, error: &DatasetError) -> String {
    match error {
        DatasetError::WrongKey { .. } => {
            format!("Key load error: Incorrect key provided for '{}'.", root.name())
        }
        DatasetError::NotEncrypted { .. } => {
            format!("Key load error: '{}' is not encrypted.", root.name())
        }
        error => format!("Key load error: {error}"),
    }
}

fn unreadable(error: DatasetError) -> Failure {
    Failure::Failed(error.to_string())
}
