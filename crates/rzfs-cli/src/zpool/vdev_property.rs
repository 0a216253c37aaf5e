//! Properties of vdevs (spec 09, section 5.3).

use super::config_tree::word;
use super::vdev_name::NameStyle;
use crate::property::Precision;
use rzfs_format::property::VdevProperty;
use rzfs_server::protocol::{
    PoolReport, PropertyReport, PropertySource, PropertyValue, VdevReport,
};

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

impl NamedVdev<'_> {
    /// A property.
    pub(super) fn property(&self, property: VdevProperty, precision: Precision) -> PropertyReport {
        let (value, source) = self.value(property, precision);
        PropertyReport { name: property.to_string(), value, source, received: None }
    }

    fn value(
        &self,
        property: VdevProperty,
        precision: Precision,
    ) -> (PropertyValue, PropertySource) {
        use PropertyValue::{Number, Text, Unset};
        let vdev = self.vdev;
        let counts = &vdev.statistics;
        // Space is accounted by top-level vdev and for the pool.
        let accounted = self.is_top || self.parent.is_none();
        let space = |bytes: u64| Number(if accounted { bytes } else { 0 });
        let text = |text: &str| Text(text.to_owned());
        let names = |list: Vec<String>| match list.is_empty() {
            true => Unset,
            false => Text(list.join(",")),
        };
        let value = match property {
            VdevProperty::Name => text(&self.name),
            VdevProperty::Capacity if accounted => {
                Number(counts.allocated.saturating_mul(100).checked_div(counts.space).unwrap_or(0))
            }
            VdevProperty::Capacity => Number(0),
            VdevProperty::State if precision == Precision::Exact => {
                Number(vdev.health.state as u64)
            }
            VdevProperty::State => Text(word(vdev)),
            VdevProperty::Guid => Number(vdev.guid),
            VdevProperty::Asize => Number(vdev.asize),
            VdevProperty::Psize => Number(counts.physical_size),
            VdevProperty::Ashift => Number(vdev.ashift),
            VdevProperty::Size => space(counts.space),
            VdevProperty::Free => space(counts.space.saturating_sub(counts.allocated)),
            VdevProperty::Allocated => space(counts.allocated),
            VdevProperty::ExpandSize => {
                Some(counts.expandable_size).filter(|b| *b > 0).map_or(Unset, Number)
            }
            VdevProperty::Fragmentation => counts.fragmentation.map_or(Unset, Number),
            VdevProperty::Parity => Number(vdev.parity),
            VdevProperty::Path => vdev.path.as_deref().map_or(Unset, text),
            VdevProperty::Parent => self.parent.as_deref().map_or(Unset, text),
            VdevProperty::Children => {
                let style = NameStyle::default();
                names(vdev.children.iter().map(|child| style.name(child)).collect())
            }
            VdevProperty::NumChildren => Number(vdev.children.len() as u64),
            VdevProperty::ReadErrors => Number(counts.read_errors),
            VdevProperty::WriteErrors => Number(counts.write_errors),
            VdevProperty::ChecksumErrors => Number(counts.checksum_errors),
            VdevProperty::ReadOps => Number(counts.reads),
            VdevProperty::ReadBytes => Number(counts.bytes_read),
            VdevProperty::SlowIos => Number(counts.slow_ios.unwrap_or(0)),
            VdevProperty::Removing => text("off"),
            VdevProperty::Allocating if accounted => text("on"),
            VdevProperty::Failfast => text("on"),
            VdevProperty::TrimSupport if vdev.children.is_empty() => text("on"),
            VdevProperty::NullOps
            | VdevProperty::WriteOps
            | VdevProperty::FreeOps
            | VdevProperty::ClaimOps
            | VdevProperty::TrimOps
            | VdevProperty::NullBytes
            | VdevProperty::WriteBytes
            | VdevProperty::FreeBytes
            | VdevProperty::ClaimBytes
            | VdevProperty::TrimBytes => Number(0),
            VdevProperty::BootSize | VdevProperty::InitializeErrors | VdevProperty::TrimErrors => {
                Number(0)
            }
            _ => Unset,
        };
        let source = match property {
            VdevProperty::Allocating if !accounted => PropertySource::None,
            VdevProperty::BootSize | VdevProperty::Allocating | VdevProperty::Failfast => {
                PropertySource::Default
            }
            VdevProperty::Capacity | VdevProperty::TrimSupport | VdevProperty::ExpandSize => {
                PropertySource::None
            }
            _ if value == Unset => PropertySource::Default,
            _ => PropertySource::None,
        };
        (value, source)
    }
}
