//! The properties set on a dataset itself, as send streams carry them (spec 08, section 6.3).

use crate::dataset::{Dataset, DatasetError};
use crate::mos::MosSource;
pub use crate::mos::property_values::StoredProperties;
use crate::mos::property_values::{Owner, StoredValue};
use rzfs_zap::ZapValue;
use std::collections::BTreeSet;

/// Which property values count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnValues {
    /// Values in effect.
    InForce,
    /// Received values, in effect or not.
    Received,
}

impl Dataset {
    /// Everything stored for the properties of its directory.
    pub fn stored_properties(&self) -> Result<StoredProperties, DatasetError> {
        let Some(zap) = self.dsl_dir().properties else { return Ok(StoredProperties::default()) };
        Ok(StoredProperties::read(self.tree().mos(), zap)?)
    }

    /// The properties set here rather than inherited, as stored and in stored order.
    pub fn own_properties(
        &self,
        values: OwnValues,
    ) -> Result<Vec<(String, ZapValue)>, DatasetError> {
        let (zap, owner) = match self.is_snapshot() {
            true => (self.dsl_dataset().properties, Owner::Snapshot),
            false => (self.dsl_dir().properties, Owner::Directory),
        };
        let Some(zap) = zap else { return Ok(Vec::new()) };
        let mos = self.tree().mos();
        let (mut own, mut seen) = (Vec::new(), BTreeSet::new());
        for entry in mos.entries(zap)? {
            let name = entry.key.as_name().and_then(|name| std::str::from_utf8(name).ok());
            // A `$` starts a qualifier of the value; a name that begins with it is no property.
            let name = name.and_then(|name| name.split('$').next());
            let Some(name) = name.filter(|name| !name.is_empty()) else { continue };
            if !seen.insert(name.to_owned()) {
                continue;
            }
            let stored = StoredValue::read(mos, (zap, owner), name)?;
            let value = match values {
                OwnValues::InForce => stored.in_force().map(|(value, _)| value.clone()),
                OwnValues::Received => stored.received,
            };
            own.extend(value.map(|value| (name.to_owned(), value)));
        }
        Ok(own)
    }
}
