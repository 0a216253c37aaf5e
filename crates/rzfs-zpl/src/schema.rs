//! Reading the registry and the layouts of system attributes (spec 05, section 2.1).

use crate::error::{Place, ZplError};
use crate::master::MasterNode;
use crate::object::{FileObject, typed_object};
use rzfs_dmu::ObjectSource;
use rzfs_format::object_type::ObjectType;
use rzfs_format::sa::{Layouts, MAX_ATTRIBUTES, MAX_LAYOUTS, Registry, Schema};
use rzfs_format::{FormatError, ObjectId};
use rzfs_zap::{ZapEntry, ZapValue};

/// Reads the schema referred to by the master node; file systems before version 5 have none, and
/// one that was never written has an empty one.
pub(crate) fn read<S: ObjectSource>(source: &S, master: &MasterNode) -> Result<Schema, ZplError> {
    let objset = source.on_disk().id();
    let corrupt = |object, source| ZplError::Corrupt { place: Place { objset, object }, source };
    let Some(sa_master) = master.sa_master else {
        return Schema::empty().map_err(|source| corrupt(ObjectId(1), source));
    };
    let object = typed_object(source, sa_master, ObjectType::SA_MASTER_NODE)?;
    let place = object.place();
    let zap = object.open_zap()?;
    let linked = |name: &str| {
        let found = zap.lookup_u64(name).map_err(|source| place.zap_failure(source));
        found.map(|number| number.map(ObjectId).and_then(ObjectId::non_zero))
    };

    let registered = match linked("REGISTRY")? {
        None => Vec::new(),
        Some(id) => {
            entries(typed_object(source, id, ObjectType::SA_ATTR_REGISTRATION)?, MAX_ATTRIBUTES)?
        }
    };
    let numbers = registered.iter().map(|entry| (entry.name(), word(&entry.value)));
    let registry = Registry::new(numbers).map_err(|source| corrupt(sa_master, source))?;

    let laid_out = match linked("LAYOUTS")? {
        None => Vec::new(),
        Some(id) => entries(typed_object(source, id, ObjectType::SA_ATTR_LAYOUTS)?, MAX_LAYOUTS)?,
    };
    let arrays = laid_out.iter().map(|entry| (entry.name(), numbers_of(&entry.value)));
    let layouts = Layouts::new(arrays, &registry).map_err(|source| corrupt(sa_master, source))?;
    Ok(Schema { registry, layouts })
}

/// All entries of a ZAP with at most `limit` entries.
fn entries<O: FileObject>(object: O, limit: u16) -> Result<Vec<ZapEntry>, ZplError> {
    let place = object.place();
    let zap = object.open_zap()?;
    let mut found = Vec::new();
    for entry in zap.entries() {
        found.push(entry.map_err(|source| place.zap_failure(source))?);
        if found.len() > usize::from(limit) {
            let source = FormatError::invalid("SA schema", "too many entries");
            return Err(ZplError::Corrupt { place, source });
        }
    }
    Ok(found)
}

/// The number in a registry entry; other values are invalid.
fn word(value: &ZapValue) -> u64 {
    value.first_u64().unwrap_or(u64::MAX)
}

fn numbers_of(value: &ZapValue) -> Vec<u16> {
    value.integers().map(|number| u16::try_from(number).unwrap_or(u16::MAX)).collect()
}
