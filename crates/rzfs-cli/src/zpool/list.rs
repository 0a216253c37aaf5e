//! `zpool list` (spec 09, section 2.1).

use super::column::{PoolColumn, parse_columns};
use super::config_tree::{spare_word, word};
use super::json::{Placement, PoolJson};
use super::selection::Selection;
use super::vdev_name::NameStyle;
use crate::console::{Console, Outcome};
use crate::getopt::{Grammar, Value, Word};
use crate::json::{Envelope, JSON_GUID, JSON_INT};
use crate::property::{Precision, Writer};
use crate::quantity::{vdev_basis_points, vdev_capacity};
use crate::table::{Layout, Table};
use rzfs_format::property::{NumberFormat, PoolProperty, Values};
use rzfs_server::protocol::{PoolReport, PropertyValue, VdevReport, VdevRole};
use serde_json::Map;
use std::io::{self, Write};

const GRAMMAR: Grammar = Grammar {
    letters: &[
        ('g', Value::None),
        ('H', Value::None),
        ('L', Value::None),
        ('p', Value::None),
        ('P', Value::None),
        ('v', Value::None),
        ('j', Value::None),
        ('o', Value::Required),
        ('T', Value::Required),
        ('d', Value::Devices),
    ],
    names: &[("json", 'j'), ("json-int", JSON_INT), ("json-pool-key-guid", JSON_GUID)],
};

/// Runs `zpool list`.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let words = GRAMMAR.parse(words)?;
    let flag = |letter| words.contains(&Word::Flag(letter));
    let columns = words.iter().rev().find_map(|word| match word {
        Word::Option('o', columns) => Some(columns.as_str()),
        _ => None,
    });
    let exact = flag('p') || flag(JSON_INT);
    let writer = Writer {
        calendar: console.calendar.clone(),
        precision: if exact { Precision::Exact } else { Precision::Rounded },
    };
    let list = PoolList {
        columns: parse_columns(columns.unwrap_or(DEFAULT_COLUMNS))?,
        layout: if flag('H') { Layout::Scripted } else { Layout::Human },
        writer,
        vdevs: flag('v'),
        names: NameStyle::of(&words),
    };
    let selection = Selection::repeated(&words)?;
    let json = flag('j').then(|| PoolJson::of(&words, &list.writer));
    selection.repeat(console, |pools, first, console| match &json {
        Some(json) => list.print_json(json, pools, console.out),
        None if pools.is_empty() && selection.names.is_empty() => {
            if list.layout == Layout::Human {
                writeln!(console.out, "no pools available")?;
            }
            Ok(())
        }
        None => Ok(list.print(pools, first, console.out)?),
    })
}

/// The columns without `-o`.
pub(crate) const DEFAULT_COLUMNS: &str = "name,size,allocated,free,checkpoint,expandsize,\
     fragmentation,capacity,dedupratio,health,altroot";

/// Classes of devices in the display order of `-v`, with their headings.
const CLASSES: [(VdevRole, &str); 3] =
    [(VdevRole::Dedup, "dedup"), (VdevRole::Special, "special"), (VdevRole::Log, "logs")];

/// The options of `zpool list`.
#[derive(Clone, Debug)]
pub(crate) struct PoolList {
    /// `-o`.
    pub(crate) columns: Vec<PoolColumn>,
    /// `-H`.
    pub(crate) layout: Layout,
    /// `-p` and the time zone.
    pub(crate) writer: Writer,
    /// `-v`.
    pub(crate) vdevs: bool,
    /// `-g`, `-L`, `-P`.
    pub(crate) names: NameStyle,
}

impl PoolList {
    /// Prints the pools, and with `-v` their vdevs.
    pub(crate) fn print(
        &self,
        pools: &[PoolReport],
        with_header: bool,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        if pools.is_empty() {
            return Ok(());
        }
        let mut table = Table::new(self.columns.iter().map(PoolColumn::column).collect());
        let mut depths = Vec::new();
        for pool in pools {
            table.push(self.pool_row(pool));
            depths.push(0);
            if self.vdevs {
                self.push_vdevs(pool, &mut table, &mut depths);
            }
        }
        if self.layout == Layout::Human {
            return if with_header { table.print(self.layout, out) } else { table.print_rows(out) };
        }
        let widths = table.scripted_widths();
        table.rows().iter().zip(depths).try_for_each(|(row, depth)| match depth {
            0 => writeln!(out, "{}", row.join("\t")),
            // Headings of classes stay aligned, as in OpenZFS.
            HEADING => writeln!(out, "{}", table.line(row, &widths)),
            _ => {
                let name = row.first().map_or("", |name| name.trim_start());
                let cells = row.iter().skip(1).map(String::as_str);
                writeln!(
                    out,
                    "\t{}",
                    std::iter::once(name).chain(cells).collect::<Vec<_>>().join("\t")
                )
            }
        })
    }

    fn print_json(&self, json: &PoolJson, pools: &[PoolReport], out: &mut dyn Write) -> Outcome {
        let mut envelope = Envelope::new("zpool list");
        let mut members = Map::new();
        for pool in pools {
            let mut head = json.head(pool, true);
            head.insert("properties".to_owned(), json.properties(pool, &self.columns));
            if self.vdevs {
                let describe = |vdev: &VdevReport, _: &str, depth: usize| {
                    let mut members = json.vdev_head(vdev, &self.names.name(vdev));
                    let cells =
                        self.shown_for_vdevs().filter(|column| !column.is(PoolProperty::Name));
                    let cells = cells.map(|column| {
                        let text = self.vdev_cell(vdev, depth, column);
                        (column.name().to_owned(), json.cell(text))
                    });
                    let cells: Map<_, _> = cells.collect();
                    members.insert("properties".to_owned(), cells.into());
                    members
                };
                let vdevs = json.vdevs(pool, Placement::Vdevs, &describe).into_iter();
                head.extend(vdevs.map(|(name, value)| (name.to_owned(), value)));
            }
            members.insert(json.key(pool), head.into());
        }
        envelope.insert("pools", members);
        envelope.print(out)
    }

    fn pool_row(&self, pool: &PoolReport) -> Vec<String> {
        let cell = |column: &PoolColumn| {
            if column.is(PoolProperty::Name) {
                return pool.name.clone();
            }
            let property = pool.properties.iter().find(|property| property.name == column.name());
            property.map_or_else(
                || "-".to_owned(),
                |property| self.writer.write(column.values(), &property.value),
            )
        };
        self.columns.iter().map(cell).collect()
    }

    fn push_vdevs(&self, pool: &PoolReport, table: &mut Table, depths: &mut Vec<usize>) {
        let tops =
            |role| pool.root.children.iter().filter(move |top: &&VdevReport| top.role == role);
        for top in tops(VdevRole::Normal).filter(|top| top.kind != "hole") {
            self.push_vdev(top, 1, table, depths);
        }
        for (role, heading) in CLASSES {
            let members: Vec<_> = tops(role).filter(|top| top.kind != "hole").collect();
            self.push_class(heading, &members, table, depths);
        }
        self.push_class("cache", &pool.caches.iter().collect::<Vec<_>>(), table, depths);
        self.push_class("spare", &pool.spares.iter().collect::<Vec<_>>(), table, depths);
    }

    fn push_class(
        &self,
        heading: &str,
        members: &[&VdevReport],
        table: &mut Table,
        depths: &mut Vec<usize>,
    ) {
        if members.is_empty() {
            return;
        }
        let dash = |column: &PoolColumn| match column.is(PoolProperty::Name) {
            true => heading.to_owned(),
            false => "-".to_owned(),
        };
        table.push(self.shown_for_vdevs().map(dash).collect());
        depths.push(HEADING);
        members.iter().for_each(|member| self.push_vdev(member, 1, table, depths));
    }

    fn push_vdev(
        &self,
        vdev: &VdevReport,
        depth: usize,
        table: &mut Table,
        depths: &mut Vec<usize>,
    ) {
        let cell = |column: &PoolColumn| match column.is(PoolProperty::Name) {
            true => format!("{:1$}{2}", "", depth * 2, self.names.name(vdev)),
            false => self.vdev_cell(vdev, depth, column),
        };
        table.push(self.shown_for_vdevs().map(cell).collect());
        depths.push(depth);
        for child in &vdev.children {
            self.push_vdev(child, depth + 1, table, depths);
        }
    }

    /// Vdevs have no altroot.
    fn shown_for_vdevs(&self) -> impl Iterator<Item = &PoolColumn> {
        self.columns.iter().filter(|column| !column.is(PoolProperty::AltRoot))
    }

    fn vdev_cell(&self, vdev: &VdevReport, depth: usize, column: &PoolColumn) -> String {
        let counts = &vdev.statistics;
        let bytes = |value| {
            self.writer.write(Values::Number(NumberFormat::Scaled), &PropertyValue::Number(value))
        };
        let dash = || "-".to_owned();
        let has_space = depth == 1 && counts.space > 0;
        let PoolColumn::Native(property) = column else { return dash() };
        match property {
            PoolProperty::Size if vdev.children.is_empty() && counts.physical_size > 0 => {
                bytes(counts.physical_size)
            }
            PoolProperty::Size if has_space => bytes(counts.space),
            PoolProperty::Allocated if has_space => bytes(counts.allocated),
            PoolProperty::Free if has_space => bytes(counts.space.saturating_sub(counts.allocated)),
            PoolProperty::Checkpoint if counts.checkpoint_space > 0 => {
                bytes(counts.checkpoint_space)
            }
            PoolProperty::ExpandSize if counts.expandable_size > 0 => bytes(counts.expandable_size),
            PoolProperty::Fragmentation if has_space => {
                counts.fragmentation.map_or_else(dash, |percent| {
                    self.writer.write(
                        PoolProperty::Fragmentation.values(),
                        &PropertyValue::Number(percent),
                    )
                })
            }
            PoolProperty::Capacity if has_space => match self.writer.precision {
                Precision::Exact => {
                    (vdev_basis_points(counts.allocated, counts.space) / 100).to_string()
                }
                Precision::Rounded => vdev_capacity(counts.allocated, counts.space),
            },
            PoolProperty::Health if vdev.role == VdevRole::Spare => spare_word(vdev),
            PoolProperty::Health => word(vdev),
            _ => dash(),
        }
    }
}

/// Marks the heading of a class among the depths of rows.
const HEADING: usize = usize::MAX;
