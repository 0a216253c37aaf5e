//! What the labels on a device say about who uses it (spec 01, section 1.6; spec 09).

use rzfs_blockdev::{BlockDevice, read_exact_at};
use rzfs_codec::checksum::{EmbeddedVerifier, verify_embedded};
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::config::LabelConfig;
use rzfs_format::label::{
    self, CONFIG_OFFSET, CONFIG_SIZE, LabelIndex, LeafSize, RING_OFFSET, RING_SIZE, UberblockRing,
};
use rzfs_format::pool_state::PoolState;
use rzfs_format::uberblock::Uberblock;
use rzfs_format::{Guid, Txg};

/// A label with a configuration that makes sense.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundLabel {
    /// Which of the four.
    pub index: LabelIndex,
    /// The configuration.
    pub config: LabelConfig,
    /// Whether its checksum is right.
    pub is_verified: bool,
}

/// The labels of a device with a configuration that makes sense, in their order. What cannot be
/// read is no label.
#[must_use]
pub fn find_labels(device: &dyn BlockDevice) -> Vec<FoundLabel> {
    let Some(size) = LeafSize::of_device(device.geometry().size) else { return Vec::new() };
    let found = LabelIndex::ALL.into_iter().filter_map(|index| {
        let offset = size.label_offset(index).saturating_add(CONFIG_OFFSET);
        let block = read_exact_at(device, offset, CONFIG_SIZE).ok()?;
        let config = LabelConfig::from_list(&label::decode_config(&block).ok()?).ok()?;
        let verifier = EmbeddedVerifier::Label { offset };
        let is_verified = verify_embedded(ChecksumFunction::Label, &block, verifier).is_ok();
        Some(FoundLabel { index, config, is_verified })
    });
    found.collect()
}

/// Whether a device answers when it is asked for any of its labels, whatever is there.
pub(crate) fn answers(device: &dyn BlockDevice) -> bool {
    let Some(size) = LeafSize::of_device(device.geometry().size) else { return false };
    let is_read = |index| {
        let offset = size.label_offset(index).saturating_add(CONFIG_OFFSET);
        read_exact_at(device, offset, CONFIG_SIZE).is_ok()
    };
    device.is_reachable() && LabelIndex::ALL.into_iter().any(is_read)
}

/// Txg of the newest uberblock in the rings of a device, 0 if there is none; `None` unless all of
/// each label can be read.
pub(crate) fn newest_uberblock(device: &dyn BlockDevice, ring: UberblockRing) -> Option<Txg> {
    let size = LeafSize::of_device(device.geometry().size)?;
    let mut newest = Txg(0);
    for index in LabelIndex::ALL {
        let label = size.label_offset(index);
        read_exact_at(device, label.saturating_add(CONFIG_OFFSET), CONFIG_SIZE).ok()?;
        let start = label.saturating_add(RING_OFFSET);
        let block = read_exact_at(device, start, RING_SIZE).ok()?;
        let slots = (start..).step_by(ring.slot_size()).zip(block.chunks_exact(ring.slot_size()));
        let txgs = slots.filter_map(|(offset, slot)| {
            let (uberblock, _) = Uberblock::decode(slot).ok()?;
            let verifier = EmbeddedVerifier::Label { offset };
            verify_embedded(ChecksumFunction::Label, slot, verifier).ok()?;
            Some(uberblock.txg)
        });
        newest = txgs.fold(newest, Txg::max);
    }
    Some(newest)
}

/// A pool as a label names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LabelPool {
    /// Its name.
    pub name: String,
    /// Its guid.
    pub guid: Guid,
}

/// What a pool has done with one of its devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolUse {
    /// The pool is imported, here or elsewhere, or its machine has crashed.
    Active,
    /// It was exported.
    Exported,
    /// It was destroyed; the device is free, and the pool could be brought back with it.
    Destroyed,
}

/// Who uses a device, as its labels say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DeviceUse {
    /// It has no label.
    Unlabelled,
    /// It is part of a pool.
    Member {
        /// The pool.
        pool: LabelPool,
        /// What the pool has done with it.
        state: PoolUse,
        /// The device in the pool.
        guid: Guid,
    },
    /// It is a hot spare.
    Spare(Guid),
    /// It is a cache device.
    Cache(Guid),
}

impl DeviceUse {
    /// Who uses a device: what its newest label says, and a right checksum counts more than age.
    #[must_use]
    pub fn of(device: &dyn BlockDevice) -> Self {
        Self::from_labels(&find_labels(device))
    }

    /// Who uses a device with these labels.
    #[must_use]
    pub fn from_labels(labels: &[FoundLabel]) -> Self {
        let age = |label: &&FoundLabel| {
            let txg = label.config.member().map_or(Txg(0), |member| member.pool.txg);
            (label.is_verified, txg)
        };
        match labels.iter().max_by_key(age).map(|label| &label.config) {
            None => Self::Unlabelled,
            Some(LabelConfig::Auxiliary(label)) => match label.state {
                PoolState::L2Cache => Self::Cache(label.guid),
                _ => Self::Spare(label.guid),
            },
            Some(LabelConfig::Member(label)) => Self::Member {
                pool: LabelPool { name: label.pool.name.clone(), guid: label.pool.guid },
                state: match label.pool.state {
                    PoolState::Exported => PoolUse::Exported,
                    PoolState::Destroyed => PoolUse::Destroyed,
                    _ => PoolUse::Active,
                },
                guid: label.guid,
            },
        }
    }
}
