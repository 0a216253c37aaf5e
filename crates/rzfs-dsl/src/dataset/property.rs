//! Properties of datasets: values in force and where they come from (spec 04, sections 12 to 14).
//!
//! A settable property lives in a ZAP of the dataset's directory (or of the snapshot itself), as
//! the number that the format uses; it may come from an ancestor, a send stream or the default. All
//! others are computed from the dataset's own structures.

mod computed;
mod lookup;
mod own;
mod value;

pub use own::{OwnValues, StoredProperties};
pub use rzfs_format::property::{DatasetProperty, Inheritance};
pub use value::{Property, PropertySource, PropertyValue};

use super::{Dataset, DatasetError, DatasetKind};
use computed::Kept;
use rzfs_format::property::DefaultValue;

impl Dataset {
    /// A property by its full name; `None` when it does not apply to this kind of dataset or does
    /// not exist.
    pub fn property(&self, name: &str) -> Result<Option<Property>, DatasetError> {
        if name.contains(':') {
            return self.user_property(name).map(Some);
        }
        if name.starts_with("written@") || name.starts_with("written#") {
            return self.written_property(name);
        }
        DatasetProperty::from_name(name).map_or(Ok(None), |property| self.native_property(property))
    }

    /// A property of OpenZFS; `None` when it does not apply to this kind of dataset or has no
    /// value.
    pub fn native_property(
        &self,
        property: DatasetProperty,
    ) -> Result<Option<Property>, DatasetError> {
        let kind = self.kind()?;
        match property.datasets().include(kind) {
            false => Ok(None),
            true if property.is_settable() => self.settable(property, kind),
            true => self.computed(property, kind),
        }
    }

    /// All native properties that apply and have a value, in the order of `zfs get all`, then the
    /// user properties.
    pub fn properties(&self) -> Result<Vec<Property>, DatasetError> {
        let mut properties = Vec::new();
        for property in DatasetProperty::ALL {
            properties.extend(self.native_property(*property)?);
        }
        for name in self.user_property_names()? {
            properties.push(self.user_property(&name)?);
        }
        Ok(properties)
    }

    /// A property whose value is a number; 0 when it has none.
    pub fn number(&self, property: DatasetProperty) -> Result<u64, DatasetError> {
        Ok(match self.native_property(property)?.and_then(|property| property.value) {
            Some(PropertyValue::Number(number)) => number,
            _ => 0,
        })
    }

    /// The effective number of a property that is stored as a number, in the format's encoding;
    /// `None` for other properties.
    pub fn stored_number(&self, property: DatasetProperty) -> Result<Option<u64>, DatasetError> {
        if !property.is_settable() {
            return Ok(None);
        }
        let found = self.lookup(property.name(), property.inheritance())?;
        let stored = found.value.and_then(|(value, _)| value.first_u64());
        Ok(stored.or(property.default_number()))
    }

    /// A property whose value is text; empty when it has none.
    pub fn text(&self, property: DatasetProperty) -> Result<String, DatasetError> {
        Ok(match self.native_property(property)?.and_then(|property| property.value) {
            Some(PropertyValue::Text(text)) => text,
            _ => String::new(),
        })
    }

    /// A settable property.
    fn settable(
        &self,
        property: DatasetProperty,
        kind: DatasetKind,
    ) -> Result<Option<Property>, DatasetError> {
        match self.kept_elsewhere(property, kind)? {
            Kept::InProperties => {}
            Kept::Elsewhere(property) => return Ok(Some(property)),
            Kept::Nowhere => return Ok(None),
        }
        let values = property.values();
        let found = self.lookup(property.name(), property.inheritance())?;
        let received = found.received.map(|value| PropertyValue::of_stored(values, &value));
        let (value, source) = match (found.value, property.default()) {
            (Some((value, source)), _) => (PropertyValue::of_stored(values, &value), source),
            (None, Some(DefaultValue::Number(number))) => {
                (PropertyValue::of_number(values, number), PropertySource::Default)
            }
            (None, Some(DefaultValue::Text(text))) => {
                (PropertyValue::Text(text.to_owned()), PropertySource::Default)
            }
            (None, None) => return Ok(None),
        };
        let value = match property {
            DatasetProperty::MountPoint => PropertyValue::Text(self.mountpoint(value, &source)),
            _ => value,
        };
        Ok(Some(Property {
            name: property.name().to_owned(),
            value: Some(value),
            source,
            received,
        }))
    }

    /// The mount point of the file system: below the inherited mount point, or at `/POOL`.
    fn mountpoint(&self, value: PropertyValue, source: &PropertySource) -> String {
        let below = |root: &str, ancestor: &str| {
            let rest = self.name().strip_prefix(ancestor).unwrap_or_default();
            match (root, rest) {
                ("none" | "legacy", _) => root.to_owned(),
                ("/", rest) if !rest.is_empty() => rest.to_owned(),
                (root, rest) => format!("{root}{rest}"),
            }
        };
        match (value, source) {
            (PropertyValue::Text(root), PropertySource::Inherited(ancestor)) => {
                below(&root, ancestor)
            }
            (_, PropertySource::Default) => format!("/{}", self.name()),
            (PropertyValue::Text(path), _) => path,
            (PropertyValue::Number(_), _) => String::new(),
        }
    }
}
