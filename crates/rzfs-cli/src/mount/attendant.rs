//! The attendant at the terminal until a pool is served.

use crate::console::Console;
use crate::key_input::{self, Named, Occasion};
use rzfs::Secret;
use rzfs_codec::crypto::KeyFormat;
use rzfs_server::starter::{KeySource, Notice, Starter, WantedKey};
use std::io;

/// Shows notices on standard error, and gets keys from the terminal or standard input.
pub(crate) struct Attendant<'a, 'c> {
    console: &'a mut Console<'c>,
    /// Advice if this user lacks permission for directories named by properties.
    advice: Option<String>,
}

impl<'a, 'c> Attendant<'a, 'c> {
    /// An attendant without advice.
    pub(crate) const fn new(console: &'a mut Console<'c>) -> Self {
        Self { console, advice: None }
    }

    /// The same with advice about directories that this user lacks permission for.
    pub(super) fn advising(self, advice: Option<String>) -> Self {
        Self { advice, ..self }
    }

    fn typed(wanted: &WantedKey<'_>) -> io::Result<Option<Secret>> {
        let what = match wanted.format {
            KeyFormat::Hex => "hex key",
            KeyFormat::Raw | KeyFormat::Passphrase => "passphrase",
        };
        let prompt = format!("Enter {what} for '{}': ", wanted.root);
        let typed = Secret::new(rpassword::prompt_password(prompt)?.into_bytes());
        Ok(Some(typed).filter(|typed| !typed.bytes().is_empty()))
    }

    /// The key that `zfs load-key` would read from standard input.
    fn piped(&mut self, wanted: &WantedKey<'_>) -> Option<Secret> {
        let place = ("prompt", Named::Pool);
        match key_input::get(wanted.root, wanted.format, place, Occasion::Known) {
            Ok(key) => Some(key),
            Err(reason) => {
                self.console.complain(format_args!("Key load error: {reason}"));
                None
            }
        }
    }
}

impl Starter for Attendant<'_, '_> {
    fn hear(&mut self, notice: Notice<'_>) {
        match notice {
            Notice::Unopened(error) => self.console.complain(error),
            Notice::UnreplayedLogs { pool, txg } => self.console.complain(format_args!(
                "{pool}: the intent log was not replayed; this is the pool as of txg {txg}"
            )),
            Notice::DroppedLog(log) => self.console.complain(log),
            Notice::Incompatible(feature) => self.console.complain(format_args!(
                "Warning: feature \"{feature}\" enabled but is not in specified 'compatibility' \
                 feature set."
            )),
            Notice::Key(error) => self.console.complain(error),
            Notice::LeftOut(name) => {
                self.console.complain(format_args!("'{name}' is left out: its key is not loaded"))
            }
            Notice::NotMounted(error) => self.console.complain(error),
            Notice::MountPointsDenied => {
                if let Some(advice) = &self.advice {
                    self.console.complain(advice);
                }
            }
        }
    }

    fn key(&mut self, wanted: &WantedKey<'_>) -> io::Result<Option<Secret>> {
        match wanted.source {
            KeySource::Terminal => Self::typed(wanted),
            KeySource::Input => Ok(self.piped(wanted)),
        }
    }
}
