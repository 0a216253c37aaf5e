//! The user of a device according to its labels (spec 01, section 1.6; spec 09).

use rzfs_blockdev::{BlockDevice, DeviceError, read_exact_at};
use rzfs_codec::checksum::{EmbeddedVerifier, verify_embedded};
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::config::LabelConfig;
use rzfs_format::label::{
    self, CONFIG_OFFSET, CONFIG_SIZE, LabelIndex, LeafSize, RING_OFFSET, RING_SIZE, UberblockRing,
};
use rzfs_format::pool_state::PoolState;
use rzfs_format::uberblock::Uberblock;
use rzfs_format::{ByteOrder, Guid, Txg};
use std::io::ErrorKind;

/// Bytes of the first word of a slot's trailer, from the end of the slot.
const TRAILER_MAGIC: usize = 40;

/// A label with a valid configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundLabel {
    /// Which of the four.
    pub index: LabelIndex,
    /// The configuration.
    pub config: LabelConfig,
    /// Whether its checksum is right.
    pub is_verified: bool,
}

impl FoundLabel {
    /// Decodes the configuration block of a label, which lies at `offset` of the device.
    fn decode(index: LabelIndex, offset: u64, block: &[u8]) -> Option<Self> {
        let config = LabelConfig::from_list(&label::decode_config(block).ok()?).ok()?;
        Some(Self { index, config, is_verified: verified_order(block, offset).is_some() })
    }
}

/// The labels of a device with valid configurations, in order. Unreadable ones are skipped.
#[must_use]
pub fn find_labels(device: &dyn BlockDevice) -> Vec<FoundLabel> {
    let Some(size) = LeafSize::of_device(device.geometry().size) else { return Vec::new() };
    let found = LabelIndex::ALL.into_iter().filter_map(|index| {
        let offset = size.label_offset(index).saturating_add(CONFIG_OFFSET);
        let block = read_exact_at(device, offset, CONFIG_SIZE).ok()?;
        FoundLabel::decode(index, offset, &block)
    });
    found.collect()
}

/// The byte order of a label block with its own checksum; `None` if that is wrong.
#[must_use]
pub fn verified_order(block: &[u8], offset: u64) -> Option<ByteOrder> {
    verify_embedded(ChecksumFunction::Label, block, EmbeddedVerifier::Label { offset }).ok()
}

/// An uberblock in a slot of a ring.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RingSlot {
    /// The label.
    pub label: LabelIndex,
    /// The slot's number.
    pub slot: usize,
    /// The uberblock, its checksum verified.
    pub uberblock: Uberblock,
    /// Byte order of its writer.
    pub order: ByteOrder,
}

/// The uberblocks in the ring of a label; empty slots are skipped.
pub fn decode_ring(
    block: &[u8],
    size: LeafSize,
    label: LabelIndex,
    ring: UberblockRing,
) -> impl Iterator<Item = RingSlot> {
    let slots = block.chunks_exact(ring.slot_size()).enumerate();
    slots.filter_map(move |(slot, bytes)| {
        // Most slots of a young pool are zeros, and are skipped without a hash.
        let trailer = bytes.len().checked_sub(TRAILER_MAGIC)?;
        bytes.get(trailer..)?.iter().find(|byte| **byte != 0)?;
        let (uberblock, order) = Uberblock::decode(bytes).ok()?;
        let offset = size.label_offset(label).saturating_add(ring.slot_offset(slot));
        verified_order(bytes, offset)?;
        Some(RingSlot { label, slot, uberblock, order })
    })
}

/// Whether there is nothing to be read: a file was truncated.
fn is_empty(error: &DeviceError) -> bool {
    error.source.kind() == ErrorKind::UnexpectedEof
}

/// The state of a device according to its labels.
#[derive(Debug)]
pub(crate) struct Look {
    /// The user in its newest label.
    pub(crate) user: DeviceUse,
    /// The user in the newest label not younger than what was committed on it: younger ones may
    /// belong to a commit that never happened.
    pub(crate) committed_user: DeviceUse,
    /// The newest uberblock committed on it. Heartbeats repeat it regardless of the other labels.
    pub(crate) newest: Option<Uberblock>,
    /// Whether all four labels were readable, whatever their contents.
    pub(crate) is_whole: bool,
}

impl Look {
    /// Looks at the labels of a device.
    pub(crate) fn at(device: &dyn BlockDevice, ring: UberblockRing) -> Self {
        let mut look = Self {
            user: DeviceUse::Unlabelled,
            committed_user: DeviceUse::Unlabelled,
            newest: None,
            is_whole: true,
        };
        let Some(size) = LeafSize::of_device(device.geometry().size) else { return look };
        let mut labels = Vec::new();
        for index in LabelIndex::ALL {
            let label = size.label_offset(index);
            let offset = label.saturating_add(CONFIG_OFFSET);
            match read_exact_at(device, offset, CONFIG_SIZE) {
                Ok(block) => labels.extend(FoundLabel::decode(index, offset, &block)),
                Err(error) => look.is_whole &= is_empty(&error),
            }
            match read_exact_at(device, label.saturating_add(RING_OFFSET), RING_SIZE) {
                Ok(block) => {
                    let slots = decode_ring(&block, size, index, ring).map(|slot| slot.uberblock);
                    let commits = slots.filter(|uberblock| !uberblock.is_heartbeat());
                    look.newest = commits.chain(look.newest.take()).max_by_key(|one| one.txg);
                }
                Err(error) => look.is_whole &= is_empty(&error),
            }
        }
        look.user = DeviceUse::from_labels(&labels);
        let committed = look.committed();
        labels.retain(|label| {
            label.config.member().is_some_and(|member| member.pool.txg <= committed)
        });
        look.committed_user = DeviceUse::from_labels(&labels);
        look
    }

    /// Txg of the newest uberblock, 0 if there is none.
    pub(crate) fn committed(&self) -> Txg {
        self.newest.as_ref().map_or(Txg(0), |newest| newest.txg)
    }
}

/// A pool named in a label.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LabelPool {
    /// Its name.
    pub name: String,
    /// Its guid.
    pub guid: Guid,
}

/// The state of a pool with regard to one of its devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolUse {
    /// The pool is imported, here or elsewhere, or its machine has crashed.
    Active,
    /// It was exported.
    Exported,
    /// It was destroyed; the device is free, and the pool could be recovered with it.
    Destroyed,
}

/// The user of a device according to its labels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DeviceUse {
    /// It has no label.
    Unlabelled,
    /// It is part of a pool.
    Member {
        /// The pool.
        pool: LabelPool,
        /// The state of the pool.
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
    /// The user of a device in its newest label, where a right checksum counts more than age.
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
