//! Space statistics of a pool.

use super::group::SpaceTotals;
use super::request::ClassKind;
use rzfs_format::VdevId;

/// Space of a pool. Deflated values are bytes without parity.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PoolUsage {
    /// By class, in the order of [`ClassKind::ALL`], in bytes as the vdevs count them.
    pub classes: [SpaceTotals; 5],
    /// Deflated space of the normal class on vdevs that can be allocated from (`rdspace`).
    pub normal_space: u64,
    /// Deflated bytes allocated in the special and dedup classes; together with
    /// [`PoolUsage::normal_space`] and the savings of dedup and cloning it is the pool's `dspace`.
    pub special_allocated: u64,
    /// Deflated space of the metaslabs reserved for the intent log.
    pub embedded_log_space: u64,
    /// Deflated slop space, reserved so that a full pool can still free something.
    pub slop: u64,
}

impl PoolUsage {
    /// The figures of a class.
    #[must_use]
    pub const fn class(&self, class: ClassKind) -> SpaceTotals {
        self.classes[class.index()]
    }

    /// The pool's size as shown by `zpool list`, from all classes except for logs.
    #[must_use]
    pub fn total(&self) -> SpaceTotals {
        let mut sum = SpaceTotals::default();
        let counted = ClassKind::ALL.into_iter().filter(|class| *class != ClassKind::Log);
        counted.for_each(|class| sum.add(self.class(class)));
        sum
    }
}

/// Space of a top-level vdev, in bytes as it counts them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VdevUsage {
    /// The vdev.
    pub vdev: VdevId,
    /// Its figures.
    pub totals: SpaceTotals,
    /// Fragmentation of its free space in percent; `None` if its space maps do not record it.
    pub fragmentation: Option<u64>,
}

/// The logs of a pool at the end of a txg.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LogStatus {
    /// Logs.
    pub logs: u64,
    /// Their blocks.
    pub blocks: u64,
    /// Most blocks that they should have.
    pub block_limit: u64,
    /// Metaslabs whose own maps are incomplete.
    pub dirty_metaslabs: u64,
    /// Metaslabs with any earlier log entries.
    pub metaslabs: u64,
    /// Bytes of memory of the changes that only logs have.
    pub unflushed_memory: u64,
}

/// Whether dedup vdevs have room for larger tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DedupRoom {
    /// They have, or there are none: tables then share the other classes.
    Left,
    /// They are nearly full, or recently were.
    Full,
}
