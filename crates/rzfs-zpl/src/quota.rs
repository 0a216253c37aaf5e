//! Space usage and quotas by owner, and their form on disk (spec 05, section 6.3).

use crate::error::ZplError;
use crate::master::MASTER_NODE;
use rzfs_dmu::{DmuError, Objset};
use rzfs_format::ObjectId;
use rzfs_format::fuid::Fuid;

/// The owner of a quota.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QuotaOwner {
    /// A user's.
    User,
    /// A group's.
    Group,
    /// A project's.
    Project,
}

/// The unit of a quota.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QuotaUnit {
    /// Of space, in bytes.
    Bytes,
    /// Of objects.
    Objects,
}

impl QuotaOwner {
    /// The object with the usage.
    pub(crate) const fn used(self) -> ObjectId {
        match self {
            Self::User => ObjectId::USER_USED,
            Self::Group => ObjectId::GROUP_USED,
            Self::Project => ObjectId::PROJECT_USED,
        }
    }
}

/// The entry of the master node for the table of these quotas.
pub(crate) const fn entry_name(owner: QuotaOwner, unit: QuotaUnit) -> &'static str {
    match (owner, unit) {
        (QuotaOwner::User, QuotaUnit::Bytes) => "userquota@",
        (QuotaOwner::Group, QuotaUnit::Bytes) => "groupquota@",
        (QuotaOwner::Project, QuotaUnit::Bytes) => "projectquota@",
        (QuotaOwner::User, QuotaUnit::Objects) => "userobjquota@",
        (QuotaOwner::Group, QuotaUnit::Objects) => "groupobjquota@",
        (QuotaOwner::Project, QuotaUnit::Objects) => "projectobjquota@",
    }
}

/// The prefix of keys for object counts, before that of the number of bytes.
pub(crate) const OBJECTS_PREFIX: &str = "obj-";

/// The key of an owner's usage.
pub(crate) fn usage_key(unit: QuotaUnit, id: u64) -> String {
    let key = Fuid(id).accounting_key();
    if unit == QuotaUnit::Objects { format!("{OBJECTS_PREFIX}{key}") } else { key }
}

/// The quota of a user, group or project on an object set of files; `None` without one.
///
/// # Errors
/// It cannot be read.
pub fn stored_quota(
    objset: &Objset,
    owner: QuotaOwner,
    unit: QuotaUnit,
    id: u64,
) -> Result<Option<u64>, ZplError> {
    let table = number(objset, MASTER_NODE, entry_name(owner, unit))?;
    match table.and_then(|table| ObjectId(table).non_zero()) {
        Some(table) => number(objset, table, &Fuid(id).accounting_key()),
        None => Ok(None),
    }
}

/// The usage of a user, group or project on an object set of files.
///
/// # Errors
/// It cannot be read.
pub fn stored_usage(
    objset: &Objset,
    owner: QuotaOwner,
    unit: QuotaUnit,
    id: u64,
) -> Result<u64, ZplError> {
    Ok(number(objset, owner.used(), &usage_key(unit, id))?.unwrap_or(0))
}

/// The number of an entry, unless it is 0; `None` without the ZAP or the entry.
fn number(objset: &Objset, zap: ObjectId, key: &str) -> Result<Option<u64>, ZplError> {
    let object = match objset.object(zap) {
        Err(DmuError::NotAllocated { .. }) => return Ok(None),
        object => object?,
    };
    let value = object.zap()?.lookup(key).map_err(|source| object.zap_error(source))?;
    Ok(value.and_then(|value| value.first_u64()).filter(|number| *number != 0))
}
