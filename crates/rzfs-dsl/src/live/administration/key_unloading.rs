//! Unloading the key of an encryption root.

use crate::dataset::{Dataset, KeyStatus};
use crate::live::change_error::{ChangeError, EncryptionProblem};
use crate::live::datasets::heads::{Heads, SYNCS_TO_CLOSE};

/// Unloads the key of an encryption root once nothing encrypted with it is in use; `sync` writes
/// the changes so far.
pub(crate) fn unload_key(
    root: &Dataset,
    heads: &Heads,
    sync: impl Fn() -> Result<(), ChangeError>,
) -> Result<(), ChangeError> {
    let name = root.name();
    match root.key_status()? {
        KeyStatus::None => return Err(EncryptionProblem::NotEncrypted.into()),
        _ if root.encryption_root()?.is_none_or(|above| above.name() != name) => {
            return Err(EncryptionProblem::NotRoot.into());
        }
        KeyStatus::Unavailable => return Err(EncryptionProblem::OldKeyNotLoaded.into()),
        KeyStatus::Available => {}
    }
    for _ in 0..SYNCS_TO_CLOSE {
        sync()?;
        if heads.forget_key(root)? {
            return Ok(());
        }
    }
    Err(ChangeError::KeyInUse { name: name.to_owned() })
}
