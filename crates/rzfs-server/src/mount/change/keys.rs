//! Keys of encryption roots of an imported pool.

use crate::mount::open::Open;
use crate::mount::refusal::{refusal, unopened};
use crate::protocol::{KeyRequest, Pair, Purpose, Refusal};
use rzfs::Secret;
use rzfs::setting::{NewDatasetProperties, SettingError};
use rzfs_dsl::dataset::{Dataset, DatasetError, KeyStatus};
use rzfs_dsl::live::{
    ChangeError, EncryptionProblem, Environment, KeyChange, NewRoot, SystemEnvironment,
};

const LOAD: &str = "Key load error";
const UNLOAD: &str = "Key unload error";
const CHANGE: &str = "Key change error";

/// `zfs load-key`.
pub(super) fn load(
    open: &Open,
    name: &str,
    key: &Secret,
    purpose: Purpose,
) -> Result<Vec<String>, Refusal> {
    let root = root(open, name, LOAD)?;
    let tried = match purpose {
        Purpose::DryRun => root.check_key(key.bytes()),
        Purpose::Change if status(&root, LOAD)? == KeyStatus::Available => {
            return Err(refusal(LOAD, format_args!("Key already loaded for '{name}'.")));
        }
        Purpose::Change => root.load_key(key.bytes()),
    };
    match tried {
        Ok(()) => {
            if let (Purpose::Change, Ok(pool)) = (purpose, open.writable()) {
                pool.replay_volumes();
            }
            Ok(Vec::new())
        }
        Err(DatasetError::WrongKey { .. }) => {
            Err(refusal(LOAD, format_args!("Incorrect key provided for '{name}'.")))
        }
        Err(error) => Err(refusal(LOAD, error)),
    }
}

/// `zfs unload-key`.
pub(super) fn unload(open: &Open, name: &str) -> Result<Vec<String>, Refusal> {
    let root = root(open, name, UNLOAD)?;
    if status(&root, UNLOAD)? != KeyStatus::Available {
        return Err(refusal(UNLOAD, format_args!("Key already unloaded for '{name}'.")));
    }
    let busy = || refusal(UNLOAD, format_args!("'{name}' is busy."));
    let failed = |error: DatasetError| refusal(UNLOAD, error);
    let mut table = open.table()?;
    open.forget_finished(&mut table);
    let view = open.view().map_err(|error| refusal(UNLOAD, error))?;
    let all = view.datasets().root().and_then(|root| root.descendants()).map_err(failed)?;
    for dataset in all {
        let above = dataset.encryption_root().map_err(failed)?;
        if above.is_none_or(|above| above.name() != name) {
            continue;
        }
        if table.of_dataset(dataset.name()).is_some() {
            return Err(busy());
        }
        open.close_file_systems(&table, [dataset.name()]);
    }
    // The view does not count as a use.
    drop(view);
    match open.writable() {
        Err(_) => root.unload_key().map_err(failed)?,
        Ok(pool) => pool.live().unload_key(name).map_err(|error| match error {
            ChangeError::KeyInUse { .. } => busy(),
            error => refusal(UNLOAD, error),
        })?,
    }
    Ok(Vec::new())
}

/// `zfs change-key`.
pub(super) fn change(
    open: &Open,
    name: &str,
    request: &KeyRequest,
) -> Result<Vec<String>, Refusal> {
    let pool = open.writable().map_err(|error| refusal(CHANGE, error))?;
    let change = match request {
        KeyRequest::Inherit => KeyChange::Inherit,
        KeyRequest::New { properties, key } => {
            KeyChange::New(new_root(properties, key).map_err(|error| refusal(CHANGE, error))?)
        }
    };
    pool.live().change_key(name, change).map_err(|error| refusal(CHANGE, error))?;
    Ok(Vec::new())
}

fn new_root(properties: &[Pair], key: &Secret) -> Result<NewRoot, SettingError> {
    let pairs = properties.iter().map(|(name, word)| (&**name, &**word));
    let properties = NewDatasetProperties::parse(pairs)?;
    let salt = SystemEnvironment::default().random_nonzero();
    let encryption = properties.encryption.encryption(Some(key.bytes()), salt)?;
    encryption.root.ok_or(SettingError::Encryption(EncryptionProblem::NoKeyFormat))
}

/// An encryption root.
fn root(open: &Open, name: &str, what: &str) -> Result<Dataset, Refusal> {
    let view = open.view().map_err(|error| refusal(what, error))?;
    let dataset = view.datasets().open(name).map_err(|error| match error {
        DatasetError::NotFound { .. } => unopened(name, "dataset does not exist"),
        error => refusal(what, error),
    })?;
    match dataset.encryption_root().map_err(|error| refusal(what, error))? {
        None => Err(refusal(what, format_args!("'{name}' is not encrypted."))),
        Some(root) if root.name() != name => {
            let root = root.name();
            let verb = if what == LOAD { "loaded" } else { "unloaded" };
            let reason =
                format_args!("Keys must be {verb} for encryption root of '{name}' ({root}).")
                    .to_string();
            Err(refusal(what, reason))
        }
        Some(root) => Ok(root),
    }
}

fn status(root: &Dataset, what: &str) -> Result<KeyStatus, Refusal> {
    root.key_status().map_err(|error| refusal(what, error))
}
