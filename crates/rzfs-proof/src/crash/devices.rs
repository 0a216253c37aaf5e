//! The simulated devices of a run.

use crate::Shape;
use rzfs_blockdev::simulated::{CompletionOrder, History, Moment};
use rzfs_blockdev::{BlockDevice, SimulatedDevice, Simulation};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Devices for a pool of some shape, by letter, which complete requests in random order.
pub(super) struct SimulatedDevices(BTreeMap<&'static str, Arc<SimulatedDevice>>);

impl SimulatedDevices {
    /// The devices of a shape, and others added to its pool later.
    pub(super) fn new(
        shape: &Shape,
        more: impl IntoIterator<Item = &'static str>,
        simulation: &Simulation,
    ) -> Self {
        let size = usize::try_from(shape.device_size).unwrap_or(0);
        let device = |letter| {
            let device = simulation.device(letter, vec![0; size]);
            device.set_order(CompletionOrder::Shuffled);
            (letter, Arc::new(device))
        };
        Self(shape.devices().chain(more).map(device).collect())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &SimulatedDevice> {
        self.0.values().map(|device| &**device)
    }

    /// The device with this number, modulo their count.
    pub(super) fn nth(&self, number: u64) -> Option<&SimulatedDevice> {
        let count = self.0.len().max(1) as u64;
        self.iter().nth((number % count) as usize)
    }

    pub(super) fn as_blocks(&self) -> BTreeMap<&'static str, Arc<dyn BlockDevice>> {
        let as_block = |(letter, device): (&&'static str, &Arc<SimulatedDevice>)| {
            (*letter, Arc::clone(device) as Arc<dyn BlockDevice>)
        };
        self.0.iter().map(as_block).collect()
    }

    /// The history of writes to each of them.
    pub(super) fn histories(&self) -> Vec<(String, History)> {
        self.0.iter().map(|(letter, device)| ((*letter).to_owned(), device.history())).collect()
    }
}

/// The moments from `first` on at which crashes can differ, in order.
pub(super) fn moments_since(first: Moment, histories: &[(String, History)]) -> Vec<Moment> {
    let all = histories.iter().flat_map(|(_, history)| history.moments());
    let mut moments: Vec<Moment> = all.filter(|moment| *moment >= first).collect();
    moments.sort_unstable();
    moments.dedup();
    moments
}
