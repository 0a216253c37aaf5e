//! The counters of the cache: OpenZFS's `arcstats`.

use super::entry::{Class, Purpose, State};
use crate::BlockKind;

rzfs_kstat::kstat! {
    /// Counters and sizes of an [`AdaptiveCache`](crate::AdaptiveCache) at one moment, with the
    /// names of OpenZFS's kstat `arcstats`. Sizes are in bytes, fractions in units of 2^-32.
    pub struct ArcStats = "arcstats" {
        /// Blocks found.
        hits: Counter Count,
        /// Blocks found to be on their way.
        iohits: Counter Count,
        /// Blocks not found.
        misses: Counter Count,
        /// Data found on demand.
        demand_data_hits: Counter Count,
        /// Data found in flight on demand.
        demand_data_iohits: Counter Count,
        /// Data not found on demand.
        demand_data_misses: Counter Count,
        /// Metadata found on demand.
        demand_metadata_hits: Counter Count,
        /// Metadata found in flight on demand.
        demand_metadata_iohits: Counter Count,
        /// Metadata not found on demand.
        demand_metadata_misses: Counter Count,
        /// Data that a prefetch found.
        prefetch_data_hits: Counter Count,
        /// Data that a prefetch found on its way.
        prefetch_data_iohits: Counter Count,
        /// Data that a prefetch did not find.
        prefetch_data_misses: Counter Count,
        /// Metadata that a prefetch found.
        prefetch_metadata_hits: Counter Count,
        /// Metadata that a prefetch found on its way.
        prefetch_metadata_iohits: Counter Count,
        /// Metadata that a prefetch did not find.
        prefetch_metadata_misses: Counter Count,
        /// Blocks found that had been used once lately.
        mru_hits: Counter Count,
        /// Blocks not found that had been evicted after one use.
        mru_ghost_hits: Counter Count,
        /// Blocks found that had been used more than once.
        mfu_hits: Counter Count,
        /// Blocks not found that had been evicted after more than one use.
        mfu_ghost_hits: Counter Count,
        /// Blocks found that were not to be kept.
        uncached_hits: Counter Count,
        /// Blocks evicted or removed.
        deleted: Counter Count,
        /// Blocks skipped because they were just prefetched.
        evict_skip: Counter Count,
        /// Blocks not kept because no room could be made.
        evict_not_enough: Counter Count,
        /// Entries, ghosts included.
        hash_elements: Gauge Count,
        /// Metadata's share of the cache.
        meta: Gauge Fraction,
        /// The recently used blocks' share of data.
        pd: Gauge Fraction,
        /// The recently used blocks' share of metadata.
        pm: Gauge Fraction,
        /// Target size.
        c: Gauge Bytes,
        /// Largest target size.
        c_max: Gauge Bytes,
        /// All memory accounted for: values, headers, and room reserved for blocks that are being
        /// inserted.
        size: Gauge Bytes,
        /// Bytes of headers.
        hdr_size: Gauge Bytes,
        /// Bytes of cached data.
        data_size: Gauge Bytes,
        /// Bytes of cached metadata.
        metadata_size: Gauge Bytes,
        /// Bytes of blocks used once lately.
        mru_size: Gauge Bytes,
        /// Bytes of blocks of data used once lately.
        mru_data: Gauge Bytes,
        /// Bytes of blocks of metadata used once lately.
        mru_metadata: Gauge Bytes,
        /// Bytes that the blocks had that were evicted after one use.
        mru_ghost_size: Gauge Bytes,
        /// Bytes that the blocks of data had that were evicted after one use.
        mru_ghost_data: Gauge Bytes,
        /// Bytes that the blocks of metadata had that were evicted after one use.
        mru_ghost_metadata: Gauge Bytes,
        /// Bytes of blocks used more than once.
        mfu_size: Gauge Bytes,
        /// Bytes of blocks of data used more than once.
        mfu_data: Gauge Bytes,
        /// Bytes of blocks of metadata used more than once.
        mfu_metadata: Gauge Bytes,
        /// Bytes that the blocks had that were evicted after more than one use.
        mfu_ghost_size: Gauge Bytes,
        /// Bytes that the blocks of data had that were evicted after more than one use.
        mfu_ghost_data: Gauge Bytes,
        /// Bytes that the blocks of metadata had that were evicted after more than one use.
        mfu_ghost_metadata: Gauge Bytes,
        /// Bytes of blocks that are not to stay.
        uncached_size: Gauge Bytes,
        /// Bytes of blocks of data that are not to stay.
        uncached_data: Gauge Bytes,
        /// Bytes of blocks of metadata that are not to stay.
        uncached_metadata: Gauge Bytes,
        /// Blocks that a predictive prefetch has asked to be read.
        predictive_prefetch: Counter Count,
        /// Blocks found because of a predictive prefetch.
        demand_hit_predictive_prefetch: Counter Count,
        /// Blocks found on their way because of a predictive prefetch.
        demand_iohit_predictive_prefetch: Counter Count,
        /// Blocks that a prescient prefetch has asked to be read.
        prescient_prefetch: Counter Count,
        /// Blocks found because of a prescient prefetch.
        demand_hit_prescient_prefetch: Counter Count,
        /// Blocks found on their way because of a prescient prefetch.
        demand_iohit_prescient_prefetch: Counter Count,
    }
}

impl ArcStats {
    /// Counts a block that was found, as it was found.
    pub(super) const fn count_hit(&mut self, class: Class, was: Purpose, purpose: Purpose) {
        self.hits += 1;
        match class.state {
            State::Mru | State::MruGhost => self.mru_hits += 1,
            State::Mfu | State::MfuGhost => self.mfu_hits += 1,
            State::Uncached => self.uncached_hits += 1,
        }
        match (purpose, class.kind) {
            (Purpose::Demand, BlockKind::Data) => self.demand_data_hits += 1,
            (Purpose::Demand, BlockKind::Metadata) => self.demand_metadata_hits += 1,
            (_, BlockKind::Data) => self.prefetch_data_hits += 1,
            (_, BlockKind::Metadata) => self.prefetch_metadata_hits += 1,
        }
        match (purpose, was) {
            (Purpose::Demand, Purpose::PredictivePrefetch) => {
                self.demand_hit_predictive_prefetch += 1;
            }
            (Purpose::Demand, Purpose::PrescientPrefetch) => {
                self.demand_hit_prescient_prefetch += 1;
            }
            _ => {}
        }
    }

    /// Counts a block that is on its way, read for the purpose `was`.
    pub(super) const fn count_iohit(&mut self, kind: BlockKind, was: Purpose, purpose: Purpose) {
        self.iohits += 1;
        match (purpose, kind) {
            (Purpose::Demand, BlockKind::Data) => self.demand_data_iohits += 1,
            (Purpose::Demand, BlockKind::Metadata) => self.demand_metadata_iohits += 1,
            (_, BlockKind::Data) => self.prefetch_data_iohits += 1,
            (_, BlockKind::Metadata) => self.prefetch_metadata_iohits += 1,
        }
        match (purpose, was) {
            (Purpose::Demand, Purpose::PredictivePrefetch) => {
                self.demand_iohit_predictive_prefetch += 1;
            }
            (Purpose::Demand, Purpose::PrescientPrefetch) => {
                self.demand_iohit_prescient_prefetch += 1;
            }
            _ => {}
        }
    }

    /// Counts a block that has to be read.
    pub(super) const fn count_miss(&mut self, kind: BlockKind, purpose: Purpose) {
        self.misses += 1;
        match (purpose, kind) {
            (Purpose::Demand, BlockKind::Data) => self.demand_data_misses += 1,
            (Purpose::Demand, BlockKind::Metadata) => self.demand_metadata_misses += 1,
            (_, BlockKind::Data) => self.prefetch_data_misses += 1,
            (_, BlockKind::Metadata) => self.prefetch_metadata_misses += 1,
        }
        match purpose {
            Purpose::Demand => {}
            Purpose::PredictivePrefetch => self.predictive_prefetch += 1,
            Purpose::PrescientPrefetch => self.prescient_prefetch += 1,
        }
    }
}
