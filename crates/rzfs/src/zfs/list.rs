//! `zfs list` (spec 09, section 3.1).

use super::json::DatasetJson;
use super::order::SortKey;
use super::query::Query;
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word};
use crate::property::{DATASET_PROPERTIES, Form, Precision, Property, Writer};
use crate::table::{Align, Column, Layout, Table};
use crate::zpool::list::JSON_INT;
use rzfs::protocol::{DatasetKind, DatasetReport, PropertyValue, Selection};
use std::io::{self, Write};

const GRAMMAR: Grammar = Grammar {
    letters: &[
        ('H', Value::None),
        ('p', Value::None),
        ('j', Value::None),
        ('r', Value::None),
        ('d', Value::NumberOrDevices),
        ('o', Value::Required),
        ('s', Value::Required),
        ('S', Value::Required),
        ('t', Value::Required),
    ],
    names: &[("json-int", JSON_INT)],
};

/// What is listed without `-t`.
const KINDS: &[DatasetKind] = &[DatasetKind::Filesystem, DatasetKind::Volume];

/// Runs `zfs list`.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let words = super::parse(&GRAMMAR, words)?;
    let flag = |letter| words.contains(&Word::Flag(letter));
    let mut columns = DEFAULT_COLUMNS;
    let mut query = Query::of(&words, KINDS)?;
    for word in &words {
        match word {
            Word::Option('o', names) => columns = names,
            Word::Option(letter @ ('s' | 'S'), name) => {
                let column = DatasetColumn::parse(name);
                let unknown = || Failure::Usage(format!("invalid property '{name}'"));
                let property = column.ok_or_else(unknown)?.name().to_owned();
                query.order.push(SortKey { property, descending: *letter == 'S' });
            }
            _ => {}
        }
    }
    let columns = parse_columns(columns)?;
    query.properties = Selection::Named(columns.iter().map(|one| one.name().to_owned()).collect());
    let exact = flag('p') || flag(JSON_INT);
    let writer = Writer {
        calendar: console.calendar.clone(),
        precision: if exact { Precision::Exact } else { Precision::Rounded },
    };
    let (datasets, outcome) = query.run(console)?;
    if datasets.is_empty() && outcome.is_ok() {
        console.complain("no datasets available");
    }
    if flag('j') {
        if outcome.is_ok() || !datasets.is_empty() {
            DatasetJson::of(&words, &writer).print("zfs list", &datasets, &columns, console)?;
        }
    } else if !datasets.is_empty() {
        let layout = if flag('H') { Layout::Scripted } else { Layout::Human };
        print(&datasets, &columns, &writer, layout, console.out)?;
    }
    outcome
}

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

/// The columns if `-o` does not say.
pub(crate) const DEFAULT_COLUMNS: &str = "name,used,available,referenced,mountpoint";

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

    fn column(&self) -> Column {
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

/// Prints datasets.
pub(crate) fn print(
    datasets: &[DatasetReport],
    columns: &[DatasetColumn],
    writer: &Writer,
    layout: Layout,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut table = Table::new(columns.iter().map(DatasetColumn::column).collect());
    for dataset in datasets {
        table.push(columns.iter().map(|column| column.cell(dataset, writer)).collect());
    }
    table.print(layout, out)
}
