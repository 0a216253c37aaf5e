//! Columns of `zfs list` and `zfs get`.

use crate::console::Failure;
use crate::property::{DATASET_PROPERTIES, Form, Property, Writer};
use crate::table::{Align, Column};
use rzfs::protocol::{DatasetReport, PropertyValue};

/// The columns of a list of names.
pub(super) fn parse_columns(names: &str) -> Result<Vec<DatasetColumn>, Failure> {
    let name = DATASET_PROPERTIES.iter().filter(|property| property.name == "name");
    if names == "all" {
        let others = DATASET_PROPERTIES.iter().filter(|property| property.name != "name");
        return Ok(name.chain(others).map(DatasetColumn::Native).collect());
    }
    let names = if names == "space" { SPACE_COLUMNS } else { names };
    let column = |name: &str| {
        let unknown = || Failure::Usage(format!("bad property list: invalid property '{name}'"));
        DatasetColumn::parse(name).ok_or_else(unknown)
    };
    names.split(',').map(column).collect()
}

/// What `-o space` stands for.
pub(crate) const SPACE_COLUMNS: &str = "name,available,used,usedbysnapshots,usedbydataset,\
     usedbyrefreservation,usedbychildren";

/// A property that a command names: native, of a user, or with a part of its own in the name.
#[derive(Clone, Debug)]
pub(crate) enum DatasetColumn {
    Native(&'static Property),
    /// `user:property`.
    User(String),
    /// `written@snapshot`, `userused@name`, and so on.
    Parametric(String, Form),
}

/// Properties with something after `@` or `#`, and how their values are written.
const PARAMETRIC: [(&str, Form); 14] = [
    ("written@", Form::Scaled),
    ("written#", Form::Scaled),
    ("userused@", Form::Bytes),
    ("userquota@", Form::BytesOrNone),
    ("groupused@", Form::Bytes),
    ("groupquota@", Form::BytesOrNone),
    ("projectused@", Form::Bytes),
    ("projectquota@", Form::BytesOrNone),
    ("userobjused@", Form::Scaled),
    ("userobjquota@", Form::ScaledOrNone),
    ("groupobjused@", Form::Scaled),
    ("groupobjquota@", Form::ScaledOrNone),
    ("projectobjused@", Form::Scaled),
    ("projectobjquota@", Form::ScaledOrNone),
];

impl DatasetColumn {
    /// The property of a name or alias; none if there is no such one.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        if let Some(property) = Property::find(DATASET_PROPERTIES, name) {
            return Some(Self::Native(property));
        }
        let parametric = PARAMETRIC.iter().find(|(prefix, _)| {
            name.strip_prefix(prefix).is_some_and(|parameter| !parameter.is_empty())
        });
        if let Some((_, form)) = parametric {
            return Some(Self::Parametric(name.to_owned(), *form));
        }
        is_user_property(name).then(|| Self::User(name.to_owned()))
    }

    /// The property's full name.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Native(property) => property.name,
            Self::User(name) | Self::Parametric(name, _) => name,
        }
    }

    /// How values are written.
    pub(crate) const fn form(&self) -> Form {
        match self {
            Self::Native(property) => property.form,
            Self::User(_) => Form::Text,
            Self::Parametric(_, form) => *form,
        }
    }

    /// The least width of a column of values.
    pub(crate) fn value_width(&self) -> usize {
        match self {
            Self::Native(property) => property.value_width(),
            Self::User(name) | Self::Parametric(name, _) => name.chars().count(),
        }
    }

    pub(super) fn column(&self) -> Column {
        match self {
            Self::Native(property) => property.column(),
            Self::User(name) => Column::text(&name.to_uppercase()),
            Self::Parametric(name, _) => {
                Column { header: name.to_uppercase(), align: Align::Right, width: 5 }
            }
        }
    }

    /// The value on a dataset, written.
    pub(crate) fn cell(&self, dataset: &DatasetReport, writer: &Writer) -> String {
        if self.name() == "name" {
            return dataset.name.clone();
        }
        let value = dataset.property(self.name()).map(|property| &property.value);
        writer.write(self.form(), value.unwrap_or(&PropertyValue::Unset))
    }
}

/// Names of user properties have a colon and no capital letters.
fn is_user_property(name: &str) -> bool {
    let is_valid = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.:+".contains(&b);
    name.contains(':') && name.len() <= 255 && name.bytes().all(is_valid)
}

/// How the values of a property are written.
pub(super) fn form_of(name: &str) -> Form {
    let native = Property::find(DATASET_PROPERTIES, name).map(|property| property.form);
    native.unwrap_or_else(|| DatasetColumn::parse(name).map_or(Form::Text, |one| one.form()))
}
