//! The sections of `zpool status` (spec 09, section 2.2).

use super::condition::for_status;
use super::config_tree::{ConfigTree, TreeStyle, pool_word};
use crate::quantity::{duration, nicebytes, nicenum};
use rzfs_server::protocol::{
    CheckpointReport, DedupReport, ExpansionReport, PoolReport, RemovalReport, ScanFunction,
    ScanReport, ScanState, VdevReport,
};
use rzfs_zdb::calendar::Calendar;
use rzfs_zdb::dedup_text;
use std::io::{self, Write};

/// The details shown for a pool.
#[derive(Clone, Debug)]
pub(crate) struct StatusStyle {
    /// The tree.
    pub(crate) tree: TreeStyle,
    /// `-v`: names of damaged files.
    pub(crate) damage: bool,
    /// `-D`: dedup tables.
    pub(crate) dedup: bool,
    /// Time zone.
    pub(crate) calendar: Calendar,
}

impl StatusStyle {
    /// Everything about one pool.
    pub(crate) fn print(&self, pool: &PoolReport, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "  pool: {}", pool.name)?;
        writeln!(out, " state: {}", pool_word(pool))?;
        if let Some(explanation) = for_status(pool.status) {
            explanation.print(&pool.load.unsupported_features, out)?;
        }
        if let Some(scan) = &pool.scan {
            writeln!(out, "  scan: {}", self.scan(scan))?;
        }
        if let Some(removal) = &pool.removal {
            writeln!(out, "remove: {}", self.removal(removal, pool))?;
        }
        if let Some(expansion) = &pool.expansion {
            writeln!(out, "expand: {}", self.expansion(expansion, pool))?;
        }
        if let Some(checkpoint) = &pool.checkpoint {
            writeln!(out, "checkpoint: {}", self.checkpoint(checkpoint))?;
        }
        writeln!(out, "config:\n")?;
        ConfigTree::new(pool, self.tree).print_status(&self.calendar, out)?;
        writeln!(out)?;
        if pool.leaked > 0 {
            writeln!(
                out,
                "leaked: {} that cannot be freed because of damage",
                nicenum(pool.leaked)
            )?;
        }
        self.print_errors(pool, out)?;
        if self.dedup {
            print_dedup(pool.dedup.as_ref(), out)?;
        }
        Ok(())
    }

    fn scan(&self, scan: &ScanReport) -> String {
        let (name, done) = match scan.function {
            ScanFunction::Scrub => ("scrub", "repaired"),
            ScanFunction::Resilver => ("resilver", "resilvered"),
        };
        let amount = nicebytes(scan.processed);
        let start = self.calendar.ctime(scan.start_time);
        let end = self.calendar.ctime(scan.end_time);
        match scan.state {
            ScanState::Finished => {
                let took = duration(scan.end_time.saturating_sub(scan.start_time));
                let what = match scan.function {
                    ScanFunction::Scrub => format!("scrub repaired {amount}"),
                    ScanFunction::Resilver => format!("resilvered {amount}"),
                };
                format!("{what} in {took} with {} errors on {end}", scan.errors)
            }
            ScanState::Canceled => format!("{name} canceled on {end}"),
            ScanState::Paused => {
                let paused = self.calendar.ctime(scan.pause_time);
                let head = format!("{name} paused since {paused}\n\t{name} started on {start}");
                format!("{head}\n\t{}\n\t{}", scanned(scan), progress(scan, &amount, done, ""))
            }
            ScanState::Scanning => {
                let tail = ", no estimated completion time";
                let head = format!("{name} in progress since {start}");
                format!("{head}\n\t{}\n\t{}", scanned(scan), progress(scan, &amount, done, tail))
            }
        }
    }

    fn removal(&self, removal: &RemovalReport, pool: &PoolReport) -> String {
        let vdev = removal.vdev;
        let end = self.calendar.ctime(removal.end_time);
        let text = match removal.state {
            ScanState::Canceled => format!("Removal of {} canceled on {end}", top_name(pool, vdev)),
            ScanState::Finished => {
                let minutes = removal.end_time.saturating_sub(removal.start_time) / 60;
                format!(
                    "Removal of vdev {vdev} copied {} in {}h{}m, completed on {end}",
                    nicenum(removal.copied),
                    minutes / 60,
                    minutes % 60
                )
            }
            ScanState::Scanning | ScanState::Paused => {
                let start = self.calendar.ctime(removal.start_time);
                let percent = percentage(removal.copied, removal.to_copy);
                format!(
                    "Evacuation of {} in progress since {start}\n\t{} copied out of {} at 0/s, \
                     {percent:.2}% done, (copy is slow, no estimated time)",
                    top_name(pool, vdev),
                    nicenum(removal.copied),
                    nicenum(removal.to_copy)
                )
            }
        };
        match removal.mapping_memory {
            0 => text,
            bytes => {
                format!("{text}\n\t{} memory used for removed device mappings", nicenum(bytes))
            }
        }
    }

    fn expansion(&self, expansion: &ExpansionReport, pool: &PoolReport) -> String {
        let name = top_name(pool, expansion.vdev);
        match expansion.state {
            ScanState::Finished | ScanState::Canceled => {
                let took = duration(expansion.end_time.saturating_sub(expansion.start_time));
                format!(
                    "expanded {name} copied {} in {took}, on {}",
                    nicenum(expansion.reflowed),
                    self.calendar.ctime(expansion.end_time)
                )
            }
            ScanState::Scanning | ScanState::Paused => {
                let start = self.calendar.ctime(expansion.start_time);
                let percent = percentage(expansion.reflowed, expansion.to_reflow);
                format!(
                    "expansion of {name} in progress since {start}\n\t{} / {} copied at 0B/s, \
                     {percent:.2}% done, (copy is slow, no estimated time)",
                    nicebytes(expansion.reflowed),
                    nicebytes(expansion.to_reflow)
                )
            }
        }
    }

    fn checkpoint(&self, checkpoint: &CheckpointReport) -> String {
        let space = nicenum(checkpoint.space);
        if checkpoint.discarding {
            format!("discarding, {space} remaining.")
        } else {
            format!("created {}, consumes {space}", self.calendar.ctime(checkpoint.start_time))
        }
    }

    fn print_errors(&self, pool: &PoolReport, out: &mut dyn Write) -> io::Result<()> {
        match pool.damage.len() {
            0 => writeln!(out, "errors: No known data errors"),
            count if !self.damage => {
                writeln!(out, "errors: {count} data errors, use '-v' for a list")
            }
            _ => {
                writeln!(
                    out,
                    "errors: Permanent errors have been detected in the following files:\n"
                )?;
                pool.damage.iter().try_for_each(|file| writeln!(out, "        {}", file.name))
            }
        }
    }
}

fn scanned(scan: &ScanReport) -> String {
    let total = nicebytes(scan.to_examine);
    let (examined, issued) = (nicebytes(scan.examined), nicebytes(scan.issued));
    format!("{examined} / {total} scanned, {issued} / {total} issued")
}

fn progress(scan: &ScanReport, amount: &str, done: &str, tail: &str) -> String {
    format!("{amount} {done}, {:.2}% done{tail}", percentage(scan.issued, scan.to_examine))
}

fn percentage(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// The name of a top-level vdev.
fn top_name(pool: &PoolReport, id: u64) -> String {
    let top = pool.root.children.iter().find(|vdev: &&VdevReport| vdev.id == id);
    top.map_or_else(|| format!("vdev {id}"), |vdev| TreeStyle::default().names.name(vdev))
}

fn print_dedup(dedup: Option<&DedupReport>, out: &mut dyn Write) -> io::Result<()> {
    let Some(dedup) = dedup else { return writeln!(out, "\n dedup: no DDT entries") };
    let (disk, core) = (nicebytes(dedup.disk_bytes), nicebytes(dedup.core_bytes));
    writeln!(
        out,
        "\n dedup: DDT entries {}, size {disk} on disk, {core} in core\n",
        dedup.entries
    )?;
    let rows = &dedup.histogram;
    dedup_text::print(rows, Some(&dedup_text::total(rows)), out)
}
