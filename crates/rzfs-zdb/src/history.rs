//! `zdb -h`: the history of a pool.

use super::error::ZdbError;
use super::session::Session;
use rzfs_dsl::pool::{HistoryEvent, HistoryRecord, Pool};
use std::io;

/// Columns by which the lists of a request are indented.
const INDENT: usize = 8;

/// Shows the history, oldest records first.
pub(crate) fn run(session: &mut Session<'_>, pool: &Pool) -> Result<(), ZdbError> {
    let Some(history) = pool.history()? else { return Ok(()) };
    writeln!(session.out, "\nHistory:")?;
    for record in history {
        print_record(session, &record?)?;
    }
    Ok(())
}

fn print_record(session: &mut Session<'_>, record: &HistoryRecord) -> io::Result<()> {
    let time = record.time().map(|seconds| session.calendar.history(seconds));
    let time = time.as_deref().unwrap_or("unknown");
    let out = &mut *session.out;
    match record.event() {
        HistoryEvent::Command { command, .. } => writeln!(out, "{time} {command}"),
        HistoryEvent::Internal { name, message, txg, dataset } => {
            write!(out, "{time} [txg:{}] {name}", txg.unwrap_or(0))?;
            if let Some((dataset, id)) = dataset {
                write!(out, " {dataset} ({id})")?;
            }
            writeln!(out, " {message}")
        }
        HistoryEvent::Numbered { number, message, txg } => {
            writeln!(out, "{time} [internal {number} txg:{}] {message}", txg.unwrap_or(0))
        }
        HistoryEvent::Ioctl { name, input, output, errno, .. } => {
            writeln!(out, "{time} ioctl {name}")?;
            for (title, list) in [("input", input), ("output", output)] {
                if let Some(list) = list {
                    writeln!(out, "    {title}:")?;
                    write!(out, "{}", list.indented(INDENT))?;
                }
            }
            match errno {
                Some(errno) if errno != 0 => writeln!(out, "    errno: {errno}"),
                _ => Ok(()),
            }
        }
        HistoryEvent::Other => {
            writeln!(out, "{time} unrecognized record:")?;
            write!(out, "{}", record.list().indented(4))
        }
    }
}
