//! Columns of `zfs list` and `zfs get`.

use crate::console::Failure;
use crate::property::{self, Writer};
use crate::table::{Align, Column};
use rzfs::setting::OwnerProperty;
use rzfs_format::property::{DatasetProperty, NumberFormat, Values};
use rzfs_server::protocol::{DatasetReport, PropertyValue};

/// Parses a list of columns.
pub(super) fn parse_columns(names: &str) -> Result<Vec<DatasetColumn>, Failure> {
    if names == "all" {
        let all = std::iter::once(DatasetProperty::Name).chain(DatasetProperty::all_but_name());
        return Ok(all.map(DatasetColumn::Native).collect());
    }
    let all = names.split(',').flat_map(|name| match name {
        "space" => SPACE_COLUMNS.split(','),
        name => name.split(','),
    });
    let column = |name: &str| {
        let unknown = || Failure::Usage(format!("bad property list: invalid property '{name}'"));
        DatasetColumn::parse(name).ok_or_else(unknown)
    };
    all.map(column).collect()
}

/// The columns of `-o space`.
pub(crate) const SPACE_COLUMNS: &str = "name,available,used,usedbysnapshots,usedbydataset,\
     usedbyrefreservation,usedbychildren";

/// A property in a command: native, user-defined, or with a parameter in its name.
#[derive(Clone, Debug)]
pub(crate) enum DatasetColumn {
    Native(DatasetProperty),
    /// `user:property`.
    User(String),
    /// `written@snapshot`, `userused@name`, and so on.
    Parametric(String, NumberFormat),
}

impl DatasetColumn {
    /// Parses a name or alias; `None` if there is no such property.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        if let Some(property) = DatasetProperty::from_name_or_header(name) {
            return Some(Self::Native(property));
        }
        let since = name.strip_prefix("written").and_then(|rest| rest.strip_prefix(['@', '#']));
        let written = since.filter(|since| !since.is_empty()).map(|_| NumberFormat::Bytes);
        if let Some(format) = written.or_else(|| OwnerProperty::format(name)) {
            return Some(Self::Parametric(name.to_owned(), format));
        }
        is_user_property(name).then(|| Self::User(name.to_owned()))
    }

    /// The property's full name.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Native(property) => property.name(),
            Self::User(name) | Self::Parametric(name, _) => name,
        }
    }

    /// Whether it is the dataset's name.
    pub(super) const fn is_name(&self) -> bool {
        matches!(self, Self::Native(DatasetProperty::Name))
    }

    /// Its kind of values.
    pub(crate) const fn values(&self) -> Values {
        match self {
            Self::Native(property) => property.values(),
            Self::User(_) => Values::Text,
            Self::Parametric(_, format) => Values::Number(*format),
        }
    }

    /// The minimum width of a column of values.
    pub(crate) fn value_width(&self) -> usize {
        match self {
            Self::Native(property) => property::value_width(property.description()),
            Self::User(name) | Self::Parametric(name, _) => name.chars().count(),
        }
    }

    pub(super) fn column(&self) -> Column {
        match self {
            Self::Native(property) => property::column(property.description()),
            Self::User(name) => Column::text(&name.to_uppercase()),
            Self::Parametric(name, _) => {
                Column { header: name.to_uppercase(), align: Align::Right, width: 5 }
            }
        }
    }

    /// The formatted value for a dataset.
    pub(crate) fn cell(&self, dataset: &DatasetReport, writer: &Writer) -> String {
        if self.is_name() {
            return dataset.name.clone();
        }
        let value = dataset.property(self.name()).map(|property| &property.value);
        writer.write(self.values(), value.unwrap_or(&PropertyValue::Unset))
    }
}

/// Names of user properties contain a colon and no capital letters.
fn is_user_property(name: &str) -> bool {
    let is_valid = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.:+".contains(&b);
    name.contains(':') && name.len() <= 255 && name.bytes().all(is_valid)
}

/// The kind of values of a property.
pub(super) fn values_of(name: &str) -> Values {
    DatasetColumn::parse(name).map_or(Values::Text, |column| column.values())
}
