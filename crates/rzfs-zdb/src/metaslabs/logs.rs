//! Log space maps: the changes of each txg, and how many of them metaslabs still need.

use super::map;
use super::report::Report;
use crate::error::ZdbError;
use crate::session::{Session, Verdict};
use rzfs_format::space_map::Geometry;
use rzfs_metaslab::SpaceMap;

/// Shows all logs of a pool.
pub(super) fn print(session: &mut Session<'_>, report: &Report<'_>) -> Result<Verdict, ZdbError> {
    let mut verdict = Verdict::Clean;
    writeln!(session.out, "\nLog Space Maps in Pool:")?;
    for statistics in report.metaslabs.logs() {
        let log = statistics.log;
        writeln!(session.out, "Log Spacemap object {} txg {}", log.object, log.txg)?;
        let map = SpaceMap::open(&report.store, log.object, Geometry::LOG)?;
        verdict = verdict.max(map::print(session, &report.store, &map, report.detail)?);
    }
    writeln!(session.out, "\nLog Space Map Obsolete Entry Statistics:")?;
    let (mut valid, mut entries) = (0, 0);
    for statistics in report.metaslabs.logs() {
        let line = line(statistics.valid, statistics.entries);
        writeln!(session.out, "{line} - txg {}", statistics.log.txg)?;
        valid += statistics.valid;
        entries += statistics.entries;
    }
    writeln!(session.out, "{} - total\n", line(valid, entries))?;
    Ok(verdict)
}

fn line(valid: u64, entries: u64) -> String {
    format!("{valid:<8} valid entries out of {entries:<8}")
}
