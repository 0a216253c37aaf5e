//! Hot spares and cache devices: vdevs outside the tree (spec 01, section 4.4).

use super::attributes::Attributes;
use super::error::PoolError;
use crate::mos::packed_list;
use rzfs_blockdev::BlockDevice;
use rzfs_dmu::Objset;
use rzfs_format::FormatError;
use rzfs_format::nvlist::NvList;
use rzfs_vdev::{VdevConfig, VdevTree};
use std::sync::Arc;

/// The role of an auxiliary vdev.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum AuxiliaryKind {
    /// A hot spare.
    Spare,
    /// A cache device.
    Cache,
}

impl AuxiliaryKind {
    /// The name in the object directory, and the key of the list in it.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Spare => "spares",
            Self::Cache => "l2cache",
        }
    }
}

/// State of an auxiliary vdev.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuxiliaryState {
    /// Its device is present.
    Available,
    /// It is a spare in use for a device of this pool.
    InUse,
    /// Its device was not found, or has other contents now.
    Unavailable,
}

/// A hot spare or cache device of a pool.
#[derive(Clone, Debug)]
pub struct AuxiliaryVdev {
    /// Its role.
    pub kind: AuxiliaryKind,
    /// Its configuration, with the path at which it was found.
    pub config: VdevConfig,
    /// Its device, if it was found.
    pub device: Option<Arc<dyn BlockDevice>>,
    /// Whether it can be used.
    pub state: AuxiliaryState,
}

impl AuxiliaryVdev {
    /// The auxiliary vdev of a configuration, in a pool with this tree.
    pub(crate) fn new(
        kind: AuxiliaryKind,
        config: VdevConfig,
        device: Option<Arc<dyn BlockDevice>>,
        tree: &VdevTree,
    ) -> Self {
        let in_use = kind == AuxiliaryKind::Spare && tree.by_guid(config.guid).is_some();
        let state = match (in_use, &device) {
            (true, _) => AuxiliaryState::InUse,
            (false, Some(_)) => AuxiliaryState::Available,
            // A distributed spare has no device of its own.
            (false, None) if !config.kind.is_device() => AuxiliaryState::Available,
            (false, None) => AuxiliaryState::Unavailable,
        };
        Self { kind, config, device, state }
    }
}

/// Reads the configurations of a pool's auxiliary vdevs of one kind.
pub(crate) fn read_configs(
    mos: &Objset,
    directory: &Attributes,
    kind: AuxiliaryKind,
) -> Result<Vec<VdevConfig>, PoolError> {
    let Some(object) = directory.object(kind.key())? else { return Ok(Vec::new()) };
    let corrupt = PoolError::corrupt(object);
    let list = packed_list::read(mos, object)?;
    let configs = list.find_lists(kind.key()).map_err(&corrupt)?.unwrap_or_default();
    (0..).zip(configs).map(|(position, config)| vdev(position, config).map_err(&corrupt)).collect()
}

/// Decodes the configuration of an auxiliary vdev; unlike those in the tree it has no position.
fn vdev(position: u64, list: &NvList) -> Result<VdevConfig, FormatError> {
    let mut list = list.clone();
    list.insert("id", position)?;
    VdevConfig::from_nvlist(&list)
}
