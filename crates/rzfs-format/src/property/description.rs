//! What all sorts of properties have in common.

use super::values::{Values, Word, number_of};
use std::borrow::Cow;

/// A property as people see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Description {
    /// The full name.
    pub name: &'static str,
    /// The header of its column in listings; in lower case it is an alias for the name.
    pub header: &'static str,
    /// What values it has.
    pub values: Values,
    /// When users can set it.
    pub editing: Editing,
    /// The default value.
    pub default: Option<DefaultValue>,
    /// The usage's text for its values, where that does not follow from them.
    pub(super) help: Option<&'static str>,
}

/// When users can set a property.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Editing {
    /// Never.
    Never,
    /// With whatever has the property, when that is created.
    AtCreation,
    /// At any time.
    Always,
}

/// The default value of a property in stored form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DefaultValue {
    /// A number.
    Number(u64),
    /// A text.
    Text(&'static str),
}

pub(super) const fn read_only(
    name: &'static str,
    header: &'static str,
    values: Values,
) -> Description {
    Description { name, header, values, editing: Editing::Never, default: None, help: None }
}

pub(super) const fn at_creation(
    name: &'static str,
    header: &'static str,
    values: Values,
) -> Description {
    Description { editing: Editing::AtCreation, ..read_only(name, header, values) }
}

pub(super) const fn settable(
    name: &'static str,
    header: &'static str,
    values: Values,
) -> Description {
    Description { editing: Editing::Always, ..read_only(name, header, values) }
}

impl Description {
    /// The default of a number.
    pub(super) const fn default(self, number: u64) -> Self {
        Self { default: Some(DefaultValue::Number(number)), ..self }
    }

    /// The default of a property with words, or of a text.
    pub(super) const fn default_word(self, word: &'static str) -> Self {
        let words: &[Word] = match self.values {
            Values::Words(words) => words,
            _ => &[],
        };
        let default = match self.values {
            Values::Text => Some(DefaultValue::Text(word)),
            _ => match number_of(words, word) {
                Some(number) => Some(DefaultValue::Number(number)),
                None => None,
            },
        };
        Self { default, ..self }
    }

    /// Describes the valid values in the words of the usage text.
    pub(super) const fn help(self, text: &'static str) -> Self {
        Self { help: Some(text), ..self }
    }

    /// The usage's text for the values.
    #[must_use]
    pub fn usage(&self) -> Cow<'static, str> {
        self.help.map_or_else(|| self.values.usage(), Cow::from)
    }

    /// The number that is the default; `None` for texts, and where there is none.
    #[must_use]
    pub const fn default_number(&self) -> Option<u64> {
        match self.default {
            Some(DefaultValue::Number(number)) => Some(number),
            Some(DefaultValue::Text(_)) | None => None,
        }
    }
}
