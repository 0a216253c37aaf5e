//! The properties that a dataset has itself, as send streams tell them (spec 08, section 6.3).

use crate::dataset::{Dataset, DatasetError};
use crate::mos::MosSource;
pub use crate::mos::property_values::StoredProperties;
use crate::mos::property_values::{Owner, StoredValue};
use rzfs_zap::ZapValue;
use std::collections::BTreeSet;

/// Which values of properties count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnValues {
    /// Those in force.
    InForce,
    /// Those that a send stream brought, in force or not.
    Received,
}

impl Dataset {
    /// Everything that is stored for the properties of its directory.
    pub fn stored_properties(&self) -> Result<StoredProperties, DatasetError> {
        let Some(zap) = self.dsl_dir().properties else { return Ok(StoredProperties::default()) };
        Ok(StoredProperties::read(self.tree().mos(), zap)?)
    }

    /// The properties whose values are its own, not those of what is above it, as they are stored and
    /// in that order.
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
            // What is behind a `$` says what the value is, and what is all behind one is of no property.
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
