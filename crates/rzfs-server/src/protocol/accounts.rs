//! What users, groups and projects use of a file system, as `zfs userspace` shows it.

use serde::{Deserialize, Serialize};

/// A question for the accounts of a file system or snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AccountQuery {
    /// Its name.
    pub dataset: String,
    /// Of whom.
    pub owners: Vec<AccountOwner>,
}

/// Whose account.
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

/// An account. What the file system says nothing of is `None`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AccountReport {
    /// Whose.
    pub owner: AccountOwner,
    /// The domain of users and groups that are not of the local system.
    pub domain: Option<String>,
    /// The number there.
    pub id: u32,
    /// In bytes.
    pub bytes: Option<ShareReport>,
    /// In objects.
    pub objects: Option<ShareReport>,
}

/// What somebody uses and may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShareReport {
    /// Used.
    pub used: u64,
    /// The most that may be used; 0: as much as there is.
    pub quota: u64,
}
