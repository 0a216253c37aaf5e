//! Properties of vdevs (spec 09, section 5.3).

use super::config_tree::word;
use super::vdev_name::NameStyle;
use crate::property::Precision;
use rzfs::protocol::{PoolReport, PropertyReport, PropertySource, PropertyValue, VdevReport};

/// A vdev with its own name and its parent's.
#[derive(Clone, Debug)]
pub(super) struct NamedVdev<'a> {
    pub(super) vdev: &'a VdevReport,
    pub(super) name: String,
    parent: Option<String>,
    is_top: bool,
}

/// All vdevs of a pool: the root, then depth first.
pub(super) fn vdevs(pool: &PoolReport, style: NameStyle) -> Vec<NamedVdev<'_>> {
    let root =
        NamedVdev { vdev: &pool.root, name: "root-0".to_owned(), parent: None, is_top: false };
    let mut all = vec![root];
    for top in &pool.root.children {
        add(top, &pool.name, true, style, &mut all);
    }
    all
}

fn add<'a>(
    vdev: &'a VdevReport,
    parent: &str,
    is_top: bool,
    style: NameStyle,
    all: &mut Vec<NamedVdev<'a>>,
) {
    let name = style.name(vdev);
    let parent = Some(parent.to_owned());
    all.push(NamedVdev { vdev, name: name.clone(), parent, is_top });
    for child in &vdev.children {
        add(child, &name, false, style, all);
    }
}

/// The properties of a vdev.
#[derive(Clone, Copy, Debug)]
pub(super) struct VdevProperty<'a> {
    pub(super) named: &'a NamedVdev<'a>,
    pub(super) report: &'a PoolReport,
}

impl VdevProperty<'_> {
    /// The property of this name, which has to be a known one.
    pub(super) fn get(self, name: &str, precision: Precision) -> PropertyReport {
        let (value, source) = self.value(name, precision);
        PropertyReport { name: name.to_owned(), value, source, received: None }
    }

    fn value(self, name: &str, precision: Precision) -> (PropertyValue, PropertySource) {
        use PropertyValue::{Number, Text, Unset};
        let vdev = self.named.vdev;
        let counts = &vdev.statistics;
        let is_root = self.named.parent.is_none();
        // Space is accounted by top-level vdev and for the pool.
        let accounted = self.named.is_top || is_root;
        let space = |bytes: u64| Number(if accounted { bytes } else { 0 });
        let text = |text: &str| Text(text.to_owned());
        let names = |list: Vec<String>| match list.is_empty() {
            true => Unset,
            false => Text(list.join(",")),
        };
        let value = match name {
            "name" => text(&self.named.name),
            "capacity" if accounted => {
                Number(counts.allocated.saturating_mul(100).checked_div(counts.space).unwrap_or(0))
            }
            "capacity" => Number(0),
            "state" if precision == Precision::Exact => Number(u64::from(vdev.state)),
            "state" => Text(word(vdev)),
            "guid" => Number(vdev.guid),
            "asize" => Number(vdev.asize),
            "psize" => Number(counts.physical_size),
            "ashift" => Number(vdev.ashift),
            "size" => space(counts.space),
            "free" => space(counts.space.saturating_sub(counts.allocated)),
            "allocated" => space(counts.allocated),
            "expandsize" => Some(counts.expandable_size).filter(|b| *b > 0).map_or(Unset, Number),
            "fragmentation" => counts.fragmentation.map_or(Unset, Number),
            "parity" => Number(vdev.parity),
            "path" => vdev.path.as_deref().map_or(Unset, text),
            "parent" => self.named.parent.as_deref().map_or(Unset, text),
            "children" => {
                let style = NameStyle::default();
                names(vdev.children.iter().map(|child| style.name(child)).collect())
            }
            "numchildren" => Number(vdev.children.len() as u64),
            "read_errors" => Number(counts.read_errors),
            "write_errors" => Number(counts.write_errors),
            "checksum_errors" => Number(counts.checksum_errors),
            "read_ops" => Number(counts.reads),
            "read_bytes" => Number(counts.bytes_read),
            "slow_ios" => Number(counts.slow_ios.unwrap_or(0)),
            "removing" => text("off"),
            "allocating" if accounted => text("on"),
            "failfast" => text("on"),
            "trim_support" if vdev.children.is_empty() => text("on"),
            name if name.ends_with("_ops") || name.ends_with("_bytes") => Number(0),
            "bootsize" | "initialize_errors" | "trim_errors" => Number(0),
            _ => Unset,
        };
        let source = match name {
            "allocating" if !accounted => PropertySource::None,
            "bootsize" | "allocating" | "failfast" => PropertySource::Default,
            "capacity" | "trim_support" | "expandsize" => PropertySource::None,
            _ if value == Unset => PropertySource::Default,
            _ => PropertySource::None,
        };
        // The pool itself is the last word on what the root holds.
        debug_assert!(!is_root || vdev.guid == self.report.guid);
        (value, source)
    }
}
