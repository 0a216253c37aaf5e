//! Finding a stored value on a dataset or its ancestors (spec 04, section 13.2).

use super::table::{Inheritance, string};
use super::value::{Property, PropertySource, PropertyValue};
use crate::dataset::{Dataset, DatasetError};
use rzfs_dmu::Object;
use rzfs_format::ObjectId;
use rzfs_zap::{Zap, ZapValue};

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) value: Option<(ZapValue, PropertySource)>,
    pub(super) received: Option<ZapValue>,
}

/// The properties of one directory or snapshot.
struct Store {
    object: Object,
    zap: Zap<Object>,
}

impl Store {
    fn get(&self, name: &str, suffix: &str) -> Result<Option<ZapValue>, DatasetError> {
        let value = self.zap.lookup(format!("{name}{suffix}").as_bytes());
        Ok(value.map_err(|source| self.object.zap_error(source))?)
    }
}

impl Dataset {
    fn store(&self, zap: Option<ObjectId>) -> Result<Option<Store>, DatasetError> {
        let Some(zap) = zap else { return Ok(None) };
        let object = self.tree().mos().object(zap)?;
        let zap = object.zap()?;
        Ok(Some(Store { object, zap }))
    }

    pub(crate) fn parent(&self) -> Result<Option<Dataset>, DatasetError> {
        match self.name().rsplit_once('/') {
            Some((parent, _)) => self.tree().open(parent).map(Some),
            None => Ok(None),
        }
    }

    /// The value of `name` in force, from here or an ancestor; none when the default holds.
    pub(super) fn lookup(
        &self,
        name: &str,
        inheritance: Inheritance,
    ) -> Result<Found, DatasetError> {
        let mut found = Found::default();
        let mut inheriting = false;
        if self.is_snapshot() {
            if let Some(store) = self.store(self.dsl_dataset().properties)? {
                found.received = store.get(name, "$recvd")?;
                if let Some(value) = store.get(name, "")? {
                    found.value = Some((value, PropertySource::Local));
                    return Ok(found);
                }
                let hidden = store.get(name, "$inherit")?.is_some();
                if let Some(value) = found.received.clone().filter(|_| !hidden) {
                    found.value = Some((value, PropertySource::Received));
                    return Ok(found);
                }
            }
            inheriting = true;
        }
        let mut level = Some(if inheriting { self.head()? } else { self.clone() });
        while let Some(dataset) = level {
            if inheriting && inheritance == Inheritance::Own {
                return Ok(found);
            }
            if let Some(store) = dataset.store(dataset.dsl_dir().properties)? {
                let here = || match inheriting {
                    true => PropertySource::Inherited(dataset.name().to_owned()),
                    false => PropertySource::Local,
                };
                let received = store.get(name, "$recvd")?;
                if !inheriting {
                    found.received.clone_from(&received);
                }
                let own = match store.get(name, "$iuv")? {
                    Some(value) => Some(value),
                    None => store.get(name, "")?,
                };
                if let Some(value) = own {
                    found.value = Some((value, here()));
                    return Ok(found);
                }
                let hidden = store.get(name, "$inherit")?.is_some();
                if let Some(value) = received.filter(|_| !hidden) {
                    let source = if inheriting { here() } else { PropertySource::Received };
                    found.value = Some((value, source));
                    return Ok(found);
                }
            }
            inheriting = true;
            level = dataset.parent()?;
        }
        Ok(found)
    }

    /// A property that a user made up.
    pub(super) fn user_property(&self, name: &str) -> Result<Property, DatasetError> {
        let text = |value: &ZapValue| PropertyValue::Text(string(value));
        let found = self.lookup(name, Inheritance::Inherited)?;
        let (value, source) = match found.value {
            Some((value, source)) => (Some(text(&value)), source),
            None => (None, PropertySource::None),
        };
        let received = found.received.as_ref().map(text);
        Ok(Property { name: name.to_owned(), value, source, received })
    }

    /// The names of the user properties in force here.
    pub(super) fn user_property_names(&self) -> Result<Vec<String>, DatasetError> {
        let mut names = Vec::new();
        let mut zaps = vec![self.dsl_dataset().properties];
        let mut level = Some(if self.is_snapshot() { self.head()? } else { self.clone() });
        while let Some(dataset) = level {
            zaps.push(dataset.dsl_dir().properties);
            level = dataset.parent()?;
        }
        for zap in zaps {
            let Some(store) = self.store(zap)? else { continue };
            for entry in store.zap.entries() {
                let entry = entry.map_err(|source| store.object.zap_error(source))?;
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
