//! `zfs list` (spec 09, section 3.1).

use super::column::{DatasetColumn, parse_columns};
use super::json::DatasetJson;
use super::order::SortKey;
use super::query::Query;
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word};
use crate::json::JSON_INT;
use crate::property::{Precision, Writer};
use crate::table::{Layout, Table};
use rzfs_server::protocol::{DatasetKind, DatasetReport, Selection};
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
    names: &[("json", 'j'), ("json-int", JSON_INT)],
};

/// The kinds listed without `-t`.
const KINDS: &[DatasetKind] = &[DatasetKind::Filesystem, DatasetKind::Volume];

/// Runs `zfs list`.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let words = GRAMMAR.parse(words)?;
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
    let is_for_people = !flag('H') && !flag('j');
    if datasets.is_empty() && outcome.is_ok() && is_for_people {
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

/// The columns without `-o`.
pub(crate) const DEFAULT_COLUMNS: &str = "name,used,available,referenced,mountpoint";

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
