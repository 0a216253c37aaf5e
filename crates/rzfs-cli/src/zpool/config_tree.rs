//! The vdevs of a pool as an indented tree, in `zpool status` and in the list of importable pools
//! (spec 09, sections 2.2 and 2.6).

use super::vdev_name::NameStyle;
use crate::quantity::nicenum;
use crate::table::on_one_line;
use rzfs_server::protocol::{PoolReport, SweepReport, SweepState, VdevReport, VdevRole};
use rzfs_vdev::{AuxReason, VdevState};
use rzfs_zdb::calendar::Calendar;
use std::io::{self, Write};

/// Minimum width of the column of names.
const NAME_WIDTH: usize = 10;

/// Classes of devices in display order, with their headings. The TAB after some headings is
/// OpenZFS's.
const CLASSES: [(VdevRole, &str); 3] =
    [(VdevRole::Dedup, "dedup\t"), (VdevRole::Special, "special\t"), (VdevRole::Log, "logs\t")];

/// Prints the line of a vdev: its report, name and depth.
type Line<'a> = dyn Fn(&VdevReport, &str, usize, &mut dyn Write) -> io::Result<()> + 'a;

/// The details shown for each vdev.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TreeStyle {
    /// The format of names.
    pub(crate) names: NameStyle,
    /// `-p`: exact counts.
    pub(crate) exact: bool,
    /// `-s`: slow requests.
    pub(crate) slow: bool,
    /// `-d`: checksum errors of direct I/O.
    pub(crate) direct: bool,
    /// `-i`: state of initialising.
    pub(crate) initialize: bool,
    /// `-t`: state of trimming.
    pub(crate) trim: bool,
    /// `-e`: only vdevs with problems.
    pub(crate) unhealthy_only: bool,
}

/// Prints trees of one pool.
#[derive(Debug)]
pub(crate) struct ConfigTree<'a> {
    pool: &'a PoolReport,
    style: TreeStyle,
    width: usize,
}

impl<'a> ConfigTree<'a> {
    /// The tree of a pool.
    pub(crate) fn new(pool: &'a PoolReport, style: TreeStyle) -> Self {
        let aux = pool.spares.iter().chain(&pool.caches);
        let widest = aux
            .map(|vdev| name_width(vdev, style.names, 2))
            .fold(name_width(&pool.root, style.names, 0).max(pool.name.len()), usize::max);
        Self { pool, style, width: widest.max(NAME_WIDTH) }
    }

    /// The tree with state and counters of each vdev.
    pub(crate) fn print_status(&self, calendar: &Calendar, out: &mut dyn Write) -> io::Result<()> {
        let mut header = format!("\t{:<1$}  STATE     READ WRITE CKSUM", "NAME", self.width);
        if self.style.slow {
            header.push_str("  SLOW");
        }
        if self.style.direct {
            header.push_str("   DIO");
        }
        writeln!(out, "{header}")?;
        let line = |vdev: &VdevReport, name: &str, depth: usize, out: &mut dyn Write| {
            self.status_line(vdev, (name, depth), calendar, out)
        };
        self.pool_and_normal(out, &line, is_shown)?;
        self.classes(out, &line)?;
        let spares: Vec<_> = self.pool.spares.iter().collect();
        self.auxiliary("cache", &self.pool.caches.iter().collect::<Vec<_>>(), calendar, out)?;
        self.auxiliary("spares", &spares, calendar, out)
    }

    /// The tree with the state of each vdev, for a pool that is not imported.
    pub(crate) fn print_import(&self, out: &mut dyn Write) -> io::Result<()> {
        let line = |vdev: &VdevReport, name: &str, depth: usize, out: &mut dyn Write| {
            self.import_line(vdev, name, depth, out)
        };
        self.pool_and_normal(out, &line, |_| true)?;
        for (heading, vdevs) in [("cache", &self.pool.caches), ("spares", &self.pool.spares)] {
            if !vdevs.is_empty() {
                writeln!(out, "\t{heading}")?;
            }
            for vdev in vdevs {
                writeln!(out, "\t  {}", self.style.names.name(vdev))?;
            }
        }
        self.classes(out, &line)
    }

    fn pool_and_normal(
        &self,
        out: &mut dyn Write,
        line: &Line<'_>,
        is_shown: fn(&VdevReport) -> bool,
    ) -> io::Result<()> {
        line(&self.pool.root, &self.pool.name, 0, out)?;
        let tops = self.pool.root.children.iter();
        tops.filter(|top| top.role == VdevRole::Normal && top.kind != "hole" && is_shown(top))
            .try_for_each(|top| self.walk(top, 1, out, line))
    }

    fn classes(&self, out: &mut dyn Write, line: &Line<'_>) -> io::Result<()> {
        let tops = |role| {
            let in_class = move |vdev: &&VdevReport| vdev.role == role && is_shown(vdev);
            self.pool.root.children.iter().filter(in_class)
        };
        for (role, heading) in CLASSES {
            let mut members = tops(role).peekable();
            if members.peek().is_some() {
                writeln!(out, "\t{heading}")?;
            }
            members.try_for_each(|top| self.walk(top, 1, out, line))?;
        }
        Ok(())
    }

    fn walk(
        &self,
        vdev: &VdevReport,
        depth: usize,
        out: &mut dyn Write,
        line: &Line<'_>,
    ) -> io::Result<()> {
        if self.style.unhealthy_only && is_healthy(vdev) {
            return Ok(());
        }
        line(vdev, &self.style.names.name(vdev), depth, out)?;
        vdev.children.iter().try_for_each(|child| self.walk(child, depth + 1, out, line))
    }

    fn status_line(
        &self,
        vdev: &VdevReport,
        (name, depth): (&str, usize),
        calendar: &Calendar,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let counts = &vdev.statistics;
        write!(
            out,
            "\t{:1$}{name:<2$}  {3:<8}",
            "",
            depth * 2,
            self.width - depth * 2,
            word(vdev)
        )?;
        for count in [counts.read_errors, counts.write_errors, counts.checksum_errors] {
            write!(out, " {:>5}", self.count(count))?;
        }
        if self.style.slow {
            let leaf = vdev.children.is_empty();
            let slow = counts.slow_ios.filter(|_| leaf).map(|count| self.count(count));
            write!(out, " {:>5}", slow.as_deref().unwrap_or("-"))?;
        }
        if self.style.direct {
            write!(out, " {:>5}", self.count(0))?;
        }
        writeln!(out, "{}", self.remarks(vdev, depth, calendar))
    }

    fn count(&self, count: u64) -> String {
        if self.style.exact { count.to_string() } else { nicenum(count) }
    }

    /// The remarks after the counters.
    fn remarks(&self, vdev: &VdevReport, depth: usize, calendar: &Calendar) -> String {
        let aux = vdev.health.aux;
        let mut remarks = String::new();
        if vdev.not_present {
            let path = on_one_line(vdev.path.as_deref().unwrap_or_default());
            remarks.push_str(&format!("  was {path}"));
        } else if aux != AuxReason::None && !aux.text().is_empty() {
            remarks.push_str(&format!("  {}", aux.text()));
        }
        if let Some((first, last)) = vdev.lacks {
            remarks.push_str(&format!("  (lacks data of txgs {first} to {last})"));
        }
        let leaf = vdev.children.is_empty() && matches!(vdev.kind.as_str(), "disk" | "file");
        if depth > 0 && leaf && vdev.health.state >= VdevState::Degraded {
            if self.style.initialize {
                let swept = vdev.initialize.and_then(|one| progress(&one, "initialized", calendar));
                remarks.push_str(swept.as_deref().unwrap_or("  (uninitialized)"));
            }
            if self.style.trim {
                let swept = vdev.trim.and_then(|one| progress(&one, "trimmed", calendar));
                let never = match vdev.keeps_everything {
                    true => "  (trim unsupported)",
                    false => "  (untrimmed)",
                };
                remarks.push_str(swept.as_deref().unwrap_or(never));
            }
        }
        remarks
    }

    fn import_line(
        &self,
        vdev: &VdevReport,
        name: &str,
        depth: usize,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        write!(out, "\t{:1$}{name:<2$}  {3}", "", depth * 2, self.width - depth * 2, word(vdev))?;
        let aux = vdev.health.aux;
        match aux.text() {
            "" => writeln!(out),
            text => writeln!(out, "  {text}"),
        }
    }

    fn auxiliary(
        &self,
        heading: &str,
        vdevs: &[&VdevReport],
        calendar: &Calendar,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        if vdevs.is_empty() {
            return Ok(());
        }
        writeln!(out, "\t{heading}")?;
        for vdev in vdevs {
            let name = self.style.names.name(vdev);
            if vdev.role == VdevRole::Cache {
                self.status_line(vdev, (&name, 1), calendar, out)?;
                continue;
            }
            write!(out, "\t  {0:<1$}  {2:<8}", name, self.width - 2, spare_word(vdev))?;
            match vdev.health.aux.text() {
                "" => writeln!(out)?,
                text => writeln!(out, "  {text}")?,
            }
        }
        Ok(())
    }
}

/// The progress of a sweep of a leaf; `None` for one that was cancelled.
fn progress(sweep: &SweepReport, done: &str, calendar: &Calendar) -> Option<String> {
    let when = match sweep.state {
        SweepState::Active => "started",
        SweepState::Suspended => "suspended, started",
        SweepState::Complete => "completed",
        SweepState::Never | SweepState::Cancelled => return None,
    };
    let time = calendar.ctime(sweep.action_time);
    Some(format!("  ({}% {done}, {when} at {time})", sweep.percent()))
}

/// The word for a vdev's state.
pub(crate) fn word(vdev: &VdevReport) -> String {
    vdev.health.to_string()
}

/// The word for the state of a pool.
pub(crate) fn pool_word(pool: &PoolReport) -> String {
    if pool.status.is_suspended() { "SUSPENDED".to_owned() } else { word(&pool.root) }
}

/// The word for a spare's state.
pub(crate) fn spare_word(vdev: &VdevReport) -> String {
    match (vdev.health.state, vdev.health.aux) {
        (_, AuxReason::Spared) => "INUSE".to_owned(),
        (VdevState::Healthy, _) => "AVAIL".to_owned(),
        _ => word(vdev),
    }
}

/// Slots of removed devices are hidden.
pub(crate) fn is_shown(vdev: &VdevReport) -> bool {
    !matches!(vdev.kind.as_str(), "hole" | "indirect")
}

/// Whether it has no errors, and is healthy down to the last leaf.
fn is_healthy(vdev: &VdevReport) -> bool {
    let counts = &vdev.statistics;
    vdev.health.state == VdevState::Healthy
        && vdev.lacks.is_none()
        && counts.read_errors + counts.write_errors + counts.checksum_errors == 0
        && vdev.children.iter().all(is_healthy)
}

fn name_width(vdev: &VdevReport, names: NameStyle, indent: usize) -> usize {
    let own = names.name(vdev).chars().count() + indent;
    let below = vdev.children.iter().filter(|child| is_shown(child));
    below.map(|child| name_width(child, names, indent + 2)).fold(own, usize::max)
}
