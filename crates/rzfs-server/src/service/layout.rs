//! The projected vdevs of a pool as plain data (spec 09, section 3.5).

use crate::protocol::{Layout, LayoutLine};
use rzfs::Pool;
use rzfs_dsl::pool::AuxiliaryKind;
use rzfs_vdev::config::{AllocationBias, VdevKind};
use rzfs_vdev::create::{NewDevice, TopLayout, TopSpec, VdevSpec};
use rzfs_vdev::{Vdev, VdevConfig};

/// Sections of top-level vdevs after the ordinary ones, in display order.
const CLASSES: [(&str, AllocationBias); 3] = [
    ("dedup", AllocationBias::Dedup),
    ("special", AllocationBias::Special),
    ("logs", AllocationBias::Log),
];

impl Layout {
    /// The layout of a pool of these devices.
    #[must_use]
    pub fn of_plan(pool: &str, devices: &VdevSpec<NewDevice>) -> Self {
        let mut layout = Self::default();
        layout.section(pool, Self::new_tops(devices, None));
        for (name, bias) in CLASSES {
            layout.section(name, Self::new_tops(devices, Some(bias)));
        }
        for (name, devices) in [("cache", &devices.caches), ("spares", &devices.spares)] {
            layout.section(name, devices.iter().map(|device| line(1, shown(device))).collect());
        }
        layout
    }

    /// The layout of a pool with these devices added.
    #[must_use]
    pub fn of_growth(pool: &Pool, devices: &VdevSpec<NewDevice>) -> Self {
        let present = |bias| -> Vec<LayoutLine> {
            let is_there = |top: &Vdev<'_>| {
                !matches!(top.kind(), VdevKind::Hole | VdevKind::Indirect | VdevKind::Missing)
            };
            let tops = pool.vdevs().top_levels().filter(is_there);
            tops.filter(|top| top.allocation_bias() == bias).flat_map(|top| below(top, 1)).collect()
        };
        let auxiliary = |kind| -> Vec<LayoutLine> {
            let vdevs = pool.auxiliary().iter().filter(|vdev| vdev.kind == kind);
            vdevs.map(|vdev| line(1, path(&vdev.config))).collect()
        };
        let mut layout = Self::default();
        let both = |old: Vec<_>, new| old.into_iter().chain(new).collect();
        layout.section(pool.name(), both(present(None), Self::new_tops(devices, None)));
        for (name, bias) in CLASSES {
            let (old, new) = (present(Some(bias)), Self::new_tops(devices, Some(bias)));
            layout.section(name, both(old, new));
        }
        for (name, kind, new) in [
            ("cache", AuxiliaryKind::Cache, &devices.caches),
            ("spares", AuxiliaryKind::Spare, &devices.spares),
        ] {
            let new = new.iter().map(|device| line(1, shown(device))).collect();
            layout.section(name, both(auxiliary(kind), new));
        }
        layout
    }

    fn new_tops(devices: &VdevSpec<NewDevice>, bias: Option<AllocationBias>) -> Vec<LayoutLine> {
        let mut lines = Vec::new();
        for top in devices.tops.iter().filter(|top| top.bias == bias) {
            let group = group(top);
            let depth = if group.is_some() { 2 } else { 1 };
            lines.extend(group.map(|name| line(1, name)));
            lines.extend(top.devices.iter().map(|device| line(depth, shown(device))));
        }
        lines
    }

    /// Adds a heading with its lines, if there are any.
    fn section(&mut self, name: &str, lines: Vec<LayoutLine>) {
        if !lines.is_empty() {
            self.lines.push(line(0, name.to_owned()));
            self.lines.extend(lines);
        }
    }
}

const fn line(depth: u32, name: String) -> LayoutLine {
    LayoutLine { depth, name }
}

/// A vdev of the pool and those below it.
fn below(vdev: Vdev<'_>, depth: u32) -> Vec<LayoutLine> {
    let name = match vdev.kind().is_device() {
        true => path(&vdev.own_config()),
        false => vdev.name().to_owned(),
    };
    let children = vdev.children().flat_map(|child| below(child, depth + 1));
    std::iter::once(line(depth, name)).chain(children).collect()
}

/// The name of a vdev with children; it has no number yet.
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
    short(device.kind, &device.path)
}

/// The same for a vdev of the pool.
fn path(vdev: &VdevConfig) -> String {
    match &vdev.hints.path {
        Some(path) => short(vdev.kind, &path.to_text()),
        None => vdev.guid.to_string(),
    }
}

fn short(kind: VdevKind, path: &str) -> String {
    let name = path.strip_prefix("/dev/").filter(|_| kind == VdevKind::Disk);
    name.unwrap_or(path).to_owned()
}
