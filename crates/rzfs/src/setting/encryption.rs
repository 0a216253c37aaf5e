//! Properties for the encryption of a new dataset (spec 04, section 19.5).

use super::SettingError;
use rzfs_codec::crypto::{KeyFormat, Pbkdf2};
use rzfs_dsl::dataset::{DEFAULT_ITERATIONS, MIN_ITERATIONS, RootKey, is_key_location};
use rzfs_dsl::live::{EncryptionProblem, NewEncryption, NewRoot, SuiteChoice};
use rzfs_format::encryption::EncryptionSuite;
use rzfs_format::property::DatasetProperty;
use rzfs_zap::ZapValue;

/// The meaning of `encryption=on`.
const DEFAULT_SUITE: EncryptionSuite = EncryptionSuite::Aes256Gcm;
/// Stored number of `encryption=on`.
const ON: u64 = 1;
/// Stored number of `encryption=off`.
const OFF: u64 = 2;

/// The encryption properties of a new dataset, or of a new key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EncryptionProperties {
    /// The cipher.
    pub suite: SuiteChoice,
    /// The format of the key, which makes it an encryption root.
    pub format: Option<KeyFormat>,
    /// The location of the key.
    pub location: Option<String>,
    /// Iterations to derive a key from a passphrase.
    pub iterations: Option<u64>,
}

impl EncryptionProperties {
    /// The encryption properties.
    pub(super) const ALL: [DatasetProperty; 4] = [
        DatasetProperty::Encryption,
        DatasetProperty::KeyFormat,
        DatasetProperty::KeyLocation,
        DatasetProperty::Pbkdf2Iters,
    ];

    /// Sets one of the properties to a value in stored form.
    ///
    /// # Errors
    /// The value is invalid.
    pub(super) fn take(
        &mut self,
        property: DatasetProperty,
        value: &ZapValue,
    ) -> Result<(), SettingError> {
        let number = value.first_u64().unwrap_or(0);
        match property {
            DatasetProperty::Encryption => {
                self.suite = match number {
                    ON => SuiteChoice::Suite(DEFAULT_SUITE),
                    OFF => SuiteChoice::Off,
                    number => match EncryptionSuite::from_number(number) {
                        Ok(suite) => SuiteChoice::Suite(suite),
                        Err(_) => SuiteChoice::Inherited,
                    },
                };
            }
            DatasetProperty::KeyFormat => self.format = KeyFormat::from_number(number).ok(),
            DatasetProperty::Pbkdf2Iters if number == 0 => {}
            DatasetProperty::Pbkdf2Iters if number < MIN_ITERATIONS => {
                return Err(SettingError::FewIterations);
            }
            DatasetProperty::Pbkdf2Iters => self.iterations = Some(number),
            _ => {
                let bytes = value.as_bytes().unwrap_or_default();
                let text = String::from_utf8_lossy(bytes.strip_suffix(b"\0").unwrap_or(bytes));
                self.location = (text != "none").then(|| text.into_owned());
            }
        }
        Ok(())
    }

    /// The format and the location of the required key; `None` if it is not an encryption root.
    ///
    /// # Errors
    /// The properties are inconsistent.
    pub fn key(&self) -> Result<Option<(KeyFormat, &str)>, SettingError> {
        let is_off = self.suite == SuiteChoice::Off;
        let has_any = self.location.is_some() || self.iterations.is_some();
        match self.format {
            Some(_) if is_off => Err(EncryptionProblem::Off.into()),
            None if has_any && is_off => Err(EncryptionProblem::Off.into()),
            None if has_any => Err(EncryptionProblem::NoKeyFormat.into()),
            None => Ok(None),
            Some(KeyFormat::Raw | KeyFormat::Hex) if self.iterations.is_some() => {
                Err(SettingError::IterationsWithoutPassphrase)
            }
            Some(format) => Ok(Some((format, self.location.as_deref().unwrap_or("prompt")))),
        }
    }

    /// The encryption of the dataset, with the user's key and a random salt.
    ///
    /// # Errors
    /// The properties are inconsistent, or the key is invalid.
    pub fn encryption(&self, key: Option<&[u8]>, salt: u64) -> Result<NewEncryption, SettingError> {
        let root = match self.key()? {
            None => None,
            Some((format, location)) => {
                let iterations = self.iterations.unwrap_or(DEFAULT_ITERATIONS);
                let derivation = Pbkdf2 { salt, iterations };
                let input = key.ok_or(EncryptionProblem::KeyNotLoaded)?;
                let key = RootKey::from_input(format, input, derivation);
                let key = key.map_err(EncryptionProblem::Key)?;
                Some(NewRoot { key, location: location.to_owned() })
            }
        };
        Ok(NewEncryption { suite: self.suite, root })
    }
}

impl From<EncryptionProblem> for SettingError {
    fn from(problem: EncryptionProblem) -> Self {
        Self::Encryption(problem)
    }
}

/// Checks the value of `keylocation`.
pub(super) fn check_location(word: &str) -> Result<(), SettingError> {
    match word == "none" || is_key_location(word) {
        true => Ok(()),
        false => Err(SettingError::KeyLocation),
    }
}
