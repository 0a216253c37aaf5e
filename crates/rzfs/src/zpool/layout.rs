//! The vdevs of a pool that is not there yet, as `-n` shows them (spec 09, section 3.5).

use rzfs_vdev::config::{AllocationBias, VdevKind};
use rzfs_vdev::create::{NewDevice, TopLayout, TopSpec, VdevSpec};
use std::io::{self, Write};

/// A tree of names.
pub(super) struct Layout {
    /// Names and how deep they are indented.
    lines: Vec<(usize, String)>,
}

impl Layout {
    /// The layout of a pool of these devices.
    pub(super) fn of_plan(pool: &str, devices: &VdevSpec<NewDevice>) -> Self {
        let mut layout = Self { lines: Vec::new() };
        layout.section(pool, devices.tops.iter().filter(|top| top.bias.is_none()));
        for (name, bias) in [
            ("dedup", AllocationBias::Dedup),
            ("special", AllocationBias::Special),
            ("logs", AllocationBias::Log),
        ] {
            layout.section(name, devices.tops.iter().filter(|top| top.bias == Some(bias)));
        }
        for (name, devices) in [("cache", &devices.caches), ("spares", &devices.spares)] {
            if !devices.is_empty() {
                layout.lines.push((0, name.to_owned()));
                layout.lines.extend(devices.iter().map(|device| (1, shown(device))));
            }
        }
        layout
    }

    fn section<'d>(&mut self, name: &str, tops: impl Iterator<Item = &'d TopSpec<NewDevice>>) {
        let mut tops = tops.peekable();
        if tops.peek().is_some() {
            self.lines.push((0, name.to_owned()));
        }
        for top in tops {
            let depth = match group(top) {
                Some(name) => {
                    self.lines.push((1, name));
                    2
                }
                None => 1,
            };
            self.lines.extend(top.devices.iter().map(|device| (depth, shown(device))));
        }
    }

    pub(super) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        self.lines.iter().try_for_each(|(depth, name)| {
            writeln!(out, "\t{:indent$}{name}", "", indent = depth * 2)
        })
    }
}

/// The name of a vdev that has others; it has no number yet.
fn group(top: &TopSpec<NewDevice>) -> Option<String> {
    match top.layout {
        TopLayout::Single => None,
        TopLayout::Mirror => Some("mirror".to_owned()),
        TopLayout::Raidz { parity } => Some(format!("raidz{parity}")),
        TopLayout::Draid { parity, shape } => {
            Some(format!("draid{parity}:{}d:{}c:{}s", shape.data, top.devices.len(), shape.spares))
        }
    }
}

/// Disks by their names below `/dev`, files by their paths.
fn shown(device: &NewDevice) -> String {
    match device.kind {
        VdevKind::Disk => device.path.strip_prefix("/dev/").unwrap_or(&device.path).to_owned(),
        _ => device.path.clone(),
    }
}
