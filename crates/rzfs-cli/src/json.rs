//! JSON in the format of OpenZFS's commands (spec 09, section 1.5).

use crate::console::Outcome;
use crate::property::Writer;
use rzfs_format::property::Values;
use rzfs_server::protocol::{PropertyReport, PropertySource, PropertyValue};
use serde_json::{Map, Value};
use std::io::Write;

/// The letter of `--json-int`.
pub(crate) const JSON_INT: char = '1';
/// The letter of `--json-pool-key-guid`.
pub(crate) const JSON_GUID: char = '2';
/// The letter of `--json-flat-vdevs`.
pub(crate) const JSON_FLAT: char = '3';

/// The format of numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Numbers {
    /// As strings.
    Strings,
    /// As numbers (`--json-int`).
    Integers,
}

impl Numbers {
    /// A number that is always exact.
    pub(crate) fn exact(self, number: u64) -> Value {
        match self {
            Self::Strings => number.to_string().into(),
            Self::Integers => number.into(),
        }
    }

    /// A property's value: an exact integer, or formatted by `writer`.
    pub(crate) fn value(self, values: Values, value: &PropertyValue, writer: &Writer) -> Value {
        let text = writer.write(values, value);
        match (self, value) {
            // A number that is displayed as such: not a ratio, a word, or no limit.
            (Self::Integers, PropertyValue::Number(number)) if text == number.to_string() => {
                (*number).into()
            }
            _ => text.into(),
        }
    }

    /// A property with its source.
    pub(crate) fn property(
        self,
        values: Values,
        property: &PropertyReport,
        writer: &Writer,
    ) -> Value {
        let (kind, data) = match &property.source {
            PropertySource::None => ("NONE", "-"),
            PropertySource::Default => ("DEFAULT", "-"),
            PropertySource::Local => ("LOCAL", "-"),
            PropertySource::Inherited(from) => ("INHERITED", from.as_str()),
            PropertySource::Received => ("RECEIVED", "-"),
            PropertySource::Temporary => ("TEMPORARY", "-"),
        };
        object([
            ("value", self.value(values, &property.value, writer)),
            ("source", object([("type", kind.into()), ("data", data.into())])),
        ])
    }
}

/// An object with these members, in order.
pub(crate) fn object<'a>(members: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>().into()
}

/// The whole output of a command.
#[derive(Debug)]
pub(crate) struct Envelope(Map<String, Value>);

impl Envelope {
    /// The start of the output of `command`: its name and the version of the format.
    pub(crate) fn new(command: &str) -> Self {
        let version = object([
            ("command", command.into()),
            ("vers_major", 0.into()),
            ("vers_minor", 1.into()),
        ]);
        Self([("output_version".to_owned(), version)].into_iter().collect())
    }

    /// Adds a member.
    pub(crate) fn insert(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }

    /// Prints it on one line.
    pub(crate) fn print(self, out: &mut dyn Write) -> Outcome {
        writeln!(out, "{}", Value::Object(self.0))?;
        Ok(())
    }
}
