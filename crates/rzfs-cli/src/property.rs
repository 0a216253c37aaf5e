//! The format of property values, and the width of their columns (spec 09, sections 1.3 and 5).

use crate::quantity::{nicebytes, nicenum, plain_ratio, ratio};
use crate::table::{Align, Column};
use rzfs_format::property::{Description, NumberFormat, Values};
use rzfs_server::protocol::PropertyValue;
use rzfs_zdb::calendar::Calendar;

/// Precision of numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Precision {
    /// For people.
    Rounded,
    /// `-p`.
    Exact,
}

/// Formats values.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    /// Time zone.
    pub(crate) calendar: Calendar,
    /// Whether numbers are exact.
    pub(crate) precision: Precision,
}

impl Writer {
    /// Formats a value of a property of this kind.
    pub(crate) fn write(&self, values: Values, value: &PropertyValue) -> String {
        let number = match value {
            PropertyValue::Unset => return "-".to_owned(),
            PropertyValue::Text(text) => return text.clone(),
            PropertyValue::Number(number) => *number,
        };
        let is_exact = self.precision == Precision::Exact;
        let format = match values {
            Values::Number(format) => format,
            Values::BlockSize | Values::BlockSizeOrZero => NumberFormat::Scaled,
            Values::SectorShift | Values::Words(_) | Values::Compression | Values::Text => {
                NumberFormat::Plain
            }
        };
        match format {
            NumberFormat::CountOrNone if number == u64::MAX => "none".to_owned(),
            NumberFormat::Ratio if is_exact => plain_ratio(number),
            _ if is_exact => number.to_string(),
            NumberFormat::BytesOrNone | NumberFormat::ScaledOrNone | NumberFormat::Quota
                if number == 0 =>
            {
                "none".to_owned()
            }
            NumberFormat::Bytes | NumberFormat::BytesOrNone => nicebytes(number),
            NumberFormat::Scaled | NumberFormat::ScaledOrNone | NumberFormat::Quota => {
                nicenum(number)
            }
            NumberFormat::Ratio => ratio(number),
            NumberFormat::Percent => format!("{number}%"),
            NumberFormat::TimeToTheMinute => self.calendar.creation(number),
            NumberFormat::TimeToTheSecond => self.calendar.change(number),
            NumberFormat::CountOrNone | NumberFormat::Plain | NumberFormat::Version => {
                number.to_string()
            }
        }
    }
}

/// The longest word of `compression`.
const LONGEST_COMPRESSION: &str = "zstd-fast-1000";

/// The expected maximum width of a value: the longest word, five characters of a scaled number.
/// OpenZFS makes columns at least that wide.
fn natural_width(values: Values) -> usize {
    match values {
        Values::Words(words) => words.iter().map(|word| word.text.len()).max().unwrap_or(0),
        Values::Compression => LONGEST_COMPRESSION.len(),
        Values::Text
        | Values::Number(
            NumberFormat::Quota | NumberFormat::TimeToTheMinute | NumberFormat::TimeToTheSecond,
        ) => 0,
        _ => 5,
    }
}

/// The minimum width of a column of a property's values: that of the column in `list`.
pub(crate) fn value_width(property: &Description) -> usize {
    natural_width(property.values).max(property.header.len())
}

/// The column of a property in `list`.
pub(crate) fn column(property: &Description) -> Column {
    let align = match property.values {
        Values::Text
        | Values::Words(_)
        | Values::Compression
        | Values::Number(
            NumberFormat::Quota | NumberFormat::TimeToTheMinute | NumberFormat::Version,
        ) => Align::Left,
        _ => Align::Right,
    };
    let width = natural_width(property.values);
    Column { header: property.header.to_owned(), align, width }
}
