//! How properties are named in headers, and how their values are written (spec 09, sections 1.3
//! and 5).

mod dataset;
mod pool;

pub(crate) use dataset::DATASET_PROPERTIES;
pub(crate) use pool::{POOL_PROPERTIES, VDEV_PROPERTIES};

use crate::calendar::Calendar;
use crate::quantity::{nicebytes, nicenum, plain_ratio, ratio};
use crate::table::{Align, Column};
use rzfs::protocol::PropertyValue;

/// How the values of a property are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// Bytes, `0B` for nothing.
    Bytes,
    /// Bytes or a count, `0` for nothing.
    Scaled,
    /// Bytes with `none` for 0.
    BytesOrNone,
    /// A count with `none` for 0.
    ScaledOrNone,
    /// A word, or bytes with `none` for 0.
    Quota,
    /// A count with `none` for the greatest number.
    CountOrNone,
    /// A number as it is.
    Plain,
    /// Hundredths: `1.06x`.
    Ratio,
    /// `3%`.
    Percent,
    /// `Sat Nov 21  2:15 2026`.
    Creation,
    /// `Sat Nov 21  2:15:08 2026`.
    Change,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Anything.
    Text,
}

/// A property as the commands know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Property {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its header in `list`; in lower case it is an alias for the name.
    pub(crate) header: &'static str,
    /// How values are written.
    pub(crate) form: Form,
}

/// Shorthand for the tables.
const fn property(name: &'static str, header: &'static str, form: Form) -> Property {
    Property { name, header, form }
}

/// Precision of numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Precision {
    /// For people.
    Rounded,
    /// `-p`.
    Exact,
}

/// Writes values.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    /// Time zone.
    pub(crate) calendar: Calendar,
    /// Whether numbers are exact.
    pub(crate) precision: Precision,
}

impl Writer {
    /// A value of this form.
    pub(crate) fn write(&self, form: Form, value: &PropertyValue) -> String {
        let number = match value {
            PropertyValue::Unset => return "-".to_owned(),
            PropertyValue::Text(text) => return text.clone(),
            PropertyValue::Number(number) => *number,
        };
        let exact = self.precision == Precision::Exact;
        match form {
            Form::CountOrNone if number == u64::MAX => "none".to_owned(),
            Form::Ratio if exact => plain_ratio(number),
            _ if exact => number.to_string(),
            Form::BytesOrNone | Form::ScaledOrNone | Form::Quota if number == 0 => {
                "none".to_owned()
            }
            Form::Bytes | Form::BytesOrNone => nicebytes(number),
            Form::Scaled | Form::ScaledOrNone | Form::Quota => nicenum(number),
            Form::Ratio => ratio(number),
            Form::Percent => format!("{number}%"),
            Form::Creation => self.calendar.creation(number),
            Form::Change => self.calendar.change(number),
            Form::CountOrNone | Form::Plain | Form::Word(_) | Form::Text => number.to_string(),
        }
    }
}

impl Property {
    /// The property of this name or alias in a table.
    pub(crate) fn find(table: &'static [Self], name: &str) -> Option<&'static Self> {
        table.iter().find(|property| property.name == name).or_else(|| {
            table.iter().find(|property| {
                !name.bytes().any(|b| b.is_ascii_uppercase())
                    && property.header.eq_ignore_ascii_case(name)
            })
        })
    }

    /// The widest that a value can be expected to get: the longest word, five characters of a
    /// scaled number. OpenZFS makes columns at least that wide.
    pub(crate) fn natural_width(&self) -> usize {
        match self.form {
            Form::Word(words) => words.iter().map(|word| word.len()).max().unwrap_or(0),
            Form::Text | Form::Quota | Form::Creation | Form::Change => 0,
            _ => 5,
        }
    }

    /// The least width of a column of values: that of the column in `list`.
    pub(crate) fn value_width(&self) -> usize {
        self.natural_width().max(self.header.len())
    }

    /// The column of `list`.
    pub(crate) fn column(&self) -> Column {
        let align = match self.form {
            Form::Text | Form::Quota | Form::Creation => Align::Left,
            // The state of a pool is the one word that stands on the right.
            Form::Word(_) if self.name != "health" => Align::Left,
            _ => Align::Right,
        };
        Column { header: self.header.to_owned(), align, width: self.natural_width() }
    }
}
