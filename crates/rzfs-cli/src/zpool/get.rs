//! `zpool get` (spec 09, section 2.4).

use super::column::{PoolColumn, is_feature, parse_columns};
use super::json::PoolJson;
use super::selection::Selection;
use super::vdev_name::NameStyle;
use super::vdev_property::{self, NamedVdev};
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word};
use crate::json::{Envelope, JSON_GUID, JSON_INT, object};
use crate::property::{Precision, Writer, value_width};
use crate::source;
use crate::table::Layout;
use crate::zfs::get::{Field, PropertyRows};
use rzfs_format::property::{PoolProperty, VdevProperty};
use rzfs_server::protocol::{PoolReport, PropertyReport, PropertySource, PropertyValue};
use serde_json::Map;
use std::collections::BTreeSet;

const GRAMMAR: Grammar = Grammar {
    letters: &[
        ('H', Value::None),
        ('p', Value::None),
        ('j', Value::None),
        ('o', Value::Required),
        ('d', Value::Devices),
    ],
    names: &[("json", 'j'), ("json-int", JSON_INT), ("json-pool-key-guid", JSON_GUID)],
};

struct Get {
    fields: Vec<Field>,
    layout: Layout,
    writer: Writer,
    json: Option<PoolJson>,
    /// The property list as typed.
    properties: String,
}

/// Runs `zpool get`.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let words = GRAMMAR.parse(words)?;
    let flag = |letter| words.contains(&Word::Flag(letter));
    let mut selection = Selection {
        devices: Selection::of(&words)?.devices,
        names: words.iter().filter_map(operand).collect(),
        ..Selection::default()
    };
    if selection.names.is_empty() {
        return Err(Failure::Usage("missing property argument".to_owned()));
    }
    let precision = if flag('p') || flag(JSON_INT) { Precision::Exact } else { Precision::Rounded };
    let writer = Writer { calendar: console.calendar.clone(), precision };
    let get = Get {
        fields: parse_fields(&words)?,
        layout: if flag('H') { Layout::Scripted } else { Layout::Human },
        json: flag('j').then(|| PoolJson::of(&words, &writer)),
        writer,
        properties: selection.names.remove(0),
    };
    // After the first pool there may be other pools, or vdevs of the first.
    let rest = selection.names.split_off(selection.names.len().min(1));
    if rest.is_empty() {
        return get.pools(&selection, console);
    }
    let all = Selection { names: Vec::new(), ..selection.clone() };
    let (pools, _) = all.respondents(console)?;
    if rest.iter().all(|name| pools.iter().any(|pool| pool.pool() == name)) {
        selection.names.extend(rest);
        return get.pools(&selection, console);
    }
    get.vdevs(&selection, &rest, console)
}

fn operand(word: &Word) -> Option<String> {
    match word {
        Word::Operand(name) => Some(name.clone()),
        _ => None,
    }
}

fn parse_fields(words: &[Word]) -> Result<Vec<Field>, Failure> {
    let fields = words.iter().rev().find_map(|word| match word {
        Word::Option('o', fields) => Some(fields.as_str()),
        _ => None,
    });
    match fields {
        None | Some("all") => Ok(Field::DEFAULT.to_vec()),
        Some(fields) => fields.split(',').map(Field::parse_or_fail).collect(),
    }
}

impl Get {
    fn pools(&self, selection: &Selection, console: &mut Console<'_>) -> Outcome {
        let columns = parse_columns(&self.properties)?;
        let columns: Vec<_> = match self.properties.as_str() {
            "all" => columns.into_iter().filter(|column| !column.is(PoolProperty::Name)).collect(),
            _ => columns,
        };
        let (mut pools, outcome) = self.open(selection, console)?;
        let (reports, asked) = selection.reports(&mut pools, console)?;
        let columns = match self.properties.as_str() {
            "all" => with_user_properties(columns, &reports),
            _ => columns,
        };
        match &self.json {
            Some(json) => print_json(json, &reports, &columns, console)?,
            None => self.print(&reports, &columns, console)?,
        }
        outcome.and(asked)
    }

    /// The pools; the message for an unknown one is specific to this command.
    fn open(
        &self,
        selection: &Selection,
        console: &mut Console<'_>,
    ) -> Result<(Vec<Box<dyn source::PoolClient>>, Outcome), Failure> {
        let found = source::respondents(&selection.devices, &selection.names, console)?;
        let (mut pools, mut outcome) = (found.pools, found.outcome);
        for name in &selection.names {
            if !pools.iter().any(|pool| pool.pool() == name) && !found.failed.contains(name) {
                console.complain(format_args!(
                    "Cannot get properties of {name}: no such pool available."
                ));
                outcome = Err(Failure::Told);
            }
        }
        pools.sort_by(|a, b| a.pool().cmp(b.pool()));
        Ok((pools, outcome))
    }

    fn print(
        &self,
        pools: &[PoolReport],
        columns: &[PoolColumn],
        console: &mut Console<'_>,
    ) -> Outcome {
        let widths = columns.iter().map(|column| (column.name(), column.value_width()));
        let mut rows = PropertyRows::new(&self.fields, &self.writer, widths);
        for pool in pools {
            for column in columns {
                let property = property_of(pool, column).or_else(|| self.unset(column));
                if let Some(property) = property {
                    rows.push(&pool.name, &property, column.values());
                }
            }
        }
        rows.print(self.layout, &|_| true, console.out)?;
        Ok(())
    }

    /// The report of a user property that a pool lacks: shown if it was named.
    fn unset(&self, column: &PoolColumn) -> Option<PropertyReport> {
        let PoolColumn::User(name) = column else { return None };
        (self.properties != "all").then(|| PropertyReport {
            name: name.clone(),
            value: PropertyValue::Unset,
            source: PropertySource::None,
            received: None,
        })
    }

    fn vdevs(&self, selection: &Selection, names: &[String], console: &mut Console<'_>) -> Outcome {
        let (mut pools, outcome) = self.open(selection, console)?;
        let Some(pool) = pools.first_mut() else { return outcome };
        let report = source::pool_report(pool.as_mut())?;
        let all = vdev_property::vdevs(&report, NameStyle::default());
        let mut chosen = Vec::new();
        let mut unknown = Vec::new();
        for name in names {
            let before = chosen.len();
            let is_named = |one: &&NamedVdev<'_>| {
                name == "all-vdevs" || one.name == *name || one.vdev.guid.to_string() == *name
            };
            chosen.extend(all.iter().filter(is_named));
            if chosen.len() == before {
                unknown.push(format!("\t{name} (unknown)"));
            }
        }
        if !unknown.is_empty() {
            let message = format!("Expected a list of vdevs in \"{}\", but got:", report.name);
            return Err(Failure::Usage(format!("{message}\n{}\n", unknown.join("\n"))));
        }
        let properties = self.vdev_properties()?;
        if let Some(json) = &self.json {
            return self.print_vdev_json(json, &report, &chosen, &properties, console);
        }
        let widths = properties.iter();
        let widths = widths.map(|property| (property.name(), value_width(property.description())));
        let mut rows = PropertyRows::new(&self.fields, &self.writer, widths);
        for named in chosen {
            for property in &properties {
                let value = named.property(*property, self.writer.precision);
                rows.push(&named.name, &value, property.values());
            }
        }
        rows.print(self.layout, &|_| true, console.out)?;
        Ok(())
    }

    fn vdev_properties(&self) -> Result<Vec<VdevProperty>, Failure> {
        if self.properties == "all" {
            return Ok(VdevProperty::all_but_name().collect());
        }
        let find = |name: &str| {
            let unknown =
                || Failure::Usage(format!("bad property list: invalid property '{name}'"));
            VdevProperty::from_name_or_header(name).ok_or_else(unknown)
        };
        self.properties.split(',').map(find).collect()
    }

    fn print_vdev_json(
        &self,
        json: &PoolJson,
        report: &PoolReport,
        vdevs: &[&NamedVdev<'_>],
        properties: &[VdevProperty],
        console: &mut Console<'_>,
    ) -> Outcome {
        let mut envelope = Envelope::new("zpool get");
        envelope.insert("pool", json.head(report, false));
        let vdev = |named: &&NamedVdev<'_>| {
            let mut members = json.vdev_head(named.vdev, &named.name);
            members.shift_insert(1, "type".to_owned(), "VDEV".into());
            let values = properties.iter().map(|property| {
                let value = named.property(*property, self.writer.precision);
                let value = json.numbers.property(property.values(), &value, &self.writer);
                (property.name(), value)
            });
            members.insert("properties".to_owned(), object(values));
            (named.name.clone(), members.into())
        };
        envelope.insert("vdevs", vdevs.iter().map(vdev).collect::<Map<_, _>>());
        envelope.print(console.out)
    }
}

/// All columns, and the user properties of any of the pools.
fn with_user_properties(mut columns: Vec<PoolColumn>, pools: &[PoolReport]) -> Vec<PoolColumn> {
    let names = pools.iter().flat_map(|pool| &pool.properties).map(|property| &property.name);
    let names: BTreeSet<_> = names.filter(|name| name.contains(':')).collect();
    // An unknown feature may contain a colon as well.
    let names = names.into_iter().filter(|name| !is_feature(name));
    columns.extend(names.map(|name| PoolColumn::User(name.clone())));
    columns
}

/// A property of a pool, including its name.
fn property_of(pool: &PoolReport, column: &PoolColumn) -> Option<PropertyReport> {
    if column.is(PoolProperty::Name) {
        return Some(PropertyReport {
            name: PoolProperty::Name.to_string(),
            value: PropertyValue::Text(pool.name.clone()),
            source: PropertySource::None,
            received: None,
        });
    }
    pool.properties.iter().find(|property| property.name == column.name()).cloned()
}

fn print_json(
    json: &PoolJson,
    pools: &[PoolReport],
    columns: &[PoolColumn],
    console: &mut Console<'_>,
) -> Outcome {
    let mut envelope = Envelope::new("zpool get");
    let pool = |pool: &PoolReport| {
        let mut members = json.head(pool, true);
        members.insert("properties".to_owned(), json.properties(pool, columns));
        (json.key(pool), members.into())
    };
    envelope.insert("pools", pools.iter().map(pool).collect::<Map<_, _>>());
    envelope.print(console.out)
}
