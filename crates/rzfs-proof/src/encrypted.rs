//! Pools with encrypted file systems.

use crate::{Encrypted, OpenPool, ProofError, Settings};
use rzfs_codec::crypto::{KeyFormat, Pbkdf2};
use rzfs_dsl::dataset::{MIN_ITERATIONS, RootKey};
use rzfs_dsl::live::{EncryptionProblem, NewEncryption, NewRoot, SuiteChoice};
use rzfs_format::encryption::EncryptionSuite;

/// The suite of root file systems, and of those that inherit their key: not the usual one.
const OF_ROOTS: EncryptionSuite = EncryptionSuite::Aes192Ccm;
/// Bytes of a raw key.
const RAW_SIZE: usize = 32;

impl Encrypted {
    /// How the root file system of a new pool is encrypted.
    pub(crate) fn root(self, settings: &Settings) -> Result<NewEncryption, ProofError> {
        match self {
            Self::Everything => with_key(OF_ROOTS, settings),
            Self::Nothing | Self::Suites => Ok(NewEncryption::default()),
        }
    }

    /// Makes the file systems below the root of a new pool.
    pub(crate) fn fill(self, open: &mut OpenPool, settings: &Settings) -> Result<(), ProofError> {
        if self != Self::Suites {
            return Ok(());
        }
        let root = open.pool.name().to_owned();
        for suite in EncryptionSuite::ALL {
            let encryption = with_key(suite, settings)?;
            open.create_encrypted(&format!("{root}/{}", suite.name()), encryption)?;
        }
        let (last, suite) = (EncryptionSuite::Aes256Gcm.name(), SuiteChoice::Suite(OF_ROOTS));
        let below = NewEncryption { suite, root: None };
        open.create_encrypted(&format!("{root}/{last}/below"), below)
    }
}

/// An encryption root with the first of the keys.
fn with_key(suite: EncryptionSuite, settings: &Settings) -> Result<NewEncryption, ProofError> {
    let input = settings.keys.first().map(Vec::as_slice).unwrap_or_default();
    let format = match input.len() {
        RAW_SIZE => KeyFormat::Raw,
        _ => KeyFormat::Passphrase,
    };
    let derivation =
        Pbkdf2 { salt: settings.environment.random_nonzero(), iterations: MIN_ITERATIONS };
    let key = RootKey::from_input(format, input, derivation);
    let key =
        key.map_err(|error| ProofError::Change(Box::new(EncryptionProblem::Key(error).into())))?;
    let root = NewRoot { key, location: "prompt".to_owned() };
    Ok(NewEncryption { suite: SuiteChoice::Suite(suite), root: Some(root) })
}
