//! A property, and where its value comes from.

use rzfs_format::Guid;

/// The value of a property.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PropertyValue {
    /// A number: bytes, a count, a guid, seconds since 1970, hundredths of a ratio.
    Number(u64),
    /// A word of the property's vocabulary, or text.
    Text(String),
}

impl PropertyValue {
    /// Guids, as `redact_snaps` lists them.
    pub(in crate::dataset) fn of_guids(guids: impl IntoIterator<Item = Guid>) -> Self {
        let guids = guids.into_iter().map(|guid| guid.to_string());
        Self::Text(guids.collect::<Vec<_>>().join(","))
    }
}

/// A property of a dataset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Property {
    /// Its name.
    pub name: String,
    /// The value in force; `None` where there is none (a user property that nobody set, an
    /// unlimited count).
    pub value: Option<PropertyValue>,
    /// Where that comes from.
    pub source: PropertySource,
    /// The value that a send stream brought, in force or not.
    pub received: Option<PropertyValue>,
}

/// Where a value comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PropertySource {
    /// It is computed.
    None,
    /// Nobody set it.
    Default,
    /// Set on the dataset itself.
    Local,
    /// Set on this ancestor.
    Inherited(String),
    /// Came with a send stream.
    Received,
}
