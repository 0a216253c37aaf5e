//! `rzfs stats`: counters of pools, with the names of OpenZFS's kstats.
//!
//! ```text
//! StatsReport ──> PoolStats (names, kinds, numbers) ──┬─> tables
//!                    └─ minus the previous ones       ├─> JSON
//!                                                     └─> Prometheus
//! ```

mod exposition;
mod figures;

use crate::console::{Console, Failure, Outcome, conclude};
use crate::json::{self, Envelope};
use crate::source;
use crate::table::{Align, Column, Layout, Table};
use crate::zpool::selection::Repetition;
use clap::Args;
use figures::{PoolStats, Section, Txg};
use rzfs_server::control::ControlClient;
use rzfs_server::protocol::TxgReport;
use serde_json::{Map, Value};
use std::io::{self, Write};

const USAGE: &str = "rzfs stats [-j | -p] [POOL]... [INTERVAL [COUNT]]";

#[derive(Debug, Args)]
#[command(override_usage = USAGE)]
pub(crate) struct StatsArguments {
    /// As JSON, a line for each report.
    #[arg(short, long)]
    json: bool,
    /// As text that Prometheus reads, also through the textfile collector of node_exporter.
    #[arg(short, long, conflicts_with = "json")]
    prometheus: bool,
    /// Only these pools; INTERVAL, in seconds, and COUNT of reports.
    #[arg(value_name = "POOL")]
    operands: Vec<String>,
}

/// The format of reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Tables,
    Json,
    Prometheus,
}

/// Shows the counters of pools.
pub(crate) fn run(arguments: StatsArguments, console: &mut Console<'_>) -> u8 {
    let outcome = report(arguments, console);
    conclude(outcome, &format!("usage: {USAGE}"), console)
}

fn report(arguments: StatsArguments, console: &mut Console<'_>) -> Outcome {
    let StatsArguments { json, prometheus, operands: mut names } = arguments;
    let form = match (json, prometheus) {
        (true, _) => Form::Json,
        (_, true) => Form::Prometheus,
        _ => Form::Tables,
    };
    let Repetition { interval, count } = Repetition::take(&mut names)?;
    if form == Form::Prometheus && interval.is_some() {
        let message = "Prometheus reads totals: there is no interval with -p";
        return Err(Failure::Usage(message.to_owned()));
    }
    let (mut clients, outcome) = source::required_or_all(&names, console)?;
    let mut before: Vec<PoolStats> = Vec::new();
    for number in 1_u64.. {
        let now = ask(&mut clients, &names)?;
        let shown: Vec<_> = now.iter().map(|one| one.since(&before)).collect();
        if number > 1 && form == Form::Tables {
            writeln!(console.out)?;
        }
        // If pools did not answer, a message that there are none would be wrong.
        if !shown.is_empty() || outcome.is_ok() || form != Form::Tables {
            print(&shown, form, console.out)?;
        }
        console.out.flush()?;
        before = now;
        match interval.filter(|_| count.is_none_or(|count| number < count) && !before.is_empty()) {
            Some(interval) => std::thread::sleep(interval),
            None => break,
        }
    }
    outcome
}

/// The current counters. Pools that were not named may be closed meanwhile.
fn ask(clients: &mut [ControlClient], names: &[String]) -> Result<Vec<PoolStats>, Failure> {
    let mut all = Vec::with_capacity(clients.len());
    for client in clients {
        let pool = client.identity().pool.clone();
        let report = source::unless_gone_or_named(names, source::stats(client))?;
        all.extend(report.map(|report| PoolStats::new(pool, report)));
    }
    Ok(all)
}

fn print(pools: &[PoolStats], form: Form, out: &mut dyn Write) -> Outcome {
    match form {
        Form::Json => print_json(pools, out),
        Form::Prometheus => {
            let text = exposition::encode(pools);
            let text = text.map_err(|error| Failure::Failed(error.to_string()))?;
            Ok(out.write_all(text.as_bytes())?)
        }
        Form::Tables if pools.is_empty() => Ok(writeln!(out, "no pools available")?),
        Form::Tables => Ok(print_tables(pools, out)?),
    }
}

fn right(header: &str) -> Column {
    Column { align: Align::Right, ..Column::text(header) }
}

fn print_tables(pools: &[PoolStats], out: &mut dyn Write) -> io::Result<()> {
    let mut is_first = true;
    let mut separate = |out: &mut dyn Write| match std::mem::take(&mut is_first) {
        true => Ok(()),
        false => writeln!(out),
    };
    for PoolStats { pool, sections, txgs } in pools {
        for Section { name, objset, numbers, .. } in sections {
            separate(out)?;
            writeln!(out, "{pool}: {name}")?;
            let mut table = Table::new(vec![Column::text("NAME"), right("VALUE")]);
            if let Some(objset) = objset {
                table.push(vec!["dataset_name".to_owned(), objset.name.clone()]);
            }
            for (figure, value) in numbers {
                table.push(vec![figure.name.to_owned(), value.to_string()]);
            }
            table.print(Layout::Human, out)?;
        }
        if !txgs.is_empty() {
            separate(out)?;
            writeln!(out, "{pool}: txgs")?;
            let mut columns = vec![right("TXG"), Column::text("STATE")];
            let names = TxgReport::figures().iter().map(|figure| figure.name.to_uppercase());
            columns.extend(names.map(|name| right(&name)));
            let mut table = Table::new(columns);
            for Txg { txg, state, numbers } in txgs {
                let mut row = vec![txg.to_string(), state.to_string()];
                row.extend(numbers.iter().map(|(_, value)| value.to_string()));
                table.push(row);
            }
            table.print(Layout::Human, out)?;
        }
    }
    Ok(())
}

fn print_json(pools: &[PoolStats], out: &mut dyn Write) -> Outcome {
    let mut envelope = Envelope::new("rzfs stats");
    let members = pools.iter().map(|one| (one.pool.as_str(), pool_json(one)));
    envelope.insert("pools", json::object(members));
    envelope.print(out)
}

fn pool_json(pool: &PoolStats) -> Value {
    let numbers = |numbers: &[figures::Number]| -> Vec<(&'static str, Value)> {
        numbers.iter().map(|(figure, value)| (figure.name, (*value).into())).collect()
    };
    let mut members = Map::new();
    for section in &pool.sections {
        let name = section.objset.iter().map(|one| ("dataset_name", one.name.as_str().into()));
        let section_members = name.chain(numbers(&section.numbers));
        members.insert(section.name.clone(), json::object(section_members));
    }
    if !pool.txgs.is_empty() {
        let txgs = pool.txgs.iter().map(|one| {
            let head = [("txg", one.txg.into()), ("state", one.state.to_string().into())];
            json::object(head.into_iter().chain(numbers(&one.numbers)))
        });
        members.insert("txgs".to_owned(), txgs.collect());
    }
    members.into()
}
