//! A property, and where its value comes from.

use rzfs_format::Guid;
use rzfs_format::property::Values;
use rzfs_zap::ZapValue;

/// The value of a property.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PropertyValue {
    /// A number: bytes, a count, a guid, seconds since 1970, hundredths of a ratio.
    Number(u64),
    /// A word of the property's vocabulary, or text.
    Text(String),
}

impl PropertyValue {
    /// The value of what a ZAP has for a property.
    pub(super) fn of_stored(values: Values, stored: &ZapValue) -> Self {
        match stored.first_u64() {
            Some(number) if !values.is_text() => Self::of_number(values, number),
            _ => Self::Text(string(stored)),
        }
    }

    /// The value of a stored number.
    pub(super) fn of_number(values: Values, number: u64) -> Self {
        values.word(number).map_or(Self::Number(number), |word| Self::Text(word.into_owned()))
    }

    /// Guids, as `redact_snaps` lists them.
    pub(in crate::dataset) fn of_guids(guids: impl IntoIterator<Item = Guid>) -> Self {
        let guids = guids.into_iter().map(|guid| guid.to_string());
        Self::Text(guids.collect::<Vec<_>>().join(","))
    }
}

/// The text of a value of bytes that ends with a NUL.
pub(super) fn string(stored: &ZapValue) -> String {
    let bytes = stored.as_bytes().unwrap_or_default();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
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
