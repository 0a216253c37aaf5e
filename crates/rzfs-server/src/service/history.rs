//! The history of a pool as plain data.

use crate::protocol::{HistoryKind, HistoryReport};
use rzfs_dsl::pool::{HistoryEvent, HistoryRecord};
use rzfs_dsl::{Pool, PoolError};

/// Indentation of the lists of a request, in columns.
const INDENT: usize = 8;

/// All records, the oldest first.
pub(super) fn report(pool: &Pool) -> Result<Vec<HistoryReport>, PoolError> {
    let Some(history) = pool.history()? else { return Ok(Vec::new()) };
    history.map(|one| one.map(|one| record(&one))).collect()
}

fn record(record: &HistoryRecord) -> HistoryReport {
    let mut report = HistoryReport {
        time: record.time(),
        kind: HistoryKind::Internal,
        text: String::new(),
        user: None,
        host: record.hostname(),
        zone: None,
    };
    report.text = match record.event() {
        HistoryEvent::Command { command, user, zone } => {
            report.kind = HistoryKind::Command;
            (report.user, report.zone) = (user, zone);
            command
        }
        HistoryEvent::Internal { name, message, txg, dataset } => {
            let dataset = dataset.map_or(String::new(), |(name, id)| format!(" {name} ({id})"));
            format!("[txg:{}] {name}{dataset} {message}", txg.unwrap_or(0))
        }
        HistoryEvent::Numbered { number, message, txg } => {
            format!("[internal {number} txg:{}] {message}", txg.unwrap_or(0))
        }
        HistoryEvent::Ioctl { name, input, output, errno, elapsed_ns } => {
            (report.user, report.zone) = record.origin();
            let elapsed = elapsed_ns.map_or(String::new(), |ns| format!("({}ms) ", ns / 1_000_000));
            let mut text = format!("{elapsed}ioctl {name}\n");
            for (title, list) in [("input", input), ("output", output)] {
                if let Some(list) = list {
                    text += &format!("    {title}:\n{}", list.indented(INDENT));
                }
            }
            if let Some(errno) = errno.filter(|errno| *errno != 0) {
                text += &format!("    errno: {errno}\n");
            }
            text
        }
        HistoryEvent::Other => format!("unrecognized record:\n{}", record.list().indented(4)),
    };
    report
}
