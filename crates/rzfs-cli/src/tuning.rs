//! Tunables on the command line, as `NAME=VALUE` after `-o`, and in the environment.

use crate::console::Failure;
use rzfs::Tunables;
use rzfs::tunables::{Tunable, TunableError};
use std::env;

/// The variable with comma-separated settings for every pool.
const VARIABLE: &str = "RZFS_TUNABLES";

/// The settings from the environment.
pub(crate) fn of_environment() -> Result<Tunables, Failure> {
    let words = env::var(VARIABLE).unwrap_or_default();
    of_words(&words).map_err(|error| Failure::Usage(format!("{VARIABLE}: {error}")))
}

fn of_words(words: &str) -> Result<Tunables, TunableError> {
    let mut tunables = Tunables::default();
    for word in words.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        tunables.set(name, value)?;
    }
    Ok(tunables)
}

/// Whether there is a tunable of this name.
pub(crate) fn is_tunable(name: &str) -> bool {
    Tunable::of_name(name).is_ok()
}

/// The message for an unknown option: it may be a misspelled tunable.
pub(crate) fn unknown_option(what: &str, word: &str) -> String {
    let name = word.split_once('=').map_or(word, |(name, _)| name);
    match Tunable::of_name(name) {
        Err(TunableError::Unknown { nearest: Some(nearest), .. }) => {
            format!("unknown {what} '{word}'; did you mean '{nearest}'?")
        }
        _ => format!("unknown {what} '{word}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_environment_are_tunables() {
        let tunables = of_words("zfs_txg_timeout=1, zfs_arc_max=64M,").unwrap();
        assert_eq!(tunables.zfs_txg_timeout.as_secs(), 1);
        assert_eq!(tunables.zfs_arc_max, 64 << 20);
        let wrong = |words| of_words(words).unwrap_err().to_string();
        assert_eq!(wrong("zfs_txg_timeout=0"), "zfs_txg_timeout: 0 is out of range: 1 to 86400 s");
        assert_eq!(wrong("zfs_txg_timeout"), "zfs_txg_timeout: '' is not a number of seconds");
    }

    #[test]
    fn mistakes_in_options_are_guessed() {
        assert_eq!(
            unknown_option("mount option", "txg_timeout=1"),
            "unknown mount option 'txg_timeout=1'; did you mean 'zfs_txg_timeout'?"
        );
        assert_eq!(unknown_option("mount option", "sync"), "unknown mount option 'sync'");
    }
}
