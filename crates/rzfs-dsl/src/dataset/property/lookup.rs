//! Finding a stored value on a dataset or its ancestors (spec 04, section 13.2).

use super::Inheritance;
use super::value::{Property, PropertySource, PropertyValue, string};
use crate::dataset::{Dataset, DatasetError};
use crate::mos::MosSource;
use crate::mos::property_values::{Origin, Owner, StoredValue};
use rzfs_zap::ZapValue;

/// The effective value of a property, and the one received by a send stream.
#[derive(Debug, Default)]
pub(super) struct FoundValue {
    pub(super) value: Option<(ZapValue, PropertySource)>,
    pub(super) received: Option<ZapValue>,
}

impl From<Origin> for PropertySource {
    fn from(origin: Origin) -> Self {
        match origin {
            Origin::Own => Self::Local,
            Origin::Received => Self::Received,
        }
    }
}

impl Dataset {
    pub(crate) fn parent(&self) -> Result<Option<Dataset>, DatasetError> {
        match self.name().rsplit_once('/') {
            Some((parent, _)) => self.tree().open(parent).map(Some),
            None => Ok(None),
        }
    }

    /// The effective value of `name`, local or inherited; none when the default applies.
    pub(super) fn lookup(
        &self,
        name: &str,
        inheritance: Inheritance,
    ) -> Result<FoundValue, DatasetError> {
        let mos = self.tree().mos();
        let mut found = FoundValue::default();
        let mut inheriting = self.is_snapshot();
        if let Some(zap) = self.dsl_dataset().properties.filter(|_| inheriting) {
            let stored = StoredValue::read(mos, (zap, Owner::Snapshot), name)?;
            found.value = stored.in_force().map(|(value, origin)| (value.clone(), origin.into()));
            found.received = stored.received;
            if found.value.is_some() {
                return Ok(found);
            }
        }
        let mut level = Some(if inheriting { self.head()? } else { self.clone() });
        while let Some(dataset) = level {
            if inheriting && inheritance != Inheritance::Inherited {
                return Ok(found);
            }
            if let Some(zap) = dataset.dsl_dir().properties {
                let stored = StoredValue::read(mos, (zap, Owner::Directory), name)?;
                found.value = stored.in_force().map(|(value, origin)| {
                    let inherited = || PropertySource::Inherited(dataset.name().to_owned());
                    (value.clone(), if inheriting { inherited() } else { origin.into() })
                });
                if !inheriting {
                    found.received = stored.received;
                }
                if found.value.is_some() {
                    return Ok(found);
                }
            }
            inheriting = true;
            level = dataset.parent()?;
        }
        Ok(found)
    }

    /// A user property; it has no value where it was never set.
    pub fn user_property(&self, name: &str) -> Result<Property, DatasetError> {
        let text = |value: &ZapValue| PropertyValue::Text(string(value));
        let found = self.lookup(name, Inheritance::Inherited)?;
        let (value, source) = match found.value {
            Some((value, source)) => (Some(text(&value)), source),
            None => (None, PropertySource::None),
        };
        let received = found.received.as_ref().map(text);
        Ok(Property { name: name.to_owned(), value, source, received })
    }

    /// The names of the user properties in effect here.
    pub(super) fn user_property_names(&self) -> Result<Vec<String>, DatasetError> {
        let mut names = Vec::new();
        let mut zaps = vec![self.dsl_dataset().properties];
        let mut level = Some(if self.is_snapshot() { self.head()? } else { self.clone() });
        while let Some(dataset) = level {
            zaps.push(dataset.dsl_dir().properties);
            level = dataset.parent()?;
        }
        for zap in zaps {
            let Some(zap) = zap else { continue };
            for entry in self.tree().mos().entries(zap)? {
                let Some(name) =
                    entry.key.as_name().and_then(|name| std::str::from_utf8(name).ok())
                else {
                    continue;
                };
                let name = name.strip_suffix("$recvd").unwrap_or(name);
                let is_new = !names.iter().any(|known| known == name);
                if name.contains(':') && !name.contains('$') && is_new {
                    names.push(name.to_owned());
                }
            }
        }
        Ok(names)
    }
}
