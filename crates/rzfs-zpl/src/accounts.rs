//! Usage and quotas of all users, groups or projects of a file system (spec 05, section 6.3).

use crate::error::{Place, ZplError};
use crate::master::MASTER_NODE;
use crate::object::{FileObject, typed_object};
use crate::quota::{OBJECTS_PREFIX, QuotaOwner, QuotaUnit, entry_name};
use rzfs_dmu::{DmuError, Objset, SourceObject};
use rzfs_format::endian::Fields;
use rzfs_format::fuid::{Fuid, FuidTable};
use rzfs_format::object_type::ObjectType;
use rzfs_format::{FormatError, ObjectId};
use std::collections::BTreeMap;

/// Maximum size of a domain table.
const MAX_DOMAINS: u64 = 1 << 20;

/// The account of a user, group or project; each field is `None` where the file system has no
/// record.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Account {
    /// In bytes.
    pub bytes: Option<Share>,
    /// In objects.
    pub objects: Option<Share>,
}

/// Usage and quota of an owner.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Share {
    /// Used.
    pub used: u64,
    /// The quota; 0: none.
    pub quota: u64,
}

impl Account {
    fn share(&mut self, unit: QuotaUnit) -> &mut Share {
        let share = match unit {
            QuotaUnit::Bytes => &mut self.bytes,
            QuotaUnit::Objects => &mut self.objects,
        };
        share.get_or_insert_default()
    }
}

/// The accounts of all users, groups or projects recorded in an object set of files.
///
/// # Errors
/// They cannot be read.
pub fn stored_accounts(
    objset: &Objset,
    owner: QuotaOwner,
) -> Result<BTreeMap<Fuid, Account>, ZplError> {
    let mut accounts: BTreeMap<Fuid, Account> = BTreeMap::new();
    for (name, used) in numbers(objset, owner.used())? {
        let (unit, key) = match name.strip_prefix(OBJECTS_PREFIX) {
            Some(key) => (QuotaUnit::Objects, key),
            None => (QuotaUnit::Bytes, name.as_str()),
        };
        if let Some(id) = Fuid::from_accounting_key(key) {
            accounts.entry(id).or_default().share(unit).used = used;
        }
    }
    for unit in [QuotaUnit::Bytes, QuotaUnit::Objects] {
        let Some(table) = named(objset, entry_name(owner, unit))? else { continue };
        for (key, quota) in numbers(objset, table)? {
            if let Some(id) = Fuid::from_accounting_key(&key) {
                accounts.entry(id).or_default().share(unit).quota = quota;
            }
        }
    }
    Ok(accounts)
}

/// The domains of users and groups outside the local system.
///
/// # Errors
/// They cannot be read.
pub fn stored_domains(objset: &Objset) -> Result<FuidTable, ZplError> {
    let Some(id) = named(objset, "FUID")? else { return Ok(FuidTable::default()) };
    let object = typed_object(objset, id, ObjectType::FUID)?;
    let corrupt = |source| ZplError::Corrupt { place: object.place(), source };
    let size = Fields::new("FUID table size", object.bonus(), object.bonus_order());
    let size = size.u64(0).map_err(corrupt)?;
    if size > MAX_DOMAINS.min(object.extent()?) {
        return Err(corrupt(FormatError::field("FUID table", "size", size)));
    }
    FuidTable::decode(&object.bytes_at(0, size as usize)?).map_err(corrupt)
}

/// The object under a name in the master node, if any.
fn named(objset: &Objset, name: &str) -> Result<Option<ObjectId>, ZplError> {
    let master = typed_object(objset, MASTER_NODE, ObjectType::MASTER_NODE)?;
    let place = master.place();
    let found = master.open_zap()?.lookup_u64(name);
    let found = found.map_err(|source| place.zap_failure(source))?;
    Ok(found.map(ObjectId).and_then(ObjectId::non_zero))
}

/// The entries of a table with nonzero numbers; none if there is no table.
fn numbers(objset: &Objset, table: ObjectId) -> Result<Vec<(String, u64)>, ZplError> {
    let object = match objset.object(table) {
        Err(DmuError::NotAllocated { .. }) => return Ok(Vec::new()),
        object => object?,
    };
    let place = Place { objset: objset.id(), object: table };
    let zap = object.open_zap()?;
    let mut numbers = Vec::new();
    for entry in zap.entries() {
        let entry = entry.map_err(|source| place.zap_failure(source))?;
        let number = entry.value.first_u64().filter(|number| *number != 0);
        let name = std::str::from_utf8(entry.name());
        numbers.extend(name.ok().map(str::to_owned).zip(number));
    }
    Ok(numbers)
}
