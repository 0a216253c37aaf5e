//! `zfs get`, and the part of it that `zpool get` shares (spec 09, sections 2.4 and 3.2).

use super::column::{DatasetColumn, parse_columns, values_of};
use super::json::DatasetJson;
use super::query::Query;
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word};
use crate::json::JSON_INT;
use crate::property::{Precision, Writer, value_width};
use crate::table::{Column, Layout, Table};
use rzfs_format::property::{DatasetProperty, NumberFormat, Values};
use rzfs_server::protocol::{
    DatasetKind, DatasetReport, PropertyReport, PropertySource, PropertyValue, Selection,
};
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
        ('t', Value::Required),
    ],
    names: &[("json", 'j'), ("json-int", JSON_INT)],
};

/// Words for sources (`-s`).
const SOURCES: [&str; 6] = ["local", "default", "received", "inherited", "temporary", "none"];

/// Runs `zfs get`.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let words = GRAMMAR.parse(words)?;
    let flag = |letter| words.contains(&Word::Flag(letter));
    let mut query = Query::of(&words, &DatasetKind::ALL)?;
    let (mut fields, mut sources) = (Field::DEFAULT.to_vec(), Vec::new());
    for word in &words {
        match word {
            Word::Option('o', names) if names == "all" => fields = Field::ALL.to_vec(),
            Word::Option('o', names) => {
                fields = names.split(',').map(Field::parse_or_fail).collect::<Result<_, _>>()?;
            }
            Word::Option('s', names) => sources.extend(parse_sources(names)?),
            _ => {}
        }
    }
    if query.names.is_empty() {
        return Err(Failure::Usage("missing property argument".to_owned()));
    }
    let names = query.names.remove(0);
    let columns = if names == "all" { Vec::new() } else { parse_columns(&names)? };
    if !columns.is_empty() {
        let names = columns.iter().map(|column| column.name().to_owned()).collect();
        query.properties = Selection::Named(names);
    }
    let exact = flag('p') || flag(JSON_INT);
    let writer = Writer {
        calendar: console.calendar.clone(),
        precision: if exact { Precision::Exact } else { Precision::Rounded },
    };
    let (mut datasets, outcome) = query.run(console)?;
    for dataset in &mut datasets {
        complete(dataset, &columns);
    }
    let rows = rows(&datasets, &columns, &fields, &writer);
    for dataset in &mut datasets {
        dataset.properties.retain(|property| is_from(&property.source, &sources));
    }
    if flag('j') {
        DatasetJson::of(&words, &writer).print("zfs get", &datasets, &columns, console)?;
        return outcome;
    }
    let layout = if flag('H') { Layout::Scripted } else { Layout::Human };
    rows.print(layout, &|source| is_from(source, &sources), console.out)?;
    outcome
}

fn parse_sources(names: &str) -> Result<Vec<&'static str>, Failure> {
    let find = |name: &str| {
        let known = SOURCES.into_iter().find(|known| *known == name);
        known.ok_or_else(|| Failure::Usage(format!("invalid source '{name}'")))
    };
    names.split(',').map(find).collect()
}

/// Whether a property with this source is shown.
fn is_from(source: &PropertySource, sources: &[&str]) -> bool {
    sources.is_empty() || sources.contains(&source_word(source))
}

/// Adds a row without a value for every requested property that does not apply.
fn complete(dataset: &mut DatasetReport, columns: &[DatasetColumn]) {
    if columns.is_empty() {
        return;
    }
    let properties = std::mem::take(&mut dataset.properties);
    let of_column = |column: &DatasetColumn| {
        let found = properties.iter().find(|property| property.name == column.name()).cloned();
        found.unwrap_or_else(|| PropertyReport {
            name: column.name().to_owned(),
            value: PropertyValue::Unset,
            source: PropertySource::None,
            received: None,
        })
    };
    dataset.properties = columns.iter().map(of_column).collect();
}

/// All properties of the datasets. Columns are as wide as these require, even if not all are shown.
fn rows<'a>(
    datasets: &[DatasetReport],
    columns: &[DatasetColumn],
    fields: &'a [Field],
    writer: &'a Writer,
) -> PropertyRows<'a> {
    // All properties that a dataset could have, for `all`.
    let mut widths: Vec<_> = match columns.is_empty() {
        true => DatasetProperty::all_but_name()
            .map(|one| (one.name(), value_width(one.description())))
            .collect(),
        false => columns.iter().map(|column| (column.name(), column.value_width())).collect(),
    };
    // Times take the width of their readable form, even if they are exact.
    let rounded = Writer { precision: Precision::Rounded, ..writer.clone() };
    let properties = datasets.iter().flat_map(|dataset| &dataset.properties);
    widths.extend(properties.filter_map(|property| match values_of(&property.name) {
        times @ Values::Number(NumberFormat::TimeToTheMinute | NumberFormat::TimeToTheSecond) => {
            Some((property.name.as_str(), rounded.write(times, &property.value).len()))
        }
        _ => None,
    }));
    let mut rows = PropertyRows::new(fields, writer, widths.into_iter());
    for dataset in datasets {
        for property in &dataset.properties {
            rows.push(&dataset.name, property, values_of(&property.name));
        }
    }
    rows
}

fn source_word(source: &PropertySource) -> &'static str {
    match source {
        PropertySource::None => "none",
        PropertySource::Default => "default",
        PropertySource::Local => "local",
        PropertySource::Inherited(_) => "inherited",
        PropertySource::Received => "received",
        PropertySource::Temporary => "temporary",
    }
}

/// A field of a property.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Field {
    Name,
    Property,
    Received,
    Value,
    Source,
}

impl Field {
    /// The fields without `-o`.
    pub(crate) const DEFAULT: [Self; 4] = [Self::Name, Self::Property, Self::Value, Self::Source];

    /// `-o all`, of datasets.
    pub(crate) const ALL: [Self; 5] =
        [Self::Name, Self::Property, Self::Value, Self::Received, Self::Source];

    /// The field of this name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "name" => Self::Name,
            "property" => Self::Property,
            "received" => Self::Received,
            "value" => Self::Value,
            "source" => Self::Source,
            _ => return None,
        })
    }

    /// The same; other names are errors.
    pub(crate) fn parse_or_fail(name: &str) -> Result<Self, Failure> {
        Self::parse(name).ok_or_else(|| Failure::Usage(format!("invalid column name '{name}'")))
    }

    const fn header(self) -> &'static str {
        match self {
            Self::Name => "NAME",
            Self::Property => "PROPERTY",
            Self::Received => "RECEIVED",
            Self::Value => "VALUE",
            Self::Source => "SOURCE",
        }
    }
}

/// The words for a source.
pub(crate) fn source_text(source: &PropertySource) -> String {
    match source {
        PropertySource::None => "-".to_owned(),
        PropertySource::Default => "default".to_owned(),
        PropertySource::Local => "local".to_owned(),
        PropertySource::Inherited(from) => format!("inherited from {from}"),
        PropertySource::Received => "received".to_owned(),
        PropertySource::Temporary => "temporary".to_owned(),
    }
}

/// Rows of properties.
#[derive(Debug)]
pub(crate) struct PropertyRows<'a> {
    table: Table,
    sources: Vec<PropertySource>,
    fields: &'a [Field],
    writer: &'a Writer,
}

impl<'a> PropertyRows<'a> {
    /// Rows with columns at least as wide as `names` and as values can get, whether or not a row
    /// has them.
    pub(crate) fn new<'n>(
        fields: &'a [Field],
        writer: &'a Writer,
        properties: impl Iterator<Item = (&'n str, usize)>,
    ) -> Self {
        let (name_width, value_width) = properties
            .fold((0, 0), |(names, values), (name, width)| {
                (names.max(name.chars().count()), values.max(width))
            });
        let column = |field: &Field| {
            let width = match field {
                Field::Property => name_width,
                Field::Value => value_width,
                _ => 0,
            };
            Column { width, ..Column::text(field.header()) }
        };
        let table = Table::new(fields.iter().map(column).collect());
        Self { table, sources: Vec::new(), fields, writer }
    }

    /// Adds a property of `name` with this kind of values.
    pub(crate) fn push(&mut self, name: &str, property: &PropertyReport, values: Values) {
        let cell = |field: &Field| match field {
            Field::Name => name.to_owned(),
            Field::Property => property.name.clone(),
            Field::Value => self.writer.write(values, &property.value),
            Field::Source => source_text(&property.source),
            Field::Received => {
                let value = property.received.as_ref().unwrap_or(&PropertyValue::Unset);
                self.writer.write(values, value)
            }
        };
        self.table.push(self.fields.iter().map(cell).collect());
        self.sources.push(property.source.clone());
    }

    /// Prints the rows whose source satisfies `shows`; without rows there is no header.
    pub(crate) fn print(
        mut self,
        layout: Layout,
        shows: &dyn Fn(&PropertySource) -> bool,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        self.table.fix_widths();
        let mut sources = self.sources.iter();
        self.table.retain_rows(|| sources.next().is_some_and(shows));
        if self.table.is_empty() { Ok(()) } else { self.table.print(layout, out) }
    }
}
