//! `rzfs tunables`: lists the tunables.

use crate::console::{Console, Failure, Outcome, conclude};
use crate::json::{self, Envelope};
use crate::table::{Align, Column, Layout, Table};
use crate::tuning;
use clap::Args;
use rzfs::Tunables;
use rzfs::tunables::{TABLE, Tunable};
use serde_json::Value;

#[derive(Debug, Args)]
pub(crate) struct TunablesArguments {
    /// As JSON.
    #[arg(short, long)]
    json: bool,
    /// Only these.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

/// Lists tunables, with the values for pools opened in this environment.
pub(crate) fn run(arguments: &TunablesArguments, console: &mut Console<'_>) -> u8 {
    let outcome = list(arguments, console);
    conclude(outcome, "usage: rzfs tunables [-j] [NAME]...", console)
}

fn list(arguments: &TunablesArguments, console: &mut Console<'_>) -> Outcome {
    let values = tuning::of_environment()?;
    let named = arguments.names.iter().map(|name| Tunable::of_name(name));
    let named: Vec<_> =
        named.collect::<Result<_, _>>().map_err(|error| Failure::Failed(error.to_string()))?;
    let chosen = if named.is_empty() { TABLE.iter().collect() } else { named };
    if arguments.json {
        let mut envelope = Envelope::new("rzfs tunables");
        let members = chosen.iter().map(|one| (one.name, described(one, &values)));
        envelope.insert("tunables", json::object(members));
        return envelope.print(console.out);
    }
    let right = |header: &str| Column { align: Align::Right, ..Column::text(header) };
    let columns = vec![
        Column::text("NAME"),
        right("VALUE"),
        right("DEFAULT"),
        Column::text("UNIT"),
        Column::text("WHAT IT IS"),
    ];
    let mut table = Table::new(columns);
    for one in chosen {
        table.push(vec![
            one.name.to_owned(),
            one.number(&values).to_string(),
            one.default.to_string(),
            one.unit.name().to_owned(),
            one.about(),
        ]);
    }
    table.print(Layout::Human, console.out)?;
    Ok(())
}

fn described(one: &Tunable, values: &Tunables) -> Value {
    json::object([
        ("value", one.number(values).into()),
        ("default", one.default.into()),
        ("min", (*one.range.start()).into()),
        ("max", (*one.range.end()).into()),
        ("unit", one.unit.name().into()),
        ("section", one.section.into()),
        ("description", one.about().into()),
    ])
}
