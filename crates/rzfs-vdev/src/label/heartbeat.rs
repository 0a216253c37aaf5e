//! Heartbeats, which show other hosts that a pool is in use (spec 01, section 10.1).

use super::blocks;
use super::io::{self, LabelWrite};
use crate::tree::VdevTree;
use rzfs_blockdev::{BlockDevice, DeviceError};
use rzfs_format::label::{LABELS, LabelIndex, LeafSize, UberblockRing};
use rzfs_format::uberblock::Uberblock;
use std::sync::Arc;

/// Why a heartbeat was not written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HeartbeatError {
    /// No leaf can be written.
    #[error("no device is available")]
    NoLeaf,
    /// The leaf whose turn it was failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl VdevTree {
    /// Number of leaves that currently take heartbeats in turn.
    #[must_use]
    pub fn heartbeat_leaves(&self) -> usize {
        self.takers().count()
    }

    /// Writes an uberblock to the heartbeat slot of one label. `turn` counts the beats, and selects
    /// the leaf; `choice`, any number, selects the label.
    ///
    /// Nothing is flushed: heartbeats need not survive a power failure.
    ///
    /// # Errors
    /// [`HeartbeatError`]; the next one may succeed.
    pub fn write_heartbeat(
        &self,
        uberblock: &Uberblock,
        turn: u64,
        choice: u64,
    ) -> Result<(), HeartbeatError> {
        let takers: Vec<Taker> = self.takers().collect();
        let count = takers.len().max(1) as u64;
        let Taker { device, ring } =
            takers.get((turn % count) as usize).ok_or(HeartbeatError::NoLeaf)?;
        let size = LeafSize::of_device(device.geometry().size).ok_or(HeartbeatError::NoLeaf)?;
        let label = LabelIndex::ALL.into_iter().nth((choice % LABELS as u64) as usize);
        let label = label.ok_or(HeartbeatError::NoLeaf)?;
        let part = ring.slot_offset(ring.heartbeat_slot());
        let offset = size.label_offset(label).saturating_add(part);
        let block = blocks::slot(uberblock, *ring, offset);
        let answers = io::write(vec![LabelWrite { device, offset, block }]);
        Ok(answers.into_iter().collect::<Result<(), DeviceError>>()?)
    }

    /// The leaves that can be written.
    fn takers(&self) -> impl Iterator<Item = Taker> {
        let tops = self.top_levels().filter(|top| self.has_labels(top.node_id()));
        tops.flat_map(move |top| {
            let ring = UberblockRing::of_ashift(u64::from(top.ashift().unwrap_or(0)));
            let leaves = top.leaves_below().into_iter();
            leaves.filter_map(move |leaf| {
                let device = self.leaf(leaf.node_id())?.usable_device()?;
                Some(Taker { device, ring })
            })
        })
    }
}

/// A leaf that takes heartbeats.
struct Taker {
    device: Arc<dyn BlockDevice>,
    ring: UberblockRing,
}
