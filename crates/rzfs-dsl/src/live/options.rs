//! The options of a live pool.

use super::space::allocation::PoolSpace;
use crate::import::MissingLogs;
use crate::memory;
use rzfs_dmu::BlockPipeline;
use rzfs_dmu::txg::TxgOptions;
use rzfs_dmu::write::{BlockWriter, EncodeOptions, HoleBirth, SyncPasses};
use rzfs_format::features::Feature;
use rzfs_format::units::SECTOR_SIZE;
use rzfs_metaslab::allocator::{Allocator, SpaceTunables};
use rzfs_tunables::Tunables;
use std::sync::Arc;

/// From when on an administrator can repair a pool that waits for its devices.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Attendance {
    /// As soon as it is open.
    #[default]
    WhenOpen,
    /// From [`LivePool::attend`](super::LivePool::attend) on: until then a pool whose devices fail
    /// is given up instead of waiting for them.
    Later,
}

/// The options of a live pool.
#[derive(Clone, Copy, Debug)]
pub struct LiveOptions {
    /// Limits, intervals, policies.
    pub tunables: Tunables,
    /// Threads that encode blocks.
    pub threads: usize,
    /// What happens to intent logs that cannot be read.
    pub missing_logs: MissingLogs,
    /// From when on the pool waits for failing devices.
    pub attendance: Attendance,
}

impl LiveOptions {
    /// How much may be dirty, and for how long.
    #[must_use]
    pub fn txg(&self) -> TxgOptions {
        TxgOptions::new(&self.tunables, memory::available())
    }

    /// Tunables of allocation.
    pub(crate) fn space(&self) -> SpaceTunables {
        SpaceTunables {
            physical_memory: memory::available(),
            ..SpaceTunables::from(&self.tunables)
        }
    }

    /// The block writer of a pool with these features enabled.
    pub(crate) fn writer(
        &self,
        pipeline: &Arc<BlockPipeline>,
        allocator: &Arc<Allocator>,
        has: impl Fn(Feature) -> bool,
    ) -> BlockWriter {
        let vdevs = pipeline.vdevs();
        let normal = vdevs.top_levels().filter(|top| top.allocation_bias().is_none());
        let smallest = normal.filter_map(|top| vdevs.min_allocation(top.vdev_id()?));
        let (min_allocation, allocation_unit) = smallest
            .map(|bytes| (bytes, bytes))
            .reduce(|(min, unit), (bytes, _)| (min.min(bytes), common_divisor(unit, bytes)))
            .unwrap_or((SECTOR_SIZE, SECTOR_SIZE));
        let options = EncodeOptions {
            salt: pipeline.salt().clone(),
            min_allocation,
            allocation_unit,
            embedded_data: has(Feature::EmbeddedData),
        };
        let hole_birth = match has(Feature::HoleBirth) {
            true => HoleBirth::Recorded,
            false => HoleBirth::Forgotten,
        };
        let space = Arc::new(PoolSpace(Arc::clone(allocator)));
        BlockWriter::new(Arc::clone(pipeline), space, options, hole_birth, self.threads)
            .with_passes(SyncPasses::from(&self.tunables))
    }
}

const fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Default for LiveOptions {
    fn default() -> Self {
        Self {
            tunables: Tunables::default(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            missing_logs: MissingLogs::default(),
            attendance: Attendance::default(),
        }
    }
}
