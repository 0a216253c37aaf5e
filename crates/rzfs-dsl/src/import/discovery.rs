//! Which pools the devices belong to (spec 01, sections 9.2 and 9.3).
//!
//! A label describes one top-level vdev only. The labels of all devices are grouped by pool and by
//! top-level vdev, the newest of each is taken, and together they make the *untrusted*
//! configuration: good enough to find the newest uberblock, and with it the authoritative
//! configuration in the MOS.

use super::device_source::{self, DeviceSource};
use super::guid_change;
use super::label_scan::{self, LabelTrust, LabelledDevice};
use rzfs_blockdev::{OpenError, OpenOptions};
use rzfs_format::config::{MemberLabel, PoolConfig};
use rzfs_format::pool_state::PoolState;
use rzfs_format::{FormatError, Guid};
use rzfs_vdev::{VdevConfig, VdevKind};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

/// All devices with labels that a scan found.
#[derive(Debug, Default)]
pub(crate) struct DeviceSet {
    devices: Vec<LabelledDevice>,
    by_guid: HashMap<Guid, Vec<usize>>,
    by_top_guid: HashMap<Guid, Vec<usize>>,
}

impl DeviceSet {
    fn new(devices: Vec<LabelledDevice>) -> Self {
        let mut set = Self { devices, ..Self::default() };
        for (index, device) in set.devices.iter().enumerate() {
            if let Some(guid) = device.guid() {
                set.by_guid.entry(guid).or_default().push(index);
            }
            let newest = device.newest(LabelTrust::Unverified, None);
            if let Some(member) = newest.and_then(|label| label.member()) {
                set.by_top_guid.entry(member.top_guid).or_default().push(index);
            }
        }
        set
    }

    /// Devices whose labels have this guid, in the order of the search.
    pub(super) fn with_guid(&self, guid: Guid) -> impl Iterator<Item = &LabelledDevice> {
        self.select(self.by_guid.get(&guid))
    }

    /// Devices whose labels say that they belong to this top-level vdev.
    pub(super) fn with_top_guid(&self, guid: Guid) -> impl Iterator<Item = &LabelledDevice> {
        self.select(self.by_top_guid.get(&guid))
    }

    fn select(&self, indices: Option<&Vec<usize>>) -> impl Iterator<Item = &LabelledDevice> {
        indices.into_iter().flatten().filter_map(|index| self.devices.get(*index))
    }

    /// The device to use for a guid: the one at the remembered path, else the one with the most
    /// good labels, else the first found.
    pub(super) fn preferred(&self, guid: Guid, path: Option<&[u8]>) -> Option<&LabelledDevice> {
        let at_path = |device: &&LabelledDevice| {
            path.is_some_and(|path| device.paths.iter().any(|known| known.as_bytes() == path))
        };
        let good = |device: &LabelledDevice| {
            device.labels.iter().filter(|label| label.trust == LabelTrust::Verified).count()
        };
        self.with_guid(guid).find(at_path).or_else(|| {
            // The last of several maxima wins, so the search goes backwards.
            let indices = self.by_guid.get(&guid)?;
            let devices = indices.iter().rev().filter_map(|index| self.devices.get(*index));
            devices.max_by_key(|device| good(device))
        })
    }

    /// Replaces the paths in a configuration by those of the devices found.
    pub(super) fn fix_paths(&self, config: &mut VdevConfig) {
        if config.kind.is_device() {
            let remembered = config.hints.path.as_ref().map(|path| path.as_bytes());
            let device = self.preferred(config.guid, remembered);
            if let Some(path) = device.and_then(|device| device.path(remembered)) {
                config.hints.path = path.try_into().ok();
            }
        }
        config.children.iter_mut().for_each(|child| self.fix_paths(child));
    }
}

/// The result of a search for pools.
#[derive(Debug)]
pub struct Discovery {
    pools: Vec<DiscoveredPool>,
    unopened: Vec<OpenError>,
    damaged: Vec<(Guid, FormatError)>,
}

/// A pool whose labels were found. Only their checksums are verified so far.
#[derive(Clone, Debug)]
pub struct DiscoveredPool {
    /// The pool's entries in its newest label.
    pub(super) label: PoolConfig,
    /// The tree described by the labels.
    pub(super) vdevs: VdevConfig,
    pub(super) devices: Arc<DeviceSet>,
}

impl DiscoveredPool {
    /// The name in the labels.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.label.name
    }

    /// The guid.
    #[must_use]
    pub fn guid(&self) -> Guid {
        self.label.guid
    }

    /// Whether it was exported, destroyed, or left active.
    #[must_use]
    pub fn state(&self) -> PoolState {
        self.label.state
    }

    /// The pool's entries in its newest label.
    #[must_use]
    pub fn label(&self) -> &PoolConfig {
        &self.label
    }

    /// Paths of its devices, and of all spares and cache devices: their labels do not say which
    /// pool they belong to.
    #[must_use]
    pub fn device_paths(&self) -> Vec<PathBuf> {
        self.paths_of(|pool| pool.is_none_or(|guid| guid == self.label.guid))
    }

    /// Paths of the devices whose labels say that they belong to it.
    #[must_use]
    pub fn member_paths(&self) -> Vec<PathBuf> {
        self.paths_of(|pool| pool == Some(self.label.guid))
    }

    /// Paths of devices, selected by the pool named in their labels.
    fn paths_of(&self, is_wanted: impl Fn(Option<Guid>) -> bool) -> Vec<PathBuf> {
        let is_wanted = |device: &&LabelledDevice| {
            let newest = device.newest(LabelTrust::Unverified, None);
            is_wanted(newest.and_then(|label| label.member()).map(|member| member.pool.guid))
        };
        let devices = self.devices.devices.iter().filter(is_wanted);
        devices.filter_map(|device| device.path(None)).map(PathBuf::from).collect()
    }
}

impl Discovery {
    /// Searches the sources for devices with labels, opened with `options`; devices in directories
    /// that cannot be opened are skipped.
    #[must_use]
    pub fn search(sources: &[DeviceSource], options: &OpenOptions) -> Self {
        let (candidates, unopened) = device_source::open(sources, options);
        let mut devices = label_scan::scan(candidates);
        guid_change::settle(&mut devices);
        let devices = Arc::new(DeviceSet::new(devices));
        let mut members: BTreeMap<Guid, Vec<&MemberLabel>> = BTreeMap::new();
        for device in &devices.devices {
            let verified = device.newest(LabelTrust::Verified, None);
            let label = verified.or_else(|| device.newest(LabelTrust::Unverified, None));
            if let Some(label) = label.and_then(|label| label.member()) {
                members.entry(label.pool.guid).or_default().push(label);
            }
        }
        let (mut pools, mut damaged) = (Vec::new(), Vec::new());
        for (guid, labels) in members {
            match assemble(guid, &labels) {
                Ok((label, mut vdevs)) => {
                    devices.fix_paths(&mut vdevs);
                    pools.push(DiscoveredPool { label, vdevs, devices: Arc::clone(&devices) });
                }
                Err(error) => damaged.push((guid, error)),
            }
        }
        pools.sort_by(|a, b| (a.name(), a.guid()).cmp(&(b.name(), b.guid())));
        Self { pools, unopened, damaged }
    }

    /// The pools by name.
    #[must_use]
    pub fn pools(&self) -> &[DiscoveredPool] {
        &self.pools
    }

    /// Sources, or devices named explicitly, that could not be opened.
    #[must_use]
    pub fn unopened(&self) -> &[OpenError] {
        &self.unopened
    }

    /// Pools whose labels contradict the format, by guid.
    #[must_use]
    pub fn damaged(&self) -> &[(Guid, FormatError)] {
        &self.damaged
    }

    /// The pools with this name, or with this guid.
    pub fn matching<'a>(&'a self, name_or_guid: &str) -> impl Iterator<Item = &'a DiscoveredPool> {
        let guid = name_or_guid.parse().ok().map(Guid);
        self.pools
            .iter()
            .filter(move |pool| pool.name() == name_or_guid || Some(pool.guid()) == guid)
    }
}

/// The untrusted configuration from the labels of a pool's devices.
fn assemble(guid: Guid, labels: &[&MemberLabel]) -> Result<(PoolConfig, VdevConfig), FormatError> {
    let newest = labels.iter().max_by_key(|label| label.pool.txg);
    let newest = &newest.ok_or(FormatError::invalid("pool", "it has no labels"))?.pool;
    let mut newest_of_top: BTreeMap<Guid, &MemberLabel> = BTreeMap::new();
    for label in labels {
        let known = newest_of_top.entry(label.top_guid).or_insert(label);
        if label.pool.txg > known.pool.txg {
            *known = label;
        }
    }
    let mut by_id: BTreeMap<u64, (&MemberLabel, VdevConfig)> = BTreeMap::new();
    for label in newest_of_top.into_values() {
        let tree = VdevConfig::from_nvlist(&label.pool.vdev_tree)?;
        let in_range = newest.vdev_children.is_none_or(|count| tree.id < count);
        let newer = |known: &(&MemberLabel, _)| label.pool.txg > known.0.pool.txg;
        if in_range && by_id.get(&tree.id).is_none_or(newer) {
            by_id.insert(tree.id, (label, tree));
        }
    }
    let last = by_id.last_key_value().map_or(0, |(id, _)| id.saturating_add(1));
    let count = newest.vdev_children.unwrap_or(last);
    if count > rzfs_format::config::MAX_TOP_LEVELS {
        return Err(FormatError::field("pool", "number of top-level vdevs", count));
    }
    let tops = (0..count).map(|id| match by_id.remove(&id) {
        Some((_, tree)) => tree,
        None if newest.holes.contains(&id) => VdevConfig::new(VdevKind::Hole, Guid(0)),
        None => VdevConfig::new(VdevKind::Missing, Guid(0)),
    });
    let root = VdevConfig::new(VdevKind::Root, guid).with_children(tops);
    Ok((newest.clone(), root))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_format::Txg;
    use rzfs_format::config::LastHost;
    use rzfs_format::nvlist::NvList;

    fn label(txg: u64, id: u64, top_guid: u64, children: Option<u64>) -> MemberLabel {
        let mut tree = VdevConfig::new(VdevKind::Disk, Guid(top_guid));
        tree.id = id;
        MemberLabel {
            pool: PoolConfig {
                version: 5000,
                name: format!("txg{txg}"),
                state: PoolState::Active,
                txg: Txg(txg),
                guid: Guid(1),
                errata: None,
                comment: None,
                compatibility: None,
                host: LastHost::default(),
                vdev_children: children,
                holes: vec![1],
                split_guid: None,
                features_for_read: None,
                vdev_tree: tree.to_nvlist().unwrap(),
            },
            guid: Guid(top_guid),
            top_guid: Guid(top_guid),
            is_spare: false,
        }
    }

    fn kinds(labels: &[MemberLabel]) -> (String, Vec<(VdevKind, u64)>) {
        let labels: Vec<_> = labels.iter().collect();
        let (pool, root) = assemble(Guid(1), &labels).unwrap();
        assert_eq!((root.kind, root.guid), (VdevKind::Root, Guid(1)));
        let kinds = root.children.iter().map(|child| (child.kind, child.guid.get()));
        (pool.name, kinds.collect())
    }

    #[test]
    fn holes_and_missing_vdevs_fill_the_gaps() {
        let (name, kinds) = kinds(&[label(7, 0, 10, Some(4)), label(9, 3, 13, Some(4))]);
        assert_eq!(name, "txg9");
        let expected = [
            (VdevKind::Disk, 10),
            (VdevKind::Hole, 0),
            (VdevKind::Missing, 0),
            (VdevKind::Disk, 13),
        ];
        assert_eq!(kinds, expected);
    }

    #[test]
    fn stale_labels_lose_by_top_level_vdev_and_by_position() {
        let (_, same_vdev) = kinds(&[label(4, 2, 10, Some(1)), label(8, 0, 10, Some(1))]);
        assert_eq!(same_vdev, [(VdevKind::Disk, 10)]);
        let (_, same_place) = kinds(&[label(8, 0, 11, Some(1)), label(4, 0, 10, Some(1))]);
        assert_eq!(same_place, [(VdevKind::Disk, 11)]);
        let (_, removed) = kinds(&[label(4, 5, 10, Some(6)), label(8, 0, 11, Some(1))]);
        assert_eq!(removed, [(VdevKind::Disk, 11)]);
    }

    #[test]
    fn old_labels_without_a_count_reach_to_the_last_vdev() {
        let (_, kinds) = kinds(&[label(4, 2, 12, None), label(4, 0, 10, None)]);
        assert_eq!(kinds.len(), 3);
        let absurd = label(4, u64::MAX - 1, 12, None);
        assert!(assemble(Guid(1), &[&absurd]).is_err());
    }

    #[test]
    fn a_tree_that_is_no_vdev_is_an_error() {
        let mut bad = label(4, 0, 10, None);
        bad.pool.vdev_tree = NvList::new();
        assert!(assemble(Guid(1), &[&bad]).is_err());
    }
}
