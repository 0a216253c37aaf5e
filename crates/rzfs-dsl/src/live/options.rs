//! What the owner of a pool that changes decides.

use super::devices::heartbeat::HeartbeatOptions;
use super::space::allocation::PoolSpace;
use crate::import::MissingLogs;
use rzfs_dmu::BlockPipeline;
use rzfs_dmu::txg::{DirtyLimits, TxgOptions};
use rzfs_dmu::write::{BlockWriter, EncodeOptions, HoleBirth};
use rzfs_format::features::Feature;
use rzfs_format::units::SECTOR_SIZE;
use rzfs_metaslab::allocator::{Allocator, SpaceTunables};
use std::sync::Arc;
use std::time::Duration;

/// `zfs_txg_timeout`.
const TXG_TIMEOUT: Duration = Duration::from_secs(5);

/// OpenZFS has no such limit on a txg's blocks, but one on its time.
const ASYNC_FREE_BLOCKS: usize = 100_000;

/// From when on somebody has a pool who can mend it while it waits for its devices.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Attendance {
    /// As soon as it is open.
    #[default]
    WhenOpen,
    /// From [`LivePool::attend`](super::LivePool::attend) on: until then a pool whose devices fail
    /// is given up instead of waiting for them.
    Later,
}

/// What the owner of a pool that changes decides.
#[derive(Clone, Copy, Debug)]
pub struct LiveOptions {
    /// Most bytes of block contents to keep in memory (`zfs_arc_max`).
    pub arc_max: u64,
    /// How much may be dirty, and for how long.
    pub txg: TxgOptions,
    /// Parameters of allocation.
    pub space: SpaceTunables,
    /// Threads that encode blocks.
    pub threads: usize,
    /// Blocks of destroyed datasets that are freed in one txg (`zfs_async_block_max_blocks`).
    pub async_free_blocks: usize,
    /// What becomes of intent logs that cannot be read.
    pub missing_logs: MissingLogs,
    /// The heartbeat of a pool with `multihost=on`.
    pub heartbeat: HeartbeatOptions,
    /// From when on the pool waits for devices that fail.
    pub attendance: Attendance,
}

impl LiveOptions {
    /// What makes the blocks of a pool that has these features enabled.
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
    }
}

const fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Default for LiveOptions {
    /// OpenZFS's defaults for this machine; a cache of 512 MiB.
    fn default() -> Self {
        let info = rustix::system::sysinfo();
        let memory = (info.totalram as u64).saturating_mul(info.mem_unit.into());
        let limits = DirtyLimits::of_memory(memory);
        Self {
            arc_max: 512 << 20,
            txg: TxgOptions { limits, timeout: TXG_TIMEOUT, max_frees: TxgOptions::MAX_FREES },
            space: SpaceTunables { physical_memory: memory, ..SpaceTunables::default() },
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            async_free_blocks: ASYNC_FREE_BLOCKS,
            missing_logs: MissingLogs::default(),
            heartbeat: HeartbeatOptions::default(),
            attendance: Attendance::default(),
        }
    }
}
