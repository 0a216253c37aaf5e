//! Checks that the accounts of a file system match its files.

use crate::ProofError;
use rzfs_dmu::DmuError;
use rzfs_dsl::accounting::Owners;
use rzfs_format::dnode::{DnodeFlags, SLOT_SIZE};
use rzfs_format::{FormatError, ObjectId};
use rzfs_zpl::{FileSystem, ZplError};
use std::collections::BTreeMap;

/// Maximum number of differences reported.
const TOLD: usize = 4;

/// The actual or expected value of each key of each accounting object.
type Accounts = BTreeMap<(&'static str, String), u64>;

/// The kinds of accounts, with their objects.
const KINDS: [(&str, ObjectId); 3] = [
    ("user", ObjectId::USER_USED),
    ("group", ObjectId::GROUP_USED),
    ("project", ObjectId::PROJECT_USED),
];

/// Compares the accounts of a file system with the sums over its files (spec 05, section 2.5);
/// returns the differences.
///
/// # Errors
/// The file system cannot be read.
pub fn wrong_accounts(fs: &FileSystem) -> Result<Vec<String>, ProofError> {
    let at = |source| ProofError::at("its accounts", ZplError::from(source));
    let (kept, counted) = (kept(fs).map_err(at)?, counted(fs).map_err(at)?);
    Ok(wrong(&kept, counted))
}

fn wrong(kept: &Accounts, mut counted: Accounts) -> Vec<String> {
    // A file system that was never upgraded has no project accounts.
    counted.retain(|(kind, _), _| kept.keys().any(|(kept, _)| kept == kind));
    let keys = kept.keys().chain(counted.keys().filter(|key| !kept.contains_key(key)));
    let wrong = keys.filter_map(|key| {
        let in_accounts = kept.get(key).copied().unwrap_or(0);
        let in_files = counted.get(key).copied().unwrap_or(0);
        let (kind, id) = key;
        let told = || format!("{kind} {id}: {in_accounts} in the accounts, {in_files} in files");
        (in_accounts != in_files).then(told)
    });
    wrong.take(TOLD).collect()
}

/// The stored accounts.
fn kept(fs: &FileSystem) -> Result<Accounts, DmuError> {
    let mut accounts = Accounts::new();
    for (kind, object) in KINDS {
        let object = match fs.objset().object(object) {
            Err(DmuError::NotAllocated { .. }) => continue,
            found => found?,
        };
        let zap = object.zap()?;
        for entry in zap.entries() {
            let entry = entry.map_err(|source| object.zap_error(source))?;
            if let (Some(key), Some(value)) = (entry.key.as_name(), entry.value.as_u64()) {
                accounts.insert((kind, String::from_utf8_lossy(key).into_owned()), value);
            }
        }
    }
    Ok(accounts)
}

/// The usage of the files.
fn counted(fs: &FileSystem) -> Result<Accounts, DmuError> {
    let mut accounts = Accounts::new();
    for entry in fs.objset().objects() {
        let entry = entry?;
        let dnode = &entry.dnode;
        let at = |source: FormatError| DmuError::Dnode {
            objset: fs.objset().id(),
            object: entry.id,
            source,
        };
        let Some(owners) = Owners::of(dnode).map_err(at)? else { continue };
        let ids = [owners.user.0, owners.group.0, owners.project];
        for ((kind, _), id) in KINDS.into_iter().zip(ids) {
            if dnode.flags.has(DnodeFlags::USER_USED_ACCOUNTED) {
                let used = dnode.used + SLOT_SIZE as u64;
                *accounts.entry((kind, format!("{id:x}"))).or_default() += used;
            }
            if dnode.flags.has(DnodeFlags::USER_OBJ_USED_ACCOUNTED) {
                *accounts.entry((kind, format!("obj-{id:x}"))).or_default() += 1;
            }
        }
    }
    Ok(accounts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts(of: &[(&'static str, &str, u64)]) -> Accounts {
        of.iter().map(|(kind, id, value)| ((*kind, (*id).to_owned()), *value)).collect()
    }

    #[test]
    fn every_account_has_to_be_what_files_use() {
        let kept = accounts(&[("user", "0", 10), ("user", "1", 5), ("group", "0", 15)]);
        assert!(wrong(&kept, kept.clone()).is_empty());
        let counted = accounts(&[("user", "0", 9), ("user", "2", 6), ("group", "0", 15)]);
        assert_eq!(
            wrong(&kept, counted),
            [
                "user 0: 10 in the accounts, 9 in files",
                "user 1: 5 in the accounts, 0 in files",
                "user 2: 0 in the accounts, 6 in files",
            ]
        );
    }

    #[test]
    fn accounts_that_are_not_kept_are_not_missed() {
        let kept = accounts(&[("user", "0", 10)]);
        assert!(wrong(&kept, accounts(&[("user", "0", 10), ("project", "0", 10)])).is_empty());
    }
}
