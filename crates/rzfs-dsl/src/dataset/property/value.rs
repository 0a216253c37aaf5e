//! A property, and its source.

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
    /// Converts a ZAP value of a property.
    pub(super) fn of_stored(values: Values, stored: &ZapValue) -> Self {
        match stored.first_u64() {
            Some(number) if !values.is_text() => Self::of_number(values, number),
            _ => Self::Text(string(stored)),
        }
    }

    /// Converts a stored number.
    pub(super) fn of_number(values: Values, number: u64) -> Self {
        values.word(number).map_or(Self::Number(number), |word| Self::Text(word.into_owned()))
    }

    /// Guids, as `redact_snaps` lists them.
    pub(in crate::dataset) fn of_guids(guids: impl IntoIterator<Item = Guid>) -> Self {
        let guids = guids.into_iter().map(|guid| guid.to_string());
        Self::Text(guids.collect::<Vec<_>>().join(","))
    }
}

/// The text of a NUL-terminated value.
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
    /// The value in effect; `None` where there is none (a user property that is not set, an
    /// unlimited count).
    pub value: Option<PropertyValue>,
    /// Its source.
    pub source: PropertySource,
    /// The value received by a send stream, in effect or not.
    pub received: Option<PropertyValue>,
}

/// The source of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PropertySource {
    /// Computed.
    None,
    /// Not set.
    Default,
    /// Set on the dataset itself.
    Local,
    /// Set on this ancestor.
    Inherited(String),
    /// Received with a send stream.
    Received,
}
