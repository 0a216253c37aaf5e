//! Checks that the device of a leaf matches the configuration (spec 01, section 9.5).

use super::discovery::DeviceSet;
use super::label_scan::{LabelTrust, LabelledDevice};
use rzfs_blockdev::BlockDevice;
use rzfs_format::config::LabelConfig;
use rzfs_format::{Guid, Txg};
use rzfs_vdev::{AuxReason, LeafDevices, VdevConfig};
use std::collections::HashMap;
use std::sync::Arc;

/// The source of the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// From labels: ids and guids may be old.
    Untrusted,
    /// From the MOS.
    Trusted,
}

/// What labels are checked against.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) pool: Guid,
    pub(super) stage: Stage,
    /// Labels younger than the chosen uberblock do not count.
    pub(super) newest: Option<Txg>,
    pub(super) trust: LabelTrust,
}

/// For each leaf of a configuration its validated device, or why there is none.
pub(super) struct ValidatedLeaves {
    by_guid: HashMap<Guid, Result<Arc<dyn BlockDevice>, AuxReason>>,
}

impl LeafDevices for ValidatedLeaves {
    fn device(&self, leaf: &VdevConfig) -> Result<Arc<dyn BlockDevice>, AuxReason> {
        self.by_guid.get(&leaf.guid).cloned().unwrap_or(Err(AuxReason::OpenFailed))
    }
}

impl ValidatedLeaves {
    /// Finds and validates the devices for all leaves below `root`.
    pub(super) fn find(root: &VdevConfig, devices: &DeviceSet, rules: Rules) -> Self {
        let mut validated = Self { by_guid: HashMap::new() };
        for top in &root.children {
            validated.add(top, top, devices, rules);
        }
        validated
    }

    fn add(&mut self, vdev: &VdevConfig, top: &VdevConfig, devices: &DeviceSet, rules: Rules) {
        if vdev.kind.is_device() {
            let leaf = Leaf { config: vdev, top };
            self.by_guid.insert(vdev.guid, leaf.find(devices, rules));
        }
        for child in &vdev.children {
            self.add(child, top, devices, rules);
        }
    }
}

struct Leaf<'a> {
    config: &'a VdevConfig,
    top: &'a VdevConfig,
}

impl Leaf<'_> {
    /// The first device that validates; if none does, the error of the preferred one.
    fn find(&self, devices: &DeviceSet, rules: Rules) -> Result<Arc<dyn BlockDevice>, AuxReason> {
        let remembered = self.config.hints.path.as_ref().map(|path| path.as_bytes());
        let preferred = devices.preferred(self.config.guid, remembered);
        let original = self.config.leaf.original_guid;
        let candidates = preferred
            .into_iter()
            .chain(devices.with_guid(self.config.guid))
            .chain(original.into_iter().flat_map(|guid| devices.with_guid(guid)))
            .chain(devices.with_top_guid(self.config.guid))
            .chain(devices.with_guid(self.top.guid));
        let mut problem = None;
        for device in candidates {
            match self.validate(device, rules) {
                Ok(()) => return Ok(Arc::clone(&device.device)),
                Err(aux) => problem = problem.or(Some(aux)),
            }
        }
        Err(problem.unwrap_or(AuxReason::OpenFailed))
    }

    fn validate(&self, device: &LabelledDevice, rules: Rules) -> Result<(), AuxReason> {
        let label = match device.newest(rules.trust, rules.newest) {
            None => return Err(AuxReason::BadLabel),
            Some(LabelConfig::Auxiliary(_)) => return Err(AuxReason::CorruptData),
            Some(LabelConfig::Member(label)) => label,
        };
        if label.pool.split_guid == Some(rules.pool) {
            return Err(AuxReason::SplitPool);
        }
        if label.pool.guid != rules.pool {
            return Err(AuxReason::CorruptData);
        }
        let (leaf, top) = (self.config.guid, self.top.guid);
        let same = label.guid == leaf || Some(label.guid) == self.config.leaf.original_guid;
        // A crash while a mirror was made of a disk, or a disk of a mirror, leaves labels in
        // which the guids of the leaf and of the mirror are not those of the configuration. Then
        // only the path tells which side of the mirror it is.
        let converted = match rules.stage {
            Stage::Trusted => leaf == top && leaf == label.top_guid,
            Stage::Untrusted => leaf == label.top_guid || top == label.guid,
        };
        if same || converted && self.is_at_path(device) {
            Ok(())
        } else {
            Err(AuxReason::CorruptData)
        }
    }

    fn is_at_path(&self, device: &LabelledDevice) -> bool {
        let path = self.config.hints.path.as_ref().map(|path| path.as_bytes());
        device.paths.iter().any(|known| Some(known.as_bytes()) == path)
    }
}
