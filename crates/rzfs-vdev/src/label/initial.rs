//! Labels of leaves that join or leave a pool (spec 01, sections 1.7 and 11.1; spec 07,
//! section 12.5).
//!
//! A leaf that joins gets all of its labels before the first uberblock that includes it. Until then
//! its configuration has txg 0, so that it does not count as part of a pool, and `create_txg`, by
//! which a device that was named twice is recognised.

use super::LabelError;
use super::blocks::{self, ConfigBlock};
use super::io::{self, LabelWrite};
use crate::tree::{Vdev, VdevTree};
use rzfs_blockdev::BlockDevice;
use rzfs_format::config::{AuxiliaryLabel, LabelledLeaf, PoolConfig};
use rzfs_format::label::{BOOT_ENV_OFFSET, CONFIG_OFFSET, LabelIndex, LeafSize, RING_OFFSET};
use rzfs_format::nvlist::NvList;
use rzfs_format::uberblock::Uberblock;
use rzfs_format::{Guid, Txg};
use std::sync::Arc;

/// Devices labelled together; bounds the memory to 8 MiB.
const DEVICES_AT_ONCE: usize = 16;

/// The labels at the ends of devices, which are written first, and those at the beginnings.
const HALVES: [[LabelIndex; 2]; 2] =
    [[LabelIndex::ALL[2], LabelIndex::ALL[3]], [LabelIndex::ALL[0], LabelIndex::ALL[1]]];

/// A label, and the device that it is for.
pub type LabelledDevice = (NewLabel, Arc<dyn BlockDevice>);

/// All four labels of a leaf, written from scratch.
#[derive(Clone, Debug)]
pub struct NewLabel {
    leaf: Guid,
    version: u64,
    config: ConfigBlock,
}

impl NewLabel {
    /// The label of a leaf that will join a pool in `create_txg`. The vdevs are those of the tree;
    /// the txg is 0 regardless of `pool`.
    ///
    /// # Errors
    /// [`LabelError::TooLarge`] and [`LabelError::Format`].
    pub fn of_leaf(
        pool: &PoolConfig,
        tree: &VdevTree,
        leaf: Vdev<'_>,
        create_txg: Txg,
    ) -> Result<Self, LabelError> {
        let place = LeafPlace::of(leaf);
        Self::of_nobody(pool, tree, leaf.top_level().unwrap_or(leaf), place, create_txg)
    }

    /// The label of a former leaf of `top`, or of the vdev that replaced it: removed, detached,
    /// replaced.
    ///
    /// # Errors
    /// [`LabelError::TooLarge`] and [`LabelError::Format`].
    pub fn of_former_leaf(
        pool: &PoolConfig,
        tree: &VdevTree,
        top: Vdev<'_>,
        leaf: Guid,
    ) -> Result<Self, LabelError> {
        let place = LeafPlace { guid: leaf, is_spare: false, is_log: false };
        Self::of_nobody(pool, tree, top, place, Txg(0))
    }

    fn of_nobody(
        pool: &PoolConfig,
        tree: &VdevTree,
        top: Vdev<'_>,
        place: LeafPlace,
        create_txg: Txg,
    ) -> Result<Self, LabelError> {
        let pool = PoolConfig { txg: Txg(0), ..pool.clone() };
        let config = tree.label_config(&pool, top, place, Some(create_txg))?;
        let config = ConfigBlock::new(place.guid, &config)?;
        Ok(Self { leaf: place.guid, version: pool.version, config })
    }

    /// The label of a hot spare or cache device.
    ///
    /// # Errors
    /// [`LabelError::TooLarge`] and [`LabelError::Format`].
    pub fn of_auxiliary(label: &AuxiliaryLabel) -> Result<Self, LabelError> {
        let config = ConfigBlock::new(label.guid, &label.to_list()?)?;
        Ok(Self { leaf: label.guid, version: label.version, config })
    }

    /// The guid of the device in the label.
    #[must_use]
    pub const fn leaf(&self) -> Guid {
        self.leaf
    }

    /// Writes all four labels of these devices, durably: configuration, an empty boot environment
    /// and a ring without a usable uberblock. The first 8 KiB of each label are kept. `present` is
    /// the pool's current uberblock; a new pool has none.
    ///
    /// The labels at the ends of all devices come first: if one of these cannot be written, those
    /// at the beginnings still describe the former contents, and a pool on them can be imported.
    ///
    /// # Errors
    /// The first part that could not be written; then some parts may be written.
    pub fn write_all(
        labels: &[LabelledDevice],
        present: Option<&Uberblock>,
    ) -> Result<(), LabelError> {
        for (_, device) in labels {
            leaf_size(device)?;
        }
        for half in HALVES {
            for batch in labels.chunks(DEVICES_AT_ONCE) {
                let mut writes = Vec::new();
                for (label, device) in batch {
                    label.parts(half, device, present, &mut writes)?;
                }
                io::write(writes).into_iter().collect::<Result<(), _>>()?;
                let devices = batch.iter().map(|(_, device)| device);
                io::flush(devices).into_iter().collect::<Result<(), _>>()?;
            }
        }
        Ok(())
    }

    fn parts<'a>(
        &self,
        half: [LabelIndex; 2],
        device: &'a Arc<dyn BlockDevice>,
        present: Option<&Uberblock>,
        writes: &mut Vec<LabelWrite<'a>>,
    ) -> Result<(), LabelError> {
        let size = leaf_size(device)?;
        for label in half {
            let at = |part: u64| size.label_offset(label).saturating_add(part);
            let (config, ring, boot) = (at(CONFIG_OFFSET), at(RING_OFFSET), at(BOOT_ENV_OFFSET));
            for (offset, block) in [
                (config, self.config.at(config)),
                (ring, blocks::new_ring(self.version, present, ring)),
                (boot, blocks::empty_boot_environment(boot)),
            ] {
                writes.push(LabelWrite { device, offset, block });
            }
        }
        Ok(())
    }
}

/// The size of a device that is to be a leaf.
fn leaf_size(device: &Arc<dyn BlockDevice>) -> Result<LeafSize, LabelError> {
    let size = LeafSize::of_device(device.geometry().size);
    size.ok_or_else(|| LabelError::TooSmall { device: device.name().into() })
}

/// The leaf's own fields in a label.
#[derive(Clone, Copy)]
pub(super) struct LeafPlace {
    guid: Guid,
    is_spare: bool,
    is_log: bool,
}

impl LeafPlace {
    pub(super) fn of(leaf: Vdev<'_>) -> Self {
        let is_set = |flag: Option<u64>| flag.is_some_and(|value| value != 0);
        let own = leaf.own_config();
        let (is_spare, is_log) = (is_set(own.flags.is_spare), is_set(own.top.is_log));
        Self { guid: leaf.guid(), is_spare, is_log }
    }
}

impl VdevTree {
    /// The configuration in the label of a leaf.
    pub(super) fn label_config(
        &self,
        pool: &PoolConfig,
        top: Vdev<'_>,
        leaf: LeafPlace,
        create_txg: Option<Txg>,
    ) -> Result<NvList, LabelError> {
        let pool = PoolConfig {
            vdev_tree: top.config_to_store().to_label_nvlist()?,
            vdev_children: Some(self.top_levels().count() as u64),
            holes: self.holes(),
            ..pool.clone()
        };
        let LeafPlace { guid, is_spare, is_log } = leaf;
        let top_guid = top.guid();
        Ok(pool.to_label(&LabelledLeaf { top_guid, guid, is_spare, is_log, create_txg })?)
    }

    /// Prepares the leaves of new top-level vdevs, or of all: every label is written, durably,
    /// before an uberblock includes the vdevs (spec 01, section 11.1). `present` is the pool's
    /// current uberblock; a new pool has none.
    ///
    /// # Errors
    /// The first label that could not be written; the pool must then not add the vdevs.
    pub fn write_new_labels<'v>(
        &self,
        pool: &PoolConfig,
        tops: impl IntoIterator<Item = Vdev<'v>>,
        present: Option<&Uberblock>,
        create_txg: Txg,
    ) -> Result<(), LabelError> {
        NewLabel::write_all(&self.new_labels(pool, tops, create_txg)?, present)
    }

    /// The labels of the leaves of new top-level vdevs, with their devices.
    pub(crate) fn new_labels<'v>(
        &self,
        pool: &PoolConfig,
        tops: impl IntoIterator<Item = Vdev<'v>>,
        create_txg: Txg,
    ) -> Result<Vec<LabelledDevice>, LabelError> {
        let mut labels = Vec::new();
        for top in tops {
            for leaf in top.leaves_below() {
                if let Some(device) = leaf.device() {
                    let label = NewLabel::of_leaf(pool, self, leaf, create_txg)?;
                    labels.push((label, device));
                }
            }
        }
        Ok(labels)
    }
}
