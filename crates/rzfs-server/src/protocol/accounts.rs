//! Usage of a file system by users, groups and projects, as `zfs userspace` shows it.

use serde::{Deserialize, Serialize};

/// A query for the accounts of a file system or snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AccountQuery {
    /// Its name.
    pub dataset: String,
    /// The kinds of owners.
    pub owners: Vec<AccountOwner>,
}

/// The kind of an account's owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccountOwner {
    /// A user's.
    User,
    /// A group's.
    Group,
    /// A project's.
    Project,
}

/// An account. Values unknown to the file system are `None`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AccountReport {
    /// Its owner.
    pub owner: AccountOwner,
    /// The domain of users and groups outside the local system.
    pub domain: Option<String>,
    /// The number in the domain.
    pub id: u32,
    /// In bytes.
    pub bytes: Option<ShareReport>,
    /// In objects.
    pub objects: Option<ShareReport>,
}

/// Usage and quota.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShareReport {
    /// Used.
    pub used: u64,
    /// The quota; 0 for none.
    pub quota: u64,
}
